/** Ids as parts of a path: whatever is in them, a link has neither slashes nor signs that proxies change. */
import type { RequestContext } from '../request-context.js';
import { badRequest, notFound } from '../http/errors.js';
import type { WorkQuery } from '../http/parameters.js';
import { Seal } from './seal.js';

export const refOf = (id: string): string => Buffer.from(id).toString('base64url');

export function idOf(ref: string): string {
  const id = Buffer.from(ref, 'base64url').toString();
  if (id === '' || refOf(id) !== ref) throw notFound();
  return id;
}

type Listed = Pick<WorkQuery, 'kind' | 'sort' | 'order'>;

/** A place opens for its own list only: the error about one that does not fit would quote what is sealed. */
const purposeOf = ({ kind, sort, order }: Listed): string =>
  `place of ${kind} ${sort ?? ''} ${String(order)}`;

/** Where a page begins and ends; sealed if that would tell a key that is hidden. */
export const placesOf = (
  { seal }: Pick<RequestContext, 'seal'>,
  listed: Listed,
  { next, previous }: { readonly next: string | null; readonly previous: string | null },
  hidden = true,
): { readonly next: string | null; readonly previous: string | null } => {
  const place = (cursor: string | null): string | null =>
    hidden && cursor !== null ? seal.close(cursor, purposeOf(listed)) : cursor;
  return { next: place(next), previous: place(previous) };
};

/** Keys of tasks and documents may be hidden: a place that a viewer made up would tell of them, half by half. */
export function openPlace({ seal }: Pick<RequestContext, 'seal'>, listed: Listed, cursor: string): string {
  if (Seal.isClosed(cursor)) return seal.openClosed(cursor, purposeOf(listed));
  if (listed.kind === 'jobs') return cursor;
  throw badRequest('"cursor" must be `next` or `previous` of an earlier answer.');
}

/** A list of texts as one reference. */
export const refOfParts = (parts: readonly string[]): string => refOf(JSON.stringify(parts));

export function partsOf(ref: string, count: number): readonly string[] {
  try {
    const parts = JSON.parse(idOf(ref)) as unknown;
    if (Array.isArray(parts) && parts.length === count && parts.every((part) => typeof part === 'string'))
      return parts;
  } catch {
    // Refused below.
  }
  throw notFound();
}
