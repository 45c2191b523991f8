/** Ids as path segments: whatever they contain, a link has neither slashes nor characters that proxies rewrite. */
import type { RequestContext } from '../request-context.js';
import { badRequest, notFound } from '../http/errors.js';
import type { WorkQuery } from '../http/parameters.js';
import { REDACTED } from './redact-text.js';
import { Seal } from './seal.js';

export const refOf = (id: string): string => Buffer.from(id).toString('base64url');

export function idOf(ref: string): string {
  const id = Buffer.from(ref, 'base64url').toString();
  if (id === '' || refOf(id) !== ref) throw notFound();
  return id;
}

/** The link and the title of a row, by its key. A link contains the whole key, including what the title leaves out. */
export function shownKey(
  { redactor, seal }: Pick<RequestContext, 'redactor' | 'seal'>,
  {
    ref,
    title,
    isNameHidden,
  }: { readonly ref: string; readonly title: string; readonly isNameHidden: boolean },
): { readonly id: string; readonly title: string } {
  return {
    id: isNameHidden || redactor.hidesIn(title) ? seal.close(ref) : ref,
    title: isNameHidden ? REDACTED : redactor.text(title),
  };
}

type Listed = Pick<WorkQuery, 'kind' | 'sort' | 'order'>;

/** A sealed cursor opens only for its own list: an error about a cursor that does not fit would quote its content. */
const purposeOf = ({ kind, sort, order }: Listed): string =>
  `place of ${kind} ${sort ?? ''} ${String(order)}`;

/** The cursors of a page, sealed if they would reveal a hidden key. */
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

/**
 * Keys of tasks and documents may be hidden, so only sealed cursors are accepted for them: with cursors of their own
 * making, viewers could find a key by bisection.
 */
export function openPlace({ seal }: Pick<RequestContext, 'seal'>, listed: Listed, cursor: string): string {
  if (Seal.isClosed(cursor)) return seal.openClosed(cursor, purposeOf(listed));
  if (listed.kind === 'jobs') return cursor;
  throw badRequest('"cursor" must be `next` or `previous` of an earlier response.');
}

/** Encodes a list of texts as one reference. */
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
