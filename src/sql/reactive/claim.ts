import { StoreError } from '../../core/errors.js';
import { byTaskOrder } from '../../core/records/claim-order.js';
import type { TaskRecord } from '../../core/records/task.js';
import type {
  ClaimAnswer,
  ClaimRequest,
  ClusterBrief,
  DueSummary,
  Instance,
  NameLimit,
} from '../../store/port.js';
import type { TaskPlan } from '../../store/reactive/reactive.js';
import type { Sql } from '../connection/connection.js';
import { run } from '../connection/errors.js';
import { ms } from '../jobs/record.js';
import { answering, rows } from '../connection/rows.js';
import { isStorable, timeText } from '../connection/values.js';
import { claimByKeys, claimParts, heldUpOf, quotedText } from '../limits/claim-keyed.js';
import { keyedTasks } from '../schema/migrations/keyed-table.js';
import { Arguments, pinned } from '../tables/arguments.js';
import { isolated } from './plan/isolate.js';
import { found, given, holds, namesOf } from './place.js';
import { whereOf } from './plan/plan.js';
import { COLUMNS, IS_RUNNING, leaseKey, records, RETURNED, toRecord, type ShapeOf } from './record.js';
import type { Shape } from '../tables/shape.js';
import type { SqlSources } from './sources.js';
import { withShape } from './statements.js';
import { conditionOf } from '../tables/translate.js';

export type Plans = ReadonlyMap<string, TaskPlan>;

const HOLDS = `(until is null or until > statement_timestamp())`;

interface TaskBriefRow {
  readonly now: number;
  readonly pauses: readonly { readonly name: string; readonly until: number | null }[];
  readonly inForce: readonly { readonly task: string; readonly trigger: string; readonly version: number }[];
}

/** A SQL expression: the server's time, the pauses of tasks, and the definitions in force of the tasks asked about. */
const briefJson = (sql: Sql, tasks: string): string => `json_build_object(
    'now', ${ms('statement_timestamp()')},
    'pauses', (select coalesce(json_agg(json_build_object('name', name, 'until', ${ms('until')})), '[]')
      from ${sql.names.pauses} where (kind = 'tasks' and ${HOLDS}) or (kind = 'jobs' and name = '')),
    'inForce', (select coalesce(json_agg(json_build_object('task', task, 'trigger', state -> 'trigger',
      'version', state -> 'version')), '[]') from ${namesOf(sql).states} where task = any(array(${tasks}))))`;

function readBrief({ now, pauses, inForce }: TaskBriefRow): ClusterBrief {
  const ends = pauses.flatMap(({ until }) => until ?? []);
  return {
    now: new Date(now),
    paused: new Set(pauses.map(({ name }) => name)),
    inForce: new Map(inForce.map(({ task, trigger, version }) => [task, { trigger, version }])),
    ...(ends.length === 0 ? {} : { resumeAt: new Date(Math.min(...ends)) }),
  };
}

/**
 * Reads one index key per task: when its earliest row is due.
 *
 * $1 tasks · $2 tasks that this instance defines
 */
export const lookStatement = (sql: Sql): string => `
  select json_build_object('cluster', ${briefJson(sql, 'select json_array_elements_text($2::text::json)')}, 'due', (
    select coalesce(json_agg(json_build_array(n.name, ${ms('k.scheduled_at')})), '[]')
    from json_array_elements_text($1::text::json) as n(name)
    cross join lateral (
      select scheduled_at from ${namesOf(sql).tasks} where task = n.name and status = 'pending'
      order by scheduled_at, key limit 1
    ) k))::text as json`;

export async function look(sql: Sql, tasks: readonly string[], plans: Plans): Promise<DueSummary> {
  const values = [tasks, [...plans.keys()]].map((list) => JSON.stringify(list.filter(isStorable)));
  const [row] = await run('look for tasks', () =>
    rows<{ cluster: TaskBriefRow; due: [string, number][] }>(sql.driver, lookStatement(sql), values),
  );
  return {
    cluster: readBrief(row?.cluster as TaskBriefRow),
    nextDue: new Map(row?.due.map(([task, at]) => [task, new Date(at)])),
    foreign: false,
  };
}

const ASKED = `select n.name from json_to_recordset($1::text::json) as n(name text)`;

/**
 * Claims tasks in one statement, as for jobs: rows that other transactions hold are skipped, and names take turns. The
 * attempt counts from here; a settlement takes it back if it turns out not to be one.
 *
 * $1 tasks with their limits · $2 limit over all tasks · $3 instance · $4 token
 *
 * `ends`: a task has an end, after which none of it is taken.
 */
export const claimStatement = (sql: Sql, ends = false): string => {
  const { tasks } = namesOf(sql);
  return `
  with open as materialized (
    select n.name, n.max, n.turn
    from json_to_recordset($1::text::json) as n(name text, max integer, turn integer${ends ? ', until timestamptz' : ''})
    where not exists (select from ${sql.names.pauses} p
      where (p.kind = 'tasks' and p.name = n.name and ${HOLDS}) or (p.kind = 'jobs' and p.name = ''))${ends ? " and clock_timestamp() <= coalesce(n.until, 'infinity')" : ''}
  ), offered as materialized (
    select k.task, k.key, o.turn, row_number() over (partition by o.turn order by k.scheduled_at, k.key) as place
    from open o cross join lateral (
      select task, key, scheduled_at from ${tasks}
      where task = o.name and status = 'pending' and scheduled_at <= statement_timestamp()
      order by scheduled_at, key limit o.max
      for update skip locked
    ) k
  ), taken as materialized (
    select task, key from offered order by place, turn limit $2::integer
  ), claimed as (
    update ${tasks} k set status = 'processing', claimed_by = $3::text, lease_token = $4::text,
      locked_at = statement_timestamp(), attempts = k.attempts + 1, waiting_since = null, deferred_until = null,
      touched = false, overtaken = false
    from taken t where k.task = t.task and k.key = t.key
    returning k.*
  )
  select json_build_object('cluster', ${briefJson(sql, ASKED)}, 'offered', (select count(*) from offered))::text as json
  union all
  ${answering(COLUMNS, 'claimed')}`;
};

/** Of the keys of one task, those whose row exists and matches. */
export function matchingStatement(
  shape: Parameters<typeof found>[0],
  plan: TaskPlan,
  keys: readonly string[],
): { readonly text: string; readonly args: Arguments } {
  const args = new Arguments();
  const condition = holds(shape, conditionOf(whereOf(plan), shape, plan.filter, args));
  const text = `with ${given(shape, args.json(keys))}, ${found(shape)}
    select to_json(f.key)::text from found f where ${condition}`;
  return { text, args };
}

/**
 * Whether each row matches. A row on which the filter fails does not match, and holds up no other row of the claim.
 * Rows whose error may pass are left out of the result, and so are all rows if the server refuses the query: their
 * handlers meet the error.
 */
async function matching(
  sources: SqlSources,
  plan: TaskPlan,
  keys: readonly string[],
): Promise<ReadonlyMap<string, boolean>> {
  const ask = async (shape: Shape | undefined): Promise<ReadonlyMap<string, boolean>> => {
    const matches = new Map(keys.map((key) => [key, false]));
    if (shape === undefined) return matches;
    const choked = await isolated(sources.suspects, `claim ${plan.task}`, keys, async (some) => {
      const { text, args } = matchingStatement(shape, plan, some);
      for (const key of await pinned<string>(sources.sql.driver, namesOf(sources.sql).pinned, text, args))
        matches.set(key, true);
      return true;
    });
    for (const { item, blocked } of choked) if (blocked) matches.delete(item);
    return matches;
  };
  try {
    return await run('claim tasks', () => withShape(sources, plan.source, ask));
  } catch (error) {
    if (error instanceof StoreError && error.transient) throw error;
    return new Map();
  }
}

/** Called right after the claim, for all its tasks. */
async function withMatches(
  sources: SqlSources,
  plans: Plans,
  tasks: readonly TaskRecord[],
): Promise<readonly TaskRecord[]> {
  const groups = new Map<string, TaskRecord[]>();
  for (const task of tasks) groups.set(task.name, [...(groups.get(task.name) ?? []), task]);
  const judged = await Promise.all(
    [...groups].map(async ([name, group]) => {
      const plan = plans.get(name);
      if (plan === undefined) return group;
      const matches = await matching(
        sources,
        plan,
        group.map((task) => leaseKey(task).key),
      );
      return group.map((task) => {
        const known = matches.get(leaseKey(task).key);
        return known === undefined ? task : { ...task, matches: known };
      });
    }),
  );
  return judged.flat().sort(byTaskOrder);
}

/** What a claim by keys writes. */
const writing = (sql: Sql, { instance, token }: ClaimRequest): string => `
  update ${namesOf(sql).tasks} k set status = 'processing', claimed_by = ${quotedText(instance.instanceId)},
    lease_token = ${quotedText(token)}, locked_at = $2, attempts = k.attempts + 1, waiting_since = null,
    deferred_until = null, touched = false, overtaken = false
  where k.ctid = any($1)
  returning ${RETURNED}`;

/** One claim of one instance. */
interface Claiming {
  readonly sources: SqlSources;
  readonly plans: Plans;
  readonly shapeOf: ShapeOf;
  readonly request: ClaimRequest;
}

type Limits = readonly (readonly [string, NameLimit])[];

const tasksOf = (
  { sources, plans, shapeOf }: Claiming,
  texts: readonly string[],
): Promise<readonly TaskRecord[]> =>
  withMatches(
    sources,
    plans,
    texts.map((text) => ({ ...toRecord(text, shapeOf), bytes: text.length })),
  );

async function claimKeyed(
  claiming: Claiming,
  limits: Limits,
  total: number,
): Promise<ClaimAnswer<TaskRecord>> {
  const { sql } = claiming.sources;
  const { cluster, names, texts } = await claimByKeys<TaskBriefRow>(sql, {
    work: keyedTasks(sql.names),
    limits,
    total,
    brief: briefJson(sql, ASKED),
    writing: writing(sql, claiming.request),
  });
  const jobs = await tasksOf(claiming, texts);
  const more = names.some((name) => name.more);
  return { jobs, asked: jobs.length, more, ...heldUpOf(names), cluster: readBrief(cluster) };
}

async function claimPlain(
  claiming: Claiming,
  names: Limits,
  total: number,
): Promise<ClaimAnswer<TaskRecord>> {
  const { sources, request } = claiming;
  const limits = names
    .map(([name, { max, notAfter }], turn) => ({
      name,
      max: Math.min(max, total),
      turn,
      ...(notAfter === undefined ? {} : { until: timeText(notAfter) }),
    }))
    .filter(({ name }) => isStorable(name));
  const values = [JSON.stringify(limits), total, request.instance.instanceId, request.token];
  const ends = limits.some(({ until }) => until !== undefined);
  const answer = await sources.sql.driver.query(claimStatement(sources.sql, ends), values);
  const [first = '', ...texts] = answer.rows.map(({ json }) => json as string);
  const { cluster, offered } = JSON.parse(first) as { cluster: TaskBriefRow; offered: number };
  const jobs = await tasksOf(claiming, texts);
  const full = ({ name, max }: { name: string; max: number }): boolean =>
    jobs.filter((task) => task.name === name).length >= max;
  return {
    jobs,
    asked: jobs.length,
    more: offered > jobs.length || (jobs.length > 0 && limits.some(full)),
    cluster: readBrief(cluster),
  };
}

export async function claim(
  sources: SqlSources,
  plans: Plans,
  shapeOf: ShapeOf,
  request: ClaimRequest,
): Promise<ClaimAnswer<TaskRecord>> {
  const claiming: Claiming = { sources, plans, shapeOf, request };
  return run('claim tasks', () =>
    claimParts<TaskRecord>(request.limits, request.total, {
      keyed: (limits, total) => claimKeyed(claiming, limits, total),
      plain: (limits, total) => claimPlain(claiming, limits, total),
      inOrder: byTaskOrder,
    }),
  );
}

export async function claimedUnder(
  sources: SqlSources,
  plans: Plans,
  shapeOf: ShapeOf,
  instance: Instance,
  token: string,
): Promise<readonly TaskRecord[]> {
  const text = answering(
    COLUMNS,
    `${namesOf(sources.sql).tasks} where claimed_by = $1::text and ${IS_RUNNING} and lease_token = $2::text`,
  );
  return run('read a claim again', async () =>
    withMatches(
      sources,
      plans,
      await records(sources.sql.driver, text, [instance.instanceId, token], shapeOf),
    ),
  );
}
