import { countTooLong } from '../../core/errors.js';
import type { Driver, Queryable } from './driver.js';
import { isTimeLimit } from './errors.js';

/** Runs statements in a transaction of their own; the server cancels each one after `limitMs`. */
export const limited = <T>(
  driver: Driver,
  limitMs: number,
  work: (transaction: Queryable) => Promise<T>,
): Promise<T> =>
  driver.transaction(async (transaction) => {
    await transaction.query(`select set_config('statement_timeout', $1::text, true)`, [String(limitMs)]);
    return work(transaction);
  });

/** The same for a count, which cannot return a partial answer: throws an error that says it took too long. */
export async function withinLimit<T>(
  driver: Driver,
  what: string,
  limitMs: number,
  work: (transaction: Queryable) => Promise<T>,
): Promise<T> {
  try {
    return await limited(driver, limitMs, work);
  } catch (error) {
    if (isTimeLimit(error)) throw countTooLong(what, limitMs, error);
    throw error;
  }
}
