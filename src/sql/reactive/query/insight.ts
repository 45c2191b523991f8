/** What people ask about tasks: counts, failures, pauses, and their rows. */
import type { FailureLine } from '../../../core/records/failure-groups.js';
import { TASK_STATUSES, type TaskRecord, type TaskStatus } from '../../../core/records/task.js';
import type { Source, TaskCounts, TaskStats } from '../../../store/reactive/reactive.js';
import type { Sql } from '../../connection/connection.js';
import { run } from '../../connection/errors.js';
import { ms } from '../../jobs/record.js';
import { rows } from '../../connection/rows.js';
import { isStorable } from '../../connection/values.js';
import { Arguments, pinnedTexts } from '../../tables/arguments.js';
import { parseExact } from '../../tables/exact.js';
import { found, given, namesOf } from '../place.js';
import { leaseKey, revived } from '../record.js';
import type { Shape } from '../../tables/shape.js';
import type { SqlSources } from '../sources.js';
import { withShape } from '../statements.js';

/** The names of tasks, reading one index key for each. */
export const distinctTasks = (tasks: string): string => `
  with recursive named as (
    (select task from ${tasks} order by task limit 1)
    union all
    select (select k.task from ${tasks} k where k.task > n.task order by k.task limit 1)
    from named n where n.task is not null
  )
  select task from named where task is not null`;

/**
 * Each status of each task is a range of the index; counts stop at the cap.
 *
 * $1 cap over all tasks
 */
function taskStatsStatement(sql: Sql): string {
  const { tasks } = namesOf(sql);
  const counts = TASK_STATUSES.map(
    (status) => `select '${status}' as status, count(*) as count from (
      select from ${tasks} where task = n.task and status = '${status}'
      order by scheduled_at desc, key desc limit budget.cap + 1) one`,
  );
  return `
  with named as materialized (${distinctTasks(tasks)}),
  budget as (select greatest(least(1000, $1::bigint), $1::bigint / greatest(1, count(*))) as cap from named)
  select json_build_object('task', n.task, 'cap', budget.cap,
    'counts', (select json_object_agg(c.status, c.count) from (${counts.join(' union all ')}) c),
    'due', (select ${ms('scheduled_at')} from ${tasks} where task = n.task and status = 'pending'
      order by scheduled_at, key limit 1))::text as json
  from named n cross join budget`;
}

interface Counted {
  readonly task: string;
  readonly cap: number;
  readonly counts: Readonly<Record<TaskStatus, number>>;
  readonly due: number | null;
}

const toStats = ({ task, cap, counts, due }: Counted): TaskStats => ({
  task,
  counts: Object.fromEntries(
    TASK_STATUSES.map((status) => [status, Math.min(cap, counts[status])]),
  ) as TaskCounts,
  capped: TASK_STATUSES.filter((status) => counts[status] > cap),
  ...(due === null ? {} : { nextDue: new Date(due) }),
});

export async function stats(sql: Sql, cap: number): Promise<readonly TaskStats[]> {
  const counted = await run('count tasks', () => rows<Counted>(sql.driver, taskStatsStatement(sql), [cap]));
  return counted.map(toStats).sort((a, b) => (a.task < b.task ? -1 : 1));
}

/** $1 limit · $2 task */
function taskFailuresStatement(sql: Sql, task?: string): string {
  const { tasks } = namesOf(sql);
  const among = task === undefined ? distinctTasks(tasks) : 'select $2::text as task';
  return `select json_build_object('name', f.task, 'message', coalesce(f.last_error, ''), 'at', f.at)::text as json
    from (${among}) n cross join lateral (
      select task, last_error, ${ms('coalesce(last_finalized_at, updated_at)')} as at from ${tasks}
      where task = n.task and status = 'failed' order by scheduled_at desc, key desc limit $1::integer) f`;
}

export async function failures(sql: Sql, limit: number, task?: string): Promise<readonly FailureLine[]> {
  if (task !== undefined && !isStorable(task)) return [];
  const values = [limit, ...(task === undefined ? [] : [task])];
  const lines = await run('read failures', () =>
    rows<{ name: string; message: string; at: number }>(sql.driver, taskFailuresStatement(sql, task), values),
  );
  return lines
    .map((line) => ({ ...line, at: new Date(line.at) }))
    .sort((a, b) => b.at.getTime() - a.at.getTime())
    .slice(0, limit);
}

export async function document(
  sources: SqlSources,
  record: TaskRecord,
  source: Source,
): Promise<{ collection: string; document: unknown } | undefined> {
  const read = async (shape: Shape | undefined): Promise<unknown> => {
    if (shape === undefined) return undefined;
    const args = new Arguments();
    const text = `with ${given(shape, args.json([leaseKey(record).key]))}, ${found(shape)}
      select row_to_json(f.doc)::text from found f`;
    const [json] = await pinnedTexts(sources.sql.driver, namesOf(sources.sql).pinned, text, args);
    return json === undefined ? undefined : revived(parseExact(json), shape);
  };
  const row = await run('read a row', () => withShape(sources, source, read));
  return row === undefined ? undefined : { collection: source.collection, document: row };
}

export async function pauses({ driver, names }: Sql): Promise<ReadonlyMap<string, Date | null>> {
  const text = `select json_build_array(name, ${ms('until')})::text as json from ${names.pauses}
    where kind = 'tasks' and (until is null or until > statement_timestamp())`;
  const found = await run('read pauses', () => rows<[string, number | null]>(driver, text));
  return new Map(found.map(([name, until]) => [name, until === null ? null : new Date(until)]));
}
