import type { StoreError } from '../errors.js';

/** What became of a piece: what has to be tried again, and why, if the store was in trouble. */
export interface Tried<T> {
  readonly left: readonly T[];
  readonly trouble?: StoreError;
}

export interface Round<T> extends Tried<T> {
  /** The part of `left` that the store had trouble with; the rest was not tried, or is to be decided again. */
  readonly troubled: readonly T[];
  /** Items with which the store had trouble although nothing else was in their piece. */
  readonly alone: readonly T[];
  /** The store has answered for a piece. */
  readonly answered: boolean;
}

/** So many pieces in a row say that the store itself is in trouble: the others need not be tried now. */
const ENOUGH = 2;

/**
 * Tries items in pieces, so that one of them which the store always stumbles over does not keep the others from it. Pieces grow
 * while all goes well. What failed comes last in `left`: next time the others have their turn first.
 */
export async function inPieces<T>(
  items: readonly T[],
  firstSize: number,
  attempt: (piece: readonly T[]) => Promise<Tried<T>>,
): Promise<Round<T>> {
  const troubled: T[] = [];
  const alone: T[] = [];
  const again: T[] = [];
  let [at, size, inARow, answered] = [0, firstSize, 0, false];
  let trouble: StoreError | undefined;
  while (at < items.length && inARow < ENOUGH) {
    const piece = items.slice(at, at + size);
    at += piece.length;
    const tried = await attempt(piece);
    if (tried.trouble === undefined) again.push(...tried.left);
    else troubled.push(...tried.left);
    if (tried.trouble !== undefined && piece.length === 1) alone.push(...tried.left);
    trouble ??= tried.trouble;
    inARow = tried.trouble === undefined ? 0 : inARow + 1;
    answered ||= tried.trouble === undefined;
    if (trouble === undefined) size *= 2;
  }
  const left = [...items.slice(at), ...again, ...troubled];
  return { left, troubled, alone, answered, ...(trouble === undefined ? {} : { trouble }) };
}
