import type { Document } from 'mongodb';
import { TASK_STATUSES } from '../../../core/records/task.js';
import { capFor, type Depth, type DepthRequest } from '../../../store/port.js';
import { run } from '../../context.js';
import { depthOf } from '../../jobs/depths.js';
import { queueHead } from '../claim.js';
import { OURS } from '../document.js';
import type { Located } from './select.js';
import type { MongodbSources } from '../sources.js';

const STATUSES = TASK_STATUSES.filter((status) => status !== 'completed');
/** The lag is taken from this many of the tasks that are due first; a deferral further back is not seen. */
const LOOKED_AT = 1_000;

const counted = (name: string): Document => ({ $group: { _id: name, count: { $sum: 1 } } });

/** Each pipeline reads a range of an index, in its order, and stops at its limit. */
export const depthPipelines = (task: string, cap: number): readonly Document[][] => [
  [
    { $match: { ...OURS, task: { $eq: task }, status: 'pending' } },
    { $sort: { scheduledAt: 1, _id: 1 } },
    { $limit: LOOKED_AT },
    { $group: { _id: 'first', at: { $min: '$initialScheduledAt' } } },
    { $project: { lagMs: { $subtract: ['$$NOW', '$at'] } } },
  ],
  [...queueHead(task, cap), counted('due')],
  ...STATUSES.map((status) => [
    { $match: { task: { $eq: task }, status } },
    { $limit: cap },
    counted(status),
  ]),
];

export async function depths(
  sources: MongodbSources,
  { cap, readPreference }: DepthRequest,
  located: Located,
): Promise<readonly Depth[]> {
  const where = readPreference === undefined ? {} : { readPreference: readPreference as 'nearest' };
  const each = capFor(cap, located.length);
  return run('count tasks', () =>
    Promise.all(
      located.map(async ({ task, source }) => {
        const { tasks } = sources.place(source);
        const [first = [], ...rest] = depthPipelines(task, each);
        const unions = rest.map((pipeline) => ({ $unionWith: { coll: tasks.collectionName, pipeline } }));
        const rows = await tasks.aggregate([...first, ...unions], where).toArray();
        const plain = rows.map((row) => ({
          _id: String(row['_id']),
          count: Number(row['count'] ?? 0),
          lagMs: Number(row['lagMs'] ?? 0),
        }));
        return depthOf(task, plain, STATUSES, each);
      }),
    ),
  );
}
