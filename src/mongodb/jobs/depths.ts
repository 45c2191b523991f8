import type { Document } from 'mongodb';
import { capFor, type Depth, type DepthRequest } from '../../store/port.js';
import { run, type Mongo } from '../context.js';
import { SCHEMA_VERSION } from './document.js';
import { countPipeline, namesPipeline } from './find.js';
import { ANY_DATE } from '../indexes.js';

const STATUSES = ['pending', 'processing', 'failed'] as const;

/** A row of the result: a count and, for due jobs, how long the first has been due. */
interface Row {
  readonly _id: string;
  readonly count: number;
  readonly lagMs?: number;
}

/** Reads the head of one name's queue in index order: how many jobs are due, and how long the first has been. */
export const dueDepthPipeline = (name: string, cap: number): Document[] => [
  {
    $match: {
      name: { $eq: name },
      status: 'pending',
      v: SCHEMA_VERSION,
      nextRunAt: ANY_DATE,
      $expr: { $lte: ['$nextRunAt', '$$NOW'] },
    },
  },
  { $sort: { name: 1, status: 1, nextRunAt: 1 } },
  { $limit: cap },
  { $group: { _id: 'due', count: { $sum: 1 }, first: { $min: '$nextRunAt' } } },
  { $project: { count: 1, lagMs: { $subtract: ['$$NOW', '$first'] } } },
];

export function depthOf(name: string, rows: readonly Row[], statuses: readonly string[], cap: number): Depth {
  const found = new Map(rows.map((row) => [row._id, row]));
  return {
    name,
    counts: Object.fromEntries(
      statuses.map((status) => [status, Math.min(cap, found.get(status)?.count ?? 0)]),
    ),
    due: found.get('due')?.count ?? 0,
    lagMs: Math.max(0, ...rows.map(({ lagMs = 0 }) => lagMs)),
  };
}

/** As in `stats`: one index key per name, and counts that stop at the cap. */
export async function depths(mongo: Mongo, { cap, readPreference }: DepthRequest): Promise<readonly Depth[]> {
  const where = readPreference === undefined ? {} : { readPreference: readPreference as 'nearest' };
  return run('count', async () => {
    const names = await mongo.jobs.aggregate<{ _id: string }>(namesPipeline, where).toArray();
    const each = capFor(cap, names.length);
    return Promise.all(
      names.map(async ({ _id: name }) => {
        const counts = STATUSES.map((status) => ({
          $unionWith: { coll: mongo.jobs.collectionName, pipeline: countPipeline(name, status, each) },
        }));
        const rows = await mongo.jobs
          .aggregate<Row>([...dueDepthPipeline(name, each), ...counts], { hint: 'tidemill_due', ...where })
          .toArray();
        return depthOf(name, rows, STATUSES, each);
      }),
    );
  });
}
