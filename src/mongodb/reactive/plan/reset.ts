/** Starts fresh sequences of attempts: requested by hand, or by a new version of a handler. */
import type { Document } from 'mongodb';
import type { Partition } from '../../../store/reactive/partitions.js';
import type { TaskFilter, TaskPlan } from '../../../store/reactive/reactive.js';
import { run } from '../../context.js';
import { aggregateExact } from '../../exact.js';
import { markAll } from '../../limits/keys/repair.js';
import { OURS } from '../document.js';
import { keyedTasks } from '../keyed.js';
import { inPartition } from '../partition.js';
import { inBatches, selected, taken, type Located, type Selection } from '../query/select.js';
import type { MongodbSources } from '../sources.js';
import { keysOf } from './walk.js';

const BATCH = 1_000;

/** Leaves out tasks that could not be planned: there is nothing to run until the document or the definition changes. */
const RESETTABLE: Document = { ...OURS, unplannable: { $ne: true } };

/** Makes a task due now; a running one runs again. */
const resetPipeline: readonly Document[] = [
  {
    $set: {
      status: {
        $cond: [{ $in: ['$status', ['processing', 'processing_dirty']] }, 'processing_dirty', 'pending'],
      },
      attempts: 0,
      scheduledAt: '$$NOW',
      initialScheduledAt: '$$NOW',
      waitingSince: '$$NOW',
      updatedAt: '$$NOW',
      firstErrorAt: null,
    },
  },
  { $unset: 'deferredUntil' },
];

export async function reprocess(
  sources: MongodbSources,
  plan: TaskPlan,
  which: 'reprocess_failed' | 'reprocess_all',
  partition: Partition,
): Promise<number> {
  const { tasks } = sources.place(plan.source);
  const statuses =
    which === 'reprocess_failed' ? ['failed'] : ['failed', 'completed', 'processing', 'processing_dirty'];
  const own = inPartition(partition, '$_id.id');
  const filter = { task: plan.task, status: { $in: statuses }, ...RESETTABLE, ...own };
  const { modifiedCount } = await run('reprocess', () => tasks.updateMany(filter, [...resetPipeline]));
  if (modifiedCount > 0) await run('reprocess', () => markAll(sources.mongo, keyedTasks(tasks, plan.task)));
  return modifiedCount;
}

/**
 * Returns the keys of one task in key order, in which a reset moves nothing; any other index would return tasks again
 * after their reset. If completed tasks are excluded, few are left: they are found by status, then sorted.
 */
function keysIn(
  { place, own, joined }: Selection,
  filter: TaskFilter,
  task: string,
): AsyncIterable<Document> {
  const meant = { $match: { $and: [own, RESETTABLE, { _id: keysOf(task) }] } };
  const few = filter.status?.includes('completed') === false;
  const order = [...(few ? [{ $project: { sourceDocId: 1 } }] : []), { $sort: { _id: 1 } }];
  return aggregateExact(place.tasks, [meant, ...order, ...joined, { $project: { _id: 1 } }], {
    batchSize: BATCH,
    allowDiskUse: true,
    ...(few ? {} : { hint: { _id: 1 } }),
  });
}

/** Resets in batches of ids, so that a reset of millions is not a single statement. */
async function resetIn(selection: Selection, filter: TaskFilter): Promise<number> {
  const { place, own, tasks } = selection;
  let modified = 0;
  for (const task of tasks) {
    const keys = taken(selection, keysIn(selection, filter, task), BATCH);
    for await (const batch of inBatches(keys, BATCH)) {
      const still = { $and: [own, RESETTABLE, { _id: { $in: batch.map((row) => row['_id'] as never) } }] };
      modified += (await place.tasks.updateMany(still, [...resetPipeline])).modifiedCount;
    }
  }
  return modified;
}

export async function retryMany(
  sources: MongodbSources,
  filter: TaskFilter,
  located: Located,
): Promise<number> {
  return selected('retry tasks', sources, filter, located, async (selections) => {
    let modified = 0;
    for (const selection of selections) {
      const reset = await resetIn(selection, filter);
      modified += reset;
      const { place, tasks } = selection;
      if (reset > 0) for (const task of tasks) await markAll(sources.mongo, keyedTasks(place.tasks, task));
    }
    return modified;
  });
}
