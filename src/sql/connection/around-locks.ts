/** Writes do not wait for a row that somebody's open transaction holds: it is passed over, and the rest is written. */
import type { SettleAnswer } from '../../store/port.js';
import { isLocked } from './errors.js';

/** Statements of our own hold a row for a moment; who takes longer is somebody's transaction. */
export const LOCK_MS = 250;

/**
 * The first step of a statement that is a transaction by itself: where it meets a lock, it gives up after a while. The setting ends
 * with the statement.
 */
export const lockLimitOf = (limitMs: number): string =>
  `select set_config('lock_timeout', '${String(limitMs)}', true)`;

export const lockLimit: string = lockLimitOf(LOCK_MS);

/** The rows of a query, which are there once the limit is. */
export const limitedRows = (rows: string): string => `select r.* from (${lockLimit}) as l, (${rows}) as r`;

/**
 * At first without caring about locks, which nearly always are over in a moment; where one is not, rows that somebody holds are
 * passed over. A table that is being altered blocks all of them.
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

/** The second half of the above, for whoever passes over rows in any case. */
export async function passingOver<T>(statement: () => Promise<T>, allBlocked: () => T): Promise<T> {
  try {
    return await statement();
  } catch (error) {
    if (!isLocked(error)) throw error;
    return allBlocked();
  }
}

/** Settlements of a holder wait for a moment; a reclaimer has time, and comes again. */
export function settleAround(
  settlements: readonly { readonly by: 'holder' | 'reclaimer' }[],
  statement: (skipLocked: boolean) => Promise<readonly SettleAnswer[]>,
): Promise<readonly SettleAnswer[]> {
  const allBlocked = (): readonly SettleAnswer[] => settlements.map(() => 'blocked');
  return settlements.every(({ by }) => by === 'reclaimer')
    ? passingOver(() => statement(true), allBlocked)
    : aroundLocks(statement, allBlocked);
}
