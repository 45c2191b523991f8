/**
 * How statements on watched tables run: with a time limit, one at a time per task, and on the current shape of the
 * table.
 */
import type { Partition } from '../../store/reactive/partitions.js';
import type { Source } from '../../store/reactive/reactive.js';
import { LOCK_MS } from '../connection/around-locks.js';
import type { Sql } from '../connection/connection.js';
import type { Queryable } from '../connection/driver.js';
import { isOutdated } from '../connection/errors.js';
import type { Shape } from '../tables/shape.js';
import type { SqlSources } from './sources.js';

/** What planners take turns at: a task, or one partition of it. */
export const turnOf = (task: string, { index, of }: Partition): string =>
  of === 1 ? task : `${task} (${String(index)} of ${String(of)})`;

/**
 * Runs `work` in a transaction of its own, while no other planner runs a statement on the tasks: a slow one could
 * overwrite a newer snapshot with an older one. The locks are taken before the statement, which therefore sees
 * everything that was done under them. They are taken in the order of the names, so that two planners cannot deadlock.
 */
export function inTurn<T>(
  { driver, names }: Sql,
  turns: readonly string[],
  limitMs: number,
  work: (transaction: Queryable) => Promise<T>,
): Promise<T> {
  return driver.transaction(async (transaction) => {
    await transaction.query(
      `select set_config('statement_timeout', $1::text, true), set_config('lock_timeout', $2::text, true),
         (select count(pg_advisory_xact_lock(hashtextextended(name, 0))) from json_array_elements_text($3::text::json) as e(name))`,
      [
        String(limitMs),
        String(Math.min(limitMs, LOCK_MS)),
        JSON.stringify([...turns].sort().map((turn) => `tidemill:${names.schema}:plan:${turn}`)),
      ],
    );
    return work(transaction);
  });
}

/**
 * Runs `work` with the known shape of the table. If the server says that the shape is out of date, reads it again and
 * retries once.
 */
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
