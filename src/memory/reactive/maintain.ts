/** Pages of documents and tasks for reconciliation, the cleanup of tasks, and fresh sequences of attempts. */
import type { Partition } from '../../store/reactive/partitions.js';
import type { Cleaned, IdPage, Source, TaskPlan } from '../../store/reactive/reactive.js';
import { isIn } from './partition.js';
import { isRunning, type TaskRow } from './tasks/row.js';
import type { TaskTable } from './tasks/table.js';
import { compareValues, fromText, textOf } from './query/values.js';

function pageOf(ids: readonly unknown[], after: string | undefined, limit: number): IdPage {
  const start = after === undefined ? undefined : fromText(after);
  const rest = ids.filter((id) => after === undefined || compareValues(id, start) > 0).sort(compareValues);
  const page = rest.slice(0, limit);
  return { ids: page, ...(rest.length > limit ? { after: textOf(page.at(-1)) } : {}) };
}

export async function documents(
  table: TaskTable,
  { collection }: Source,
  after: string | undefined,
  limit: number,
  partition: Partition,
): Promise<IdPage> {
  const ids = table.context
    .collection(collection)
    .all()
    .map(({ _id }) => _id)
    .filter((id) => isIn(partition, id));
  return pageOf(ids, after, limit);
}

export async function known(
  table: TaskTable,
  plan: TaskPlan,
  after: string | undefined,
  limit: number,
  partition: Partition,
): Promise<IdPage> {
  const ids = table.of(plan).map(({ sourceDocId }) => sourceDocId);
  return pageOf(
    ids.filter((id) => isIn(partition, id)),
    after,
    limit,
  );
}

/**
 * True if `keepFor` has passed and the document is gone or, depending on `deleteWhen`, no longer matches. A document on
 * which the filter fails keeps its task.
 */
function isOrphan(table: TaskTable, plan: TaskPlan, row: TaskRow): boolean {
  const { deleteWhen, keepForMs } = plan.cleanup;
  if (deleteWhen === 'never' || isRunning(row)) return false;
  const last = Math.max(row.updatedAt.getTime(), row.lastFinalizedAt?.getTime() ?? 0);
  if (last > table.context.now().getTime() - keepForMs) return false;
  const { outcome } = table.look(plan, row.sourceDocId);
  return outcome === 'gone' || (outcome === 'left' && deleteWhen !== 'sourceDocumentDeleted');
}

export async function clean(
  table: TaskTable,
  plan: TaskPlan,
  scope: { ids: readonly unknown[] } | { after?: string; limit: number },
  partition: Partition,
): Promise<Cleaned> {
  const page: IdPage = 'ids' in scope ? scope : await known(table, plan, scope.after, scope.limit, partition);
  const rows = page.ids.flatMap((id) => table.row(plan, id) ?? []);
  const orphans = rows.filter((row) => isOrphan(table, plan, row));
  for (const { key } of orphans) table.rows.delete(key);
  return { deleted: orphans.length, ...(page.after === undefined ? {} : { after: page.after }) };
}

/** Makes tasks due now; those that run will run again. Skips tasks whose document could not be planned. */
export function reset(table: TaskTable, rows: readonly TaskRow[]): number {
  const now = table.context.now();
  const plannable = rows.filter(({ unplannable }) => !unplannable);
  for (const row of plannable)
    table.keep(
      Object.assign(row, {
        status: isRunning(row) ? ('processing_dirty' as const) : ('pending' as const),
        attempts: 0,
        scheduledAt: now,
        initialScheduledAt: now,
        waitingSince: now,
        updatedAt: now,
        firstErrorAt: undefined,
        deferredUntil: undefined,
      }),
    );
  return plannable.length;
}

export async function reprocess(
  table: TaskTable,
  plan: TaskPlan,
  which: 'reprocess_failed' | 'reprocess_all',
  partition: Partition,
): Promise<number> {
  const meant = table
    .of(plan)
    .filter(({ sourceDocId }) => isIn(partition, sourceDocId))
    .filter(({ status }) => status === 'failed' || (which === 'reprocess_all' && status !== 'pending'));
  return reset(table, meant);
}
