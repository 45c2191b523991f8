/** Ids as parts of a path: whatever is in them, a link has neither slashes nor signs that proxies change. */
import type { Asked } from './asked.js';
import { notFound } from './errors.js';

export const refOf = (id: string): string => Buffer.from(id).toString('base64url');

export function idOf(ref: string): string {
  const id = Buffer.from(ref, 'base64url').toString();
  if (id === '' || refOf(id) !== ref) throw notFound();
  return id;
}

/** Where a page begins and ends; sealed where that would tell a key that is hidden. */
export const placesOf = (
  { seal }: Pick<Asked, 'seal'>,
  { next, previous }: { readonly next: string | null; readonly previous: string | null },
  hidden: boolean,
): { readonly next: string | null; readonly previous: string | null } => {
  const place = (cursor: string | null): string | null =>
    hidden && cursor !== null ? seal.close(cursor) : cursor;
  return { next: place(next), previous: place(previous) };
};

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
