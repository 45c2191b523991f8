/** How statements on watched tables are run: for a limited time, in turn, on the table as it is. */
import type { Source } from '../../store/reactive.js';
import { LOCK_MS } from '../connection/around-locks.js';
import type { Sql } from '../connection/connection.js';
import type { Queryable } from '../connection/driver.js';
import { sqlState } from '../connection/errors.js';
import type { Shape } from '../tables/shape.js';
import type { SqlSources } from './sources.js';

/** The statement itself is wrong by now: a table or a column is gone, or of another type. */
const isOutdated = (error: unknown): boolean => /^42/u.test(sqlState(error) ?? '');

/**
 * In a transaction of its own, that no other planner's statement on the task runs beside: a slow one could write an older
 * snapshot over a newer one. The lock is taken before the statement, which then sees all that was done under it.
 */
export function inTurn<T>(
  { driver, names }: Sql,
  task: string,
  limitMs: number,
  work: (transaction: Queryable) => Promise<T>,
): Promise<T> {
  return driver.transaction(async (transaction) => {
    await transaction.query(
      `select set_config('statement_timeout', $1::text, true), set_config('lock_timeout', $2::text, true),
         pg_advisory_xact_lock(hashtextextended($3::text, 0))`,
      [String(limitMs), String(Math.min(limitMs, LOCK_MS)), `tidemill:${names.schema}:plan:${task}`],
    );
    return work(transaction);
  });
}

/** With the table as it is known; looks at it again where the server says that it is another by now. */
export async function withShape<T>(
  sources: SqlSources,
  source: Source,
  work: (shape: Shape | undefined) => Promise<T>,
): Promise<T> {
  try {
    return await work(await sources.open(source));
  } catch (error) {
    if (!isOutdated(error)) throw error;
    sources.forget(source);
    return work(await sources.open(source));
  }
}
