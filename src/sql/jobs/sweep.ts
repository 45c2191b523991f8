import type { Sql } from '../connection/connection.js';
import { run } from '../connection/errors.js';
import { sweepLocks } from '../cluster/locks.js';
import { sweepMinutes } from '../cluster/metrics.js';
import { rows } from '../connection/rows.js';
import { timeText } from '../connection/values.js';

/** Small enough that one statement holds up no other. */
const BATCH = 1_000;

/** Skips rows that other transactions hold, so several instances may sweep at once. */
export const sweepStatement = ({ names: { jobs } }: Sql): string => `
  with gone as (
    delete from ${jobs} where id in (
      select id from ${jobs} where expires_at <= $1::text::timestamptz
      order by expires_at limit $2::integer for update skip locked
    ) returning id
  ) select count(*)::text as json from gone`;

/**
 * Deletes finished jobs whose retention has passed, unused locks and old minutes of metrics; then cleans up behind
 * updates if the server does not do it itself. Returns the number of deleted jobs.
 */
export async function sweep(sql: Sql, now: Date): Promise<number> {
  return run('sweep', async () => {
    let total = 0;
    for (;;) {
      const [count = 0] = await rows<number>(sql.driver, sweepStatement(sql), [timeText(now), BATCH]);
      total += count;
      if (count < BATCH) break;
    }
    await sweepLocks(sql);
    await sweepMinutes(sql);
    await sql.tidy();
    return total;
  });
}
