/** Deletes tasks that have outlived their rows, and resets finished ones. */
import type { Partition } from '../../../store/reactive/partitions.js';
import type { Cleaned, TaskPlan } from '../../../store/reactive/reactive.js';
import { run } from '../../connection/errors.js';
import { rows } from '../../connection/rows.js';
import { Arguments, pinned } from '../../tables/arguments.js';
import { isolated } from './isolate.js';
import { known } from './pages.js';
import { inPartition } from '../partition.js';
import { namesOf, NOW, RUNNING } from '../place.js';
import type { Shape } from '../../tables/shape.js';
import type { SqlSources } from '../sources.js';
import { withShape } from '../statements.js';
import { stillThere } from './unmatch.js';

/**
 * Deletes tasks whose row is gone or, depending on `deleteWhen`, does not match, if they do not run and were neither
 * changed nor run for `keepFor`. Rows that another transaction holds are left for the next time.
 */
function cleanStatement(
  sources: SqlSources,
  shape: Shape | undefined,
  plan: TaskPlan,
  keys: readonly string[],
): { readonly text: string; readonly args: Arguments } {
  const { tasks } = namesOf(sources.sql);
  const { deleteWhen, keepForMs } = plan.cleanup;
  const args = new Arguments();
  const filter = deleteWhen === 'sourceDocumentDeleted' ? undefined : plan.filter;
  const still = stillThere(shape, plan, keys, filter, args);
  const task = args.add(plan.task, 'text');
  const keep = args.add(String(keepForMs), 'double precision');
  const text = `with ${still}, over as materialized (
      select k.key from ${tasks} k join given g on g.key = k.key
      where k.task = ${task} and k.status not in ${RUNNING} and k.key not in (select key from still)
        and greatest(k.updated_at, k.last_finalized_at) <= statement_timestamp() - ${keep} * interval '1 millisecond'
      order by k.key for update of k skip locked
    ), gone as (
      delete from ${tasks} k where k.task = ${task} and k.key in (select key from over) returning k.key
    ) select to_json(key)::text from gone`;
  return { text, args };
}

async function deleteOrphans(sources: SqlSources, plan: TaskPlan, ids: readonly unknown[]): Promise<number> {
  if (plan.cleanup.deleteWhen === 'never' || ids.length === 0) return 0;
  return withShape(sources, plan.source, async (shape) => {
    let deleted = 0;
    // If the filter fails on a row, its task says so, and is kept.
    await isolated(sources.suspects, `clean ${plan.task}`, ids as readonly string[], async (some) => {
      const { text, args } = cleanStatement(sources, shape, plan, some);
      const gone = await pinned<string>(sources.sql.driver, namesOf(sources.sql).pinned, text, args);
      deleted += gone.length;
      return true;
    });
    return deleted;
  });
}

export async function clean(
  sources: SqlSources,
  plan: TaskPlan,
  scope: { ids: readonly unknown[] } | { after?: string; limit: number },
  partition: Partition,
): Promise<Cleaned> {
  return run('clean up', async () => {
    if ('ids' in scope) return { deleted: await deleteOrphans(sources, plan, scope.ids) };
    const page = await known(sources, plan, scope.after, scope.limit, partition);
    const deleted = await deleteOrphans(sources, plan, page.ids);
    return { deleted, ...(page.after === undefined ? {} : { after: page.after }) };
  });
}

/** Starts a new sequence of attempts, due now. A running task runs again afterwards. */
export const RESET: string = `status = case when status in ${RUNNING} then 'processing_dirty' else 'pending' end,
  attempts = 0, scheduled_at = ${NOW}, initial_scheduled_at = ${NOW}, waiting_since = ${NOW}, updated_at = ${NOW},
  first_error_at = null, deferred_until = null`;

/** Excludes tasks that could not be planned: there is nothing to run until their row or definition changes. */
export const RESETTABLE = 'not (unplannable and not matched)';

export async function reprocess(
  { sql }: SqlSources,
  { task }: TaskPlan,
  which: 'reprocess_failed' | 'reprocess_all',
  partition: Partition,
): Promise<number> {
  const statuses = which === 'reprocess_failed' ? `status = 'failed'` : `status <> 'pending'`;
  const text = `with reset as (
      update ${namesOf(sql).tasks} set ${RESET} where task = $1::text and ${statuses} and ${RESETTABLE}
        and ${inPartition(partition, 'key')} returning 1
    ) select count(*)::text as json from reset`;
  const [count = 0] = await run('reprocess', () => rows<number>(sql.driver, text, [task]));
  return count;
}
