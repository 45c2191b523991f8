/** What each page may cost on a large store, in keys and rows that the database examines, not in milliseconds. */
import { expect } from 'vitest';
import type { Client } from './client.js';

const AGO = encodeURIComponent('2020-01-01T00:00:00Z');

/** The stores that the pages are tested on hold far more than this of each name, status and kind. */
export const BUDGETS: readonly (readonly [page: string, most: number])[] = [
  ['work', 400],
  ['work?order=asc', 400],
  ['work?name=mail', 800],
  ['work?name=mail&status=completed', 300],
  ['work?name=mail&name=sync&status=completed&status=failed', 800],
  ['work?status=failed&sort=updatedAt', 300],
  ['work?status=pending&sort=dueAt&order=asc', 900],
  [`work?name=mail&status=failed&time=createdAt&from=${AGO}`, 300],
  ['work?kind=tasks', 1_500],
  ['work?kind=tasks&name=audit', 800],
  ['work?kind=tasks&name=audit&status=failed', 300],
  ['work?kind=tasks&order=asc', 1_500],
  ['schedules', 300],
  ['audit', 300],
  // A key and a document for each failure that is examined.
  ['failures?kind=jobs', 12_000],
  ['failures?kind=tasks', 32_000],
];

/** Also follows every list to its next page: a later page costs no more than the first. */
export async function turned(client: Client, page: string): Promise<string | undefined> {
  const { next, partial } = await client.get<{ next?: string | null; partial?: boolean }>(page);
  expect(partial ?? false, page).toBe(page.startsWith('failures'));
  if (next === undefined || next === null) return undefined;
  return `${page}${page.includes('?') ? '&' : '?'}cursor=${encodeURIComponent(next)}`;
}
