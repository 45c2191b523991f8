/** Ids as parts of a path: whatever is in them, a link has neither slashes nor signs that proxies change. */
import { notFound } from './errors.js';

export const refOf = (id: string): string => Buffer.from(id).toString('base64url');

export function idOf(ref: string): string {
  const id = Buffer.from(ref, 'base64url').toString();
  if (id === '' || refOf(id) !== ref) throw notFound();
  return id;
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
