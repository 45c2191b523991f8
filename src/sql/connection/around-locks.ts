/** Writes do not wait for a row that another open transaction holds: they skip it, and write the rest. */
import type { SettleAnswer } from '../../store/port.js';
import { isLocked } from './errors.js';

/** Tidemill's own statements hold a row for a moment only. A longer wait means that a user's transaction holds it. */
export const LOCK_MS = 250;

/**
 * The first step of a statement that is a transaction of its own: limits how long it waits for a lock. The setting ends
 * with the statement.
 */
export const lockLimitOf = (limitMs: number): string =>
  `select set_config('lock_timeout', '${String(limitMs)}', true)`;

export const lockLimit: string = lockLimitOf(LOCK_MS);

/** The rows of a query, evaluated after the limit is set. */
export const limitedRows = (rows: string): string => `select r.* from (${lockLimit}) as l, (${rows}) as r`;

/**
 * Tries without skipping first, since nearly all locks are gone in a moment. If one is not, tries again and skips the
 * locked rows. If that fails as well, for instance because the table is being altered, all rows count as blocked.
 */
export async function aroundLocks<T>(
  statement: (skipLocked: boolean) => Promise<T>,
  allBlocked: () => T,
): Promise<T> {
  try {
    return await statement(false);
  } catch (error) {
    if (!isLocked(error)) throw error;
  }
  return passingOver(() => statement(true), allBlocked);
}

/** The second step of `aroundLocks`, for callers that skip locked rows in any case. */
export async function passingOver<T>(statement: () => Promise<T>, allBlocked: () => T): Promise<T> {
  try {
    return await statement();
  } catch (error) {
    if (!isLocked(error)) throw error;
    return allBlocked();
  }
}

/** A holder's settlements wait briefly for a locked row. A reclaimer's skip it at once: it comes back. */
export function settleAround(
  settlements: readonly { readonly by: 'holder' | 'reclaimer' }[],
  statement: (skipLocked: boolean) => Promise<readonly SettleAnswer[]>,
): Promise<readonly SettleAnswer[]> {
  const allBlocked = (): readonly SettleAnswer[] => settlements.map(() => 'blocked');
  return settlements.every(({ by }) => by === 'reclaimer')
    ? passingOver(() => statement(true), allBlocked)
    : aroundLocks(statement, allBlocked);
}
