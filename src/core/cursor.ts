/** Cursors of paged lists: a position in a sorted list, as text that callers pass back. */
import { OptionError } from './errors.js';
import { show } from './options.js';

export interface Cursor {
  /** The sort value at this position; null if it has none. */
  readonly at: Date | null;
  /** Breaks ties: the key of the item at this position. */
  readonly key: string;
  /** True for the page before this position, which is read in reverse. */
  readonly back: boolean;
  /** The sort order of the list, in the list's own terms. */
  readonly sort?: unknown;
}

export const encodeCursor = (cursor: Cursor): string =>
  Buffer.from(JSON.stringify(cursor)).toString('base64url');

function parsed(text: unknown): Cursor | undefined {
  try {
    const raw = JSON.parse(Buffer.from(String(text), 'base64url').toString()) as Record<string, unknown>;
    const { at, key, back, sort } = raw;
    const time = at === null ? null : new Date(typeof at === 'string' ? at : NaN);
    if (typeof key !== 'string' || Number.isNaN(time?.getTime())) return undefined;
    return { at: time, key, back: back === true, sort };
  } catch {
    return undefined;
  }
}

/**
 * Reads a cursor that `isOurs` accepts. Any other text is an `OptionError`, in which `from` names where cursors come
 * from.
 */
export function decodeCursor<C extends Cursor>(
  where: string,
  text: unknown,
  isOurs: (cursor: Cursor) => cursor is C,
  from = '`next` or `previous` of an earlier page',
): C {
  const cursor = parsed(text);
  if (cursor !== undefined && isOurs(cursor)) return cursor;
  throw new OptionError(`${where}: cursor must be ${from}, got ${show(text)}.`);
}

/** True if this text is a cursor that asks for the page before its position. */
export const isBackCursor = (text: string): boolean => parsed(text)?.back === true;

/** The direction in which a store reads: in reverse for the page before a position. */
export const readDirection = (order: 1 | -1, from: Cursor | undefined): 1 | -1 =>
  from?.back === true ? (-order as 1 | -1) : order;

/** One page as callers get it, with the cursors of its neighbours. */
export interface CursorPage<T> {
  readonly items: readonly T[];
  readonly next: string | null;
  readonly previous: string | null;
}

/**
 * Makes a page of the items that a store found, in the order in which it read them. `more`: the store has more of them
 * in that direction. `from`: the cursor of the request. `isFirst` is false if items before the page were skipped.
 */
export function pageOfItems<T>(
  found: { readonly items: readonly T[]; readonly more: boolean },
  { from, isFirst = from === undefined }: { readonly from: Cursor | undefined; readonly isFirst?: boolean },
  cursorAt: (item: T, back: boolean) => Cursor,
): CursorPage<T> {
  const back = from?.back === true;
  const items = back ? [...found.items].reverse() : found.items;
  const [first, last] = [items[0], items.at(-1)];
  const hasNext = back || found.more;
  const hasPrevious = back ? found.more : !isFirst;
  return {
    items,
    next: hasNext && last !== undefined ? encodeCursor(cursorAt(last, false)) : null,
    previous: hasPrevious && first !== undefined ? encodeCursor(cursorAt(first, true)) : null,
  };
}
