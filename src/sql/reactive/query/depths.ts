import { TASK_STATUSES } from '../../../core/records/task.js';
import type { Depth, DepthRequest } from '../../../store/port.js';
import type { Sql } from '../../connection/connection.js';
import { run } from '../../connection/errors.js';
import { ms } from '../../jobs/record.js';
import { rows } from '../../connection/rows.js';
import { namesOf } from '../place.js';

/**
 * How many of the tasks that are due first are checked for how long they have waited. A deferred task further back is
 * not seen.
 */
const LOOKED_AT = 1_000;
const NOW = 'statement_timestamp()';

/**
 * Each count is a range of an index, read in index order, and stops at the cap.
 *
 * $1 cap over all tasks
 */
export function depthsStatement(sql: Sql): string {
  const { tasks } = namesOf(sql);
  const head = (condition: string, columns: string, limit: string): string =>
    `select ${columns} from ${tasks} where task = n.task and status = 'pending' ${condition}
      order by scheduled_at, key limit ${limit}`;
  const counts = TASK_STATUSES.filter((status) => status !== 'completed').map(
    (status) => `'${status}', (select count(*) from (
      select from ${tasks} where task = n.task and status = '${status}'
      order by scheduled_at desc, key desc limit budget.cap) one)`,
  );
  return `
  with recursive named as (
    (select task from ${tasks} order by task limit 1)
    union all
    select (select t.task from ${tasks} t where t.task > n.task order by t.task limit 1)
    from named n where n.task is not null
  ), known as materialized (select task from named where task is not null),
  budget as (select greatest(1000, $1::bigint / greatest(1, count(*))) as cap from known)
  select json_build_object('name', n.task, 'counts', json_build_object(${counts.join(', ')}),
    'due', (select count(*) from (${head(`and scheduled_at <= ${NOW}`, '', 'budget.cap')}) one),
    'lagMs', greatest(0, coalesce((select ${ms(`${NOW} - min(first.initial_scheduled_at)`)}
      from (${head('', 'initial_scheduled_at', String(LOOKED_AT))}) first), 0)))::text as json
  from known n cross join budget`;
}

export async function depths(sql: Sql, { cap }: DepthRequest): Promise<readonly Depth[]> {
  return run('count tasks', () => rows<Depth>(sql.driver, depthsStatement(sql), [cap]));
}
