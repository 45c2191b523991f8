/** Turns rows into tasks. The server evaluates filter and projection, compares with the snapshot, and writes. */
import type { TraceContext } from '../../../core/tracer.js';
import type { Partition } from '../../../store/reactive/partitions.js';
import type { Poisoned, TaskPlan } from '../../../store/reactive/reactive.js';
import { aroundLocks } from '../../connection/around-locks.js';
import type { Sql } from '../../connection/connection.js';
import { run } from '../../connection/errors.js';
import { readable } from '../../connection/values.js';
import { Arguments, pinned } from '../../tables/arguments.js';
import { isolated } from './isolate.js';
import { docId, found, given, holds, namesOf, NOW, RUNNING } from '../place.js';
import type { Shape } from '../../tables/shape.js';
import { keyAt, projected } from './snapshot.js';
import type { SqlSources } from '../sources.js';
import { inTurn, turnOf, withShape } from '../statements.js';
import { conditionOf } from '../../tables/translate.js';

export const whereOf = ({ task }: TaskPlan): string => `reactiveTask(${JSON.stringify(task)})`;

export const running: string = `k.status in ${RUNNING}`;
/** The task was planned for a row of another table with the same key: nothing that it has of that row counts. */
const moved = `(coalesce(k.source, (select h.origin from home h where h.task = k.task), excluded.source) <> excluded.source)`;
const changed = `(k.last_observed_values is distinct from excluded.last_observed_values or ${moved})`;
const triggered: string = `(not k.matched or ${changed})`;
const whenTriggered = (column: string, value: string): string =>
  `${column} = case when ${triggered} then ${value} else k.${column} end`;

/** A running task keeps the key under which it was claimed until its end. */
const REKEYED = [
  `limit_key = case when ${running} then k.limit_key else excluded.limit_key end`,
  `next_limit_key = case when ${running} then excluded.limit_key end`,
];
/** Whether an upsert of a task changes anything. */
export const written = ({ limitKey }: TaskPlan): string =>
  `${triggered} or ${running}${limitKey === undefined ? '' : ' or k.limit_key is distinct from excluded.limit_key'}`;

const unlessMoved = (column: string): string =>
  `${column} = case when ${moved} then null else k.${column} end`;

/**
 * What happens to a task that exists (`excluded` is what a new one would be). Nothing, unless the row begins to match
 * or its snapshot changed: writing a row without changing it leaves no trace.
 */
export function changedTask({ debounce, resetRetriesOnDataChange, limitKey }: TaskPlan): string {
  const ms = (value: number): string => `${String(value)} * interval '1 millisecond'`;
  // A debounce that has begun continues. The delay of a retry is not one.
  const since = `(case when k.status in ('pending', 'processing_dirty') then coalesce(k.waiting_since, ${NOW}) else ${NOW} end)`;
  const settled = `least(${NOW} + ${ms(debounce.waitMs)}, ${since} + ${ms(debounce.maxWaitMs)})`;
  // Start a new sequence of attempts, unless the policy keeps the old one, and with it its delay. A running attempt may
  // yet fail, so it counts as the beginning of a sequence.
  const fresh = resetRetriesOnDataChange
    ? 'true'
    : `(${moved} or (not ${running} and k.first_error_at is null))`;
  const due = `greatest(${settled}, ${NOW}, k.deferred_until, case when ${fresh} then null else k.scheduled_at end)`;
  return [
    whenTriggered('status', `case when ${running} then 'processing_dirty' else 'pending' end`),
    whenTriggered('last_observed_values', 'excluded.last_observed_values'),
    'matched = true',
    ...(limitKey === undefined ? [] : REKEYED),
    whenTriggered('waiting_since', since),
    whenTriggered('scheduled_at', due),
    whenTriggered(
      'initial_scheduled_at',
      `case when k.deferred_until is null then ${due} else k.initial_scheduled_at end`,
    ),
    // The running attempt was claimed for other values; its `getDocument` must not return these instead.
    `overtaken = k.overtaken or (${running} and ${changed})`,
    whenTriggered('attempts', `case when ${fresh} then 0 else k.attempts end`),
    whenTriggered('first_error_at', `case when ${fresh} then null else k.first_error_at end`),
    whenTriggered('updated_at', NOW),
    whenTriggered('trace', 'excluded.trace'),
    whenTriggered('source', 'excluded.source'),
    whenTriggered('source_doc_id', 'excluded.source_doc_id'),
    ...['last_error', 'fail_kind', 'last_success', 'last_finalized_at', 'execution_history'].map(unlessMoved),
    'unplannable = false',
    // The running attempt may be about to skip because of a state that has passed. Its settlement must know that the
    // row was looked at since.
    `touched = k.touched or (${running} and not ${triggered})`,
  ].join(',\n      ');
}

/** The statement that plans a batch of one task. Returns the keys whose task another transaction holds. */
export function planStatement(
  sql: Sql,
  shape: Shape,
  plan: TaskPlan,
  keys: readonly string[],
  skipLocked: boolean,
  trace?: TraceContext,
): { readonly text: string; readonly args: Arguments } {
  const { tasks, states, picked } = namesOf(sql);
  const args = new Arguments();
  const where = whereOf(plan);
  const task = args.add(plan.task, 'text');
  const source = args.add(shape.name, 'text');
  const kept = trace === undefined ? 'null' : args.add(JSON.stringify(trace), 'jsonb');
  const due = `${NOW} + ${String(plan.debounce.waitMs)} * interval '1 millisecond'`;
  const condition = holds(shape, conditionOf(where, shape, plan.filter, args));
  const free = `, there as materialized (
      select k.key from ${tasks} k where k.task = ${task} and k.key in (select key from needed)
    ), free as materialized (
      select k.key from ${tasks} k where k.task = ${task} and k.key in (select key from needed) for update skip locked
    ), blocked as materialized (select key from there where key not in (select key from free))`;
  const snapshot = projected(where, shape, plan.watchProjection, 'f.doc', args, picked);
  const key = plan.limitKey === undefined ? '' : keyAt(plan.limitKey, 's.snapshot', args);
  const keyed = (text: string): string => (key === '' ? '' : text);
  const text = `with ${given(shape, args.json(keys))}, ${found(shape)}, home as materialized (
      select task, origin from ${states} where task = ${task}
    ), seen as materialized (
      select f.key, ${docId(shape, '(f.doc)')} as id, ${snapshot} as snapshot
      from found f where ${condition}
    ), needed as materialized (
      select s.*${keyed(`, ${key} as limit_key`)} from seen s left join ${tasks} k on k.task = ${task} and k.key = s.key
      where k.key is null or not k.matched or k.last_observed_values is distinct from s.snapshot or ${running}
        or coalesce(k.source, (select origin from home), ${source}) <> ${source}${keyed(` or k.limit_key is distinct from ${key}`)}
    )${skipLocked ? free : ''}, written as (
      insert into ${tasks} as k (task, key, source_doc_id, status, scheduled_at, initial_scheduled_at, waiting_since,
        matched, last_observed_values, created_at, updated_at, trace, source${keyed(', limit_key')})
      select ${task}, n.key, n.id, 'pending', ${due}, ${due}, ${NOW}, true, n.snapshot, ${NOW}, ${NOW}, ${kept}, ${source}${keyed(', n.limit_key')}
      from needed n ${skipLocked ? 'where n.key not in (select key from blocked)' : ''} order by n.key
      on conflict (task, key) do update set
      ${changedTask(plan)}
      where ${written(plan)}
    )
    select to_json(key)::text from ${skipLocked ? 'blocked' : 'needed where false'}`;
  return { text, args };
}

const HELD = 'Its task is held by an open transaction.';
export const blockedKeys = (keys: readonly string[]): readonly Poisoned[] =>
  keys.map((key) => ({ id: key, key, reason: HELD, blocked: true }));

export async function plan(
  sources: SqlSources,
  of: TaskPlan,
  ids: readonly unknown[],
  limitMs: number,
  partition: Partition,
  trace?: TraceContext,
): Promise<readonly Poisoned[]> {
  const { sql } = sources;
  const once = (shape: Shape, some: readonly string[]): Promise<readonly string[]> =>
    aroundLocks<readonly string[]>(
      (skipLocked) => {
        const { text, args } = planStatement(sql, shape, of, some, skipLocked, trace);
        return inTurn(sql, [turnOf(of.task, partition)], limitMs, (on) =>
          pinned<string>(on, namesOf(sql).pinned, text, args),
        );
      },
      () => some,
    );
  return run('plan', () =>
    withShape(sources, of.source, async (shape) => {
      // A table that is gone has no rows. `unmatch` and `clean` take care of its tasks.
      if (shape === undefined) return [];
      const held: string[] = [];
      const choked = await isolated(sources.suspects, of.task, ids as readonly string[], async (some) => {
        const blocked = await once(shape, some);
        held.push(...blocked);
        return blocked.length < some.length;
      });
      return [
        ...blockedKeys(held),
        ...choked.map(({ item, reason, blocked }) => ({ id: item, key: item, reason, blocked })),
      ];
    }),
  );
}

/** Ends the tasks of rows that cannot be planned. A running task is left alone: its own settlement says more. */
export async function park(sources: SqlSources, of: TaskPlan, poisoned: readonly Poisoned[]): Promise<void> {
  const { sql } = sources;
  const { tasks, pinned: name } = namesOf(sql);
  await run('park', () =>
    withShape(sources, of.source, async (shape) => {
      if (shape === undefined) return;
      const args = new Arguments();
      const reasons = args.json(
        poisoned.map(({ id, reason }) => ({
          key: id,
          reason: `It could not be planned: ${readable(reason)}`,
        })),
      );
      const text = `with ${given(shape, args.json(poisoned.map(({ id }) => id)))}, ${found(shape)}, written as (
          insert into ${tasks} as k (task, key, source_doc_id, status, scheduled_at, initial_scheduled_at, matched,
            created_at, updated_at, last_finalized_at, last_error, source, unplannable)
          select ${args.add(of.task, 'text')}, f.key, ${docId(shape, '(f.doc)')}, 'failed', ${NOW}, ${NOW}, false,
            ${NOW}, ${NOW}, ${NOW}, r.reason, ${args.add(shape.name, 'text')}, true
          from found f join json_to_recordset(${reasons}) as r(key text, reason text) on r.key = f.key
          order by f.key
          on conflict (task, key) do update set status = 'failed', matched = false, updated_at = ${NOW},
            last_finalized_at = ${NOW}, locked_at = null, last_error = excluded.last_error,
            source = excluded.source, source_doc_id = excluded.source_doc_id, unplannable = true
          where not (${running})
        ) select null::text where false`;
      await pinned(sql.driver, name, text, args);
    }),
  );
}
