/** Queries that people ask about tasks: counts, failures, pauses, and the documents of tasks. */
import type { Document } from 'mongodb';
import type { FailureLine } from '../../../core/records/failure-groups.js';
import { TASK_STATUSES, type TaskRecord, type TaskStatus } from '../../../core/records/task.js';
import type { Source, TaskCounts, TaskStats } from '../../../store/reactive/reactive.js';
import { run, type Mongo } from '../../context.js';
import { OURS, type TaskKey } from '../document.js';
import type { Located } from './select.js';
import type { Place, MongodbSources } from '../sources.js';

/** Counts stop at the cap, so that a million finished tasks cost no more than the cap. */
const taskCountPipeline = (task: string, status: TaskStatus, cap: number): Document[] => [
  { $match: { task: { $eq: task }, status } },
  { $limit: cap + 1 },
  { $group: { _id: status, count: { $sum: 1 } } },
];

const duePipeline = (task: string): Document[] => [
  { $match: { ...OURS, task: { $eq: task }, status: 'pending' } },
  { $sort: { scheduledAt: 1 } },
  { $limit: 1 },
  { $project: { _id: 'due', at: '$scheduledAt' } },
];

async function statsOf({ tasks }: Place, task: string, cap: number): Promise<TaskStats> {
  const branches = TASK_STATUSES.map((status) => taskCountPipeline(task, status, cap));
  const rows = await tasks
    .aggregate([
      ...duePipeline(task),
      ...branches.map((pipeline) => ({ $unionWith: { coll: tasks.collectionName, pipeline } })),
    ])
    .toArray();
  const counted = new Map(rows.map((row) => [row._id as unknown as string, Number(row['count'] ?? 0)]));
  const found = (status: TaskStatus): number => counted.get(status) ?? 0;
  const due: unknown = rows.find((row) => (row._id as unknown) === 'due')?.['at'];
  return {
    task,
    counts: Object.fromEntries(
      TASK_STATUSES.map((status) => [status, Math.min(cap, found(status))]),
    ) as TaskCounts,
    capped: TASK_STATUSES.filter((status) => found(status) > cap),
    ...(due instanceof Date ? { nextDue: due } : {}),
  };
}

export async function stats(
  sources: MongodbSources,
  located: Located,
  cap: number,
): Promise<readonly TaskStats[]> {
  // The tasks share the cap, but each is counted up to at least 1,000, or the cap if that is less.
  const each = Math.max(Math.min(cap, 1_000), Math.floor(cap / Math.max(1, located.length)));
  return run('count tasks', () =>
    Promise.all(located.map(({ task, source }) => statsOf(sources.place(source), task, each))),
  );
}

export async function failures(
  sources: MongodbSources,
  located: Located,
  limit: number,
): Promise<readonly FailureLine[]> {
  return run('read failures', async () => {
    const found = await Promise.all(
      located.map(async ({ task, source }) => {
        const rows = await sources
          .place(source)
          .tasks.find(
            { task: { $eq: task }, status: 'failed' },
            {
              projection: { lastError: 1, lastFinalizedAt: 1, updatedAt: 1 },
              sort: { scheduledAt: -1, _id: -1 },
              limit,
            },
          )
          .toArray();
        return rows.map((row) => lineOf(task, row));
      }),
    );
    return found
      .flat()
      .sort((a, b) => b.at.getTime() - a.at.getTime())
      .slice(0, limit);
  });
}

const lineOf = (task: string, row: Document): FailureLine => ({
  name: task,
  message: String(row['lastError'] ?? ''),
  at: (row['lastFinalizedAt'] ?? row['updatedAt']) as Date,
});

export async function document(
  sources: MongodbSources,
  record: TaskRecord,
  source: Source,
): Promise<{ collection: string; document: unknown } | undefined> {
  const { id } = record.key as TaskKey;
  const found = await run('read a document', () =>
    sources.place(source).source.findOne({ _id: id as never }, { promoteLongs: true, promoteBuffers: false }),
  );
  return found === null ? undefined : { collection: source.collection, document: found };
}

export async function pauses({ globals }: Mongo): Promise<ReadonlyMap<string, Date | null>> {
  const holds = { $or: [{ until: null }, { $expr: { $gt: ['$until', '$$NOW'] } }] };
  const rows = await run('read pauses', () => globals.find({ kind: 'pause-task', ...holds }).toArray());
  return new Map(
    rows.map((row) => [String(row['name']), row['until'] instanceof Date ? row['until'] : null]),
  );
}
