/**
 * Plans a batch for several tasks of one table in one statement: each row is read once, all filters are evaluated on
 * it, and the tasks of all that match are written. Tasks whose row is gone or no longer matches are marked in the same
 * statement.
 */
import type { TraceContext } from '../../../core/tracer.js';
import type { Partition } from '../../../store/reactive/partitions.js';
import type { PlanBatch, TaskPlan } from '../../../store/reactive/reactive.js';
import type { Sql } from '../../connection/connection.js';
import { Arguments, pinned } from '../../tables/arguments.js';
import { quoted } from '../../schema/names.js';
import type { Shape } from '../../tables/shape.js';
import { conditionOf } from '../../tables/translate.js';
import { docId, found, given, namesOf, NOW } from '../place.js';
import type { SqlSources } from '../sources.js';
import { inTurn, turnOf, withShape } from '../statements.js';
import { changedTask, running, whereOf, written } from './plan.js';
import { keyAt, projected } from './snapshot.js';

function groupsOf(plans: readonly TaskPlan[], keyOf: (plan: TaskPlan) => unknown): TaskPlan[][] {
  const groups = new Map<string, TaskPlan[]>();
  for (const plan of plans) {
    const key = JSON.stringify([keyOf(plan)]);
    groups.set(key, [...(groups.get(key) ?? []), plan]);
  }
  return [...groups.values()];
}

/**
 * The names of those tasks whose filter a row of `found` matches. Their conditions share one sub-select, in which only
 * the columns of the table are in scope; a sub-select for each would cost more than the conditions.
 */
function matching(shape: Shape, plans: readonly TaskPlan[], args: Arguments): string {
  const names = plans.map((plan) => {
    const condition = conditionOf(whereOf(plan), shape, plan.filter, args);
    const name = args.add(plan.task, 'text');
    return condition === undefined ? name : `case when (${condition}\n) then ${name} end`;
  });
  return `(select array_remove(array[${names.join(', ')}], null) from (select (f.doc).*) as ${quoted(shape.table)})`;
}

/** A SQL expression: the key that the task `t.task` has by a snapshot; null for tasks without one. */
function keysIn(plans: readonly TaskPlan[], snapshot: string, args: Arguments): string {
  const branches = plans.flatMap(({ task, limitKey }) =>
    limitKey === undefined ? [] : [`when ${args.add(task, 'text')} then ${keyAt(limitKey, snapshot, args)}`],
  );
  return branches.length === 0 ? 'null::text' : `case t.task ${branches.join(' ')} end`;
}

/** Marks the tasks of these keys that count as matching, or could not be planned, and are not among `seen`. */
function unmatching(tasks: string, names: string, keys: string): string {
  const counted = '(k.matched or k.unplannable)';
  return `, gone as materialized (
      select k.task, k.key from ${tasks} k
      where k.task = any(${names}) and k.key in (select key from json_array_elements_text(${keys}) as e(key))
        and ${counted} and not exists (select from seen s where s.task = k.task and s.key = k.key)
      order by k.task, k.key
    ), unmatched as (
      update ${tasks} k set matched = false, unplannable = false
      from gone g where k.task = g.task and k.key = g.key and ${counted}
    )`;
}

/**
 * The statement. Rows with the same projection share their snapshot, and tasks with the same options an upsert. The
 * upserts and the marks touch different tasks, since a task is either among `seen` or not.
 */
export function togetherStatement(
  sql: Sql,
  shape: Shape,
  plans: readonly TaskPlan[],
  { present, left }: PlanBatch,
  trace?: TraceContext,
): { readonly text: string; readonly args: Arguments } {
  const { tasks, states, picked } = namesOf(sql);
  const args = new Arguments();
  const listed = (of: readonly TaskPlan[]): string =>
    `array[${of.map(({ task }) => args.add(task, 'text')).join(', ')}]`;
  const keys = args.json([...new Set([...present, ...left])]);
  const names = listed(plans);
  const source = args.add(shape.name, 'text');
  const kept = trace === undefined ? 'null' : args.add(JSON.stringify(trace), 'jsonb');
  const views = groupsOf(plans, ({ watchProjection }) => watchProjection);
  const judged = views.map((view, at) => `${matching(shape, view, args)} as tasks${String(at)}`);
  const isKeyed = plans.some(({ limitKey }) => limitKey !== undefined);
  // `offset 0`: the snapshot is computed once per row, and not once per task.
  const seen = views.map((view, at) => {
    const [first] = view;
    const { watchProjection } = first as TaskPlan;
    const snapshot = projected(whereOf(first as TaskPlan), shape, watchProjection, 'j.doc', args, picked);
    const key = isKeyed ? `, ${keysIn(view, 's.snapshot', args)} as limit_key` : '';
    return `select s.key, s.id, t.task, s.snapshot${key} from (
        select j.key, j.id, j.tasks${String(at)} as tasks, ${snapshot} as snapshot
        from judged j where cardinality(j.tasks${String(at)}) > 0 offset 0
      ) s cross join lateral unnest(s.tasks) as t(task)`;
  });
  const upserts = groupsOf(plans, ({ debounce, resetRetriesOnDataChange, limitKey }) => [
    debounce.waitMs,
    debounce.maxWaitMs,
    resetRetriesOnDataChange,
    limitKey !== undefined,
  ]).map((group, at, { length }) => {
    const [first] = group as [TaskPlan];
    const keyed = (text: string): string => (first.limitKey === undefined ? '' : text);
    const due = `${NOW} + ${String(first.debounce.waitMs)} * interval '1 millisecond'`;
    return `, written${String(at)} as (
      insert into ${tasks} as k (task, key, source_doc_id, status, scheduled_at, initial_scheduled_at, waiting_since,
        matched, last_observed_values, created_at, updated_at, trace, source${keyed(', limit_key')})
      select n.task, n.key, n.id, 'pending', ${due}, ${due}, ${NOW}, true, n.snapshot, ${NOW}, ${NOW}, ${kept}, ${source}${keyed(', n.limit_key')}
      from needed n ${length === 1 ? '' : `where n.task = any(${listed(group)})`} order by n.task, n.key
      on conflict (task, key) do update set
      ${changedTask(first)}
      where ${written(first)}
    )`;
  });
  const text = `with ${given(shape, keys)}, ${found(shape)}, home as materialized (
      select task, origin from ${states} where task = any(${names})
    ), judged as materialized (
      select f.key, ${docId(shape, '(f.doc)')} as id, f.doc, ${judged.join(', ')} from found f
    ), seen as materialized (${seen.join(' union all ')}), needed as materialized (
      select s.* from seen s left join ${tasks} k on k.task = s.task and k.key = s.key
      where k.key is null or not k.matched or k.last_observed_values is distinct from s.snapshot or ${running}
        or coalesce(k.source, (select h.origin from home h where h.task = s.task), ${source}) <> ${source}
        ${isKeyed ? 'or (s.limit_key is not null and k.limit_key is distinct from s.limit_key)' : ''}
    )${upserts.join('')}${left.length === 0 ? '' : unmatching(tasks, names, args.json(left))}
    select null::text where false`;
  return { text, args };
}

/** Returns false, with nothing written, if the statement fails: planning each task alone finds out which one fails. */
export async function planTogether(
  sources: SqlSources,
  plans: readonly TaskPlan[],
  batch: PlanBatch,
  limitMs: number,
  partition: Partition,
  trace?: TraceContext,
): Promise<boolean> {
  const { sql, suspects } = sources;
  const [{ source }] = plans as readonly [TaskPlan];
  const names = plans.map(({ task }) => task);
  const turns = names.map((task) => turnOf(task, partition));
  try {
    const planned = await withShape(sources, source, async (shape) => {
      if (shape === undefined) return false;
      const { text, args } = togetherStatement(sql, shape, plans, batch, trace);
      await inTurn(sql, turns, limitMs, (on) => pinned(on, namesOf(sql).pinned, text, args));
      return true;
    });
    const keys = [...batch.present, ...batch.left] as readonly string[];
    if (planned) for (const task of names) suspects.succeeded(task, keys);
    return planned;
  } catch {
    return false;
  }
}
