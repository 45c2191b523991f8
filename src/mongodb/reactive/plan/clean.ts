/** Deletes tasks that have been kept long enough. Reads ids only, in batches. */
import type { Document } from 'mongodb';
import type { Partition } from '../../../store/reactive/partitions.js';
import type { Cleaned, TaskPlan } from '../../../store/reactive/reactive.js';
import { run } from '../../context.js';
import { aggregateExact, findExact } from '../../exact.js';
import { keyOf, OURS, textOf, type TaskKey } from '../document.js';
import { queryOf } from './filter.js';
import { bisect } from './bisect.js';
import { type Place, type MongodbSources, withoutDocument } from '../sources.js';
import { known } from './walk.js';

/** Tasks of the known version that do not run. */
const AT_REST: Document = { ...OURS, status: { $in: ['pending', 'completed', 'failed'] } };

/** Neither changed nor run for `keepForMs`. */
const old = (keepForMs: number): Document => ({
  $lte: [
    { $max: ['$updatedAt', { $ifNull: ['$lastFinalizedAt', '$updatedAt'] }] },
    { $subtract: ['$$NOW', keepForMs] },
  ],
});

/** Of these keys, those whose document is gone or does not match the query. */
function orphansPipeline(
  plan: TaskPlan,
  place: Place,
  keys: readonly TaskKey[],
  query: Document,
): Document[] {
  return [
    { $match: { _id: { $in: keys }, ...AT_REST, $expr: old(plan.cleanup.keepForMs) } },
    ...withoutDocument(place, query),
  ];
}

/**
 * A source with a collation of its own is queried separately, because keys of tasks are compared under the simple one.
 */
async function orphansOf(
  place: Place,
  plan: TaskPlan,
  ids: readonly unknown[],
  query: Document,
): Promise<readonly TaskKey[]> {
  if (place.collation === undefined) {
    const keys = ids.map((id) => keyOf(plan.task, id));
    const rows = await aggregateExact(place.tasks, orphansPipeline(plan, place, keys, query)).toArray();
    return rows.map((row) => row['_id'] as TaskKey);
  }
  const found = await findExact(
    place.source,
    { $and: [{ _id: { $in: ids as never[] } }, query] },
    { projection: { _id: 1 }, collation: place.collation as never },
  ).toArray();
  const still = new Set(found.map((row) => textOf(row['_id'])));
  return ids.filter((id) => !still.has(textOf(id))).map((id) => keyOf(plan.task, id));
}

async function deleteOrphans(place: Place, plan: TaskPlan, ids: readonly unknown[]): Promise<number> {
  const { deleteWhen, keepForMs } = plan.cleanup;
  if (deleteWhen === 'never' || ids.length === 0) return 0;
  const query = deleteWhen === 'sourceDocumentDeleted' ? {} : queryOf(plan);
  const orphans: TaskKey[] = [];
  // A document on which the filter fails has a task that says so; that task is kept.
  await bisect(ids, async (some) => {
    orphans.push(...(await orphansOf(place, plan, some, query)));
  });
  if (orphans.length === 0) return 0;
  // A document that came back meanwhile was planned anew, so its task is no longer old.
  const { deletedCount } = await place.tasks.deleteMany({
    _id: { $in: orphans as never[] },
    ...AT_REST,
    $expr: old(keepForMs),
  });
  return deletedCount;
}

export async function clean(
  sources: MongodbSources,
  plan: TaskPlan,
  scope: { ids: readonly unknown[] } | { after?: string; limit: number },
  partition: Partition,
): Promise<Cleaned> {
  return run('clean up', async () => {
    const place = await sources.open(plan.source);
    if ('ids' in scope) return { deleted: await deleteOrphans(place, plan, scope.ids) };
    const page = await known(sources, plan, scope.after, scope.limit, partition);
    const deleted = await deleteOrphans(place, plan, page.ids);
    return { deleted, ...(page.after === undefined ? {} : { after: page.after }) };
  });
}
