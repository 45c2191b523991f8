import { BSON, type Document, type Filter } from 'mongodb';
import type { FailureLine } from '../../core/records/failure-groups.js';
import { FINISHED, hasEnded, JOB_STATUSES, type JobRecord, type JobStatus } from '../../core/records/job.js';
import type { Ends, Found, JobFilter, NameCounts, Page, StatusCounts } from '../../store/port.js';
import { literal, run, type Mongo } from '../context.js';
import { keysFor, toRecord, type JobDocument } from './document.js';
import { refuseCount } from '../errors.js';
import { containing, fieldsQuery, rangeQuery, readPartly, TIME_LIMIT_MS } from '../fields.js';
import { ANY_DATE } from '../indexes.js';

/**
 * Builds a query from an allow-list of fields. The values are already checked, and none is ever read as an operator.
 */
function toQuery(filter: JobFilter): Filter<JobDocument> {
  const { ids, name, status, uniqueKey, createdAt, updatedAt, nextRunAt, error, data } = filter;
  return {
    ...(ids === undefined ? {} : { _id: { $in: ids.flatMap(keysFor) } }),
    ...(name === undefined ? {} : { name: { $in: [...name] } }),
    ...(status === undefined ? {} : { status: { $in: [...status] } }),
    ...(uniqueKey === undefined ? {} : keyQuery({ $in: [...uniqueKey], $type: 'string' })),
    ...(createdAt === undefined ? {} : { createdAt: rangeQuery(createdAt) }),
    ...(updatedAt === undefined ? {} : { updatedAt: rangeQuery(updatedAt) }),
    ...(nextRunAt === undefined ? {} : { nextRunAt: rangeQuery(nextRunAt) }),
    ...(error === undefined ? {} : { failReason: containing(error) }),
    ...(data === undefined ? {} : fieldsQuery(data, 'data')),
  };
}

/** A successor that waits has its key under another name. */
const keyQuery = (keys: object): Filter<JobDocument> => ({
  $or: [{ uniqueKey: keys }, { successorKey: keys }],
});

export async function get(mongo: Mongo, id: string): Promise<JobRecord | undefined> {
  const filter = { _id: { $in: keysFor(id) } };
  const [job] = await run('read job', () => mongo.jobs.find(filter).limit(1).toArray());
  return job && toRecord(job);
}

export async function ends(mongo: Mongo, ids: readonly string[]): Promise<Ends> {
  const ended = { $in: ['$status', [...FINISHED]] };
  const pipeline = [
    { $match: { _id: { $in: ids.flatMap(keysFor) } } },
    { $replaceWith: { $cond: [ended, '$$ROOT', { _id: '$_id', status: '$status' }] } },
  ];
  const jobs = await run('read jobs', () => mongo.jobs.aggregate<JobDocument>(pipeline).toArray());
  return {
    ended: jobs.filter(hasEnded).map(toRecord),
    live: jobs.filter((job) => !hasEnded(job)).map(({ _id }) => String(_id)),
  };
}

/** Matches jobs after the cursor: later in the sort, ties by id, whatever the types of the ids. */
function after(page: Page): Filter<JobDocument> {
  if (page.after === undefined) return {};
  const { at, key } = page.after;
  const id: unknown = (BSON.EJSON.parse(key, { relaxed: false }) as { key: unknown }).key;
  const [past, upTo] = page.direction === 1 ? ['$gt', '$gte'] : ['$lt', '$lte'];
  return {
    $and: [
      { [page.field]: { [upTo]: at } },
      {
        $or: [{ [page.field]: { [past]: at } }, { $expr: { [past]: ['$_id', literal(id)] } }],
      },
    ],
  };
}

/** Adds what an index needs before it can serve the sort, without changing the result. */
function helped(query: Filter<JobDocument>, page: Page): Filter<JobDocument> {
  const named = query['name'] !== undefined;
  if (named && query['status'] === undefined && page.field === 'createdAt')
    return { ...query, status: { $in: [...JOB_STATUSES] } };
  const range = query['nextRunAt'] as Document | undefined;
  return named && page.field === 'nextRunAt' ? { ...query, nextRunAt: { ...ANY_DATE, ...range } } : query;
}

/**
 * Adds all names to a search for pending jobs by due time, because the index orders due times within each name. The
 * names are read from the index of all jobs, one key each; an index of pending jobs alone would be read key by key.
 */
async function withNames(mongo: Mongo, filter: JobFilter, page: Page): Promise<JobFilter> {
  const pendingOnly = filter.status?.length === 1 && filter.status[0] === 'pending';
  if (page.field !== 'nextRunAt' || !pendingOnly || filter.name !== undefined) return filter;
  const names = await run('find', () => mongo.jobs.aggregate<{ _id: string }>(namesPipeline).toArray());
  return { ...filter, name: names.map(({ _id }) => _id) };
}

/** Returns the query that `find` sends, for `find` and for tests of its query plan. */
export function findQuery(filter: JobFilter, page: Page): Filter<JobDocument> {
  return { ...helped(toQuery(filter), page), ...after(page) };
}

export async function find(mongo: Mongo, filter: JobFilter, page: Page): Promise<Found> {
  const { field, direction, limit } = page;
  const named = await withNames(mongo, filter, page);
  const cursor = mongo.jobs.find(findQuery(named, page), {
    sort: { [field]: direction, _id: direction },
    limit: limit + 1,
    batchSize: limit + 2,
    maxTimeMS: TIME_LIMIT_MS,
  });
  const { rows, partial } = await run('find', () => readPartly(cursor));
  return { jobs: rows.slice(0, limit).map(toRecord), more: rows.length > limit, partial };
}

export async function count(mongo: Mongo, filter: JobFilter, most: number): Promise<number> {
  const limit = Number.isFinite(most) ? { limit: most, maxTimeMS: TIME_LIMIT_MS } : {};
  return run('count', () =>
    mongo.jobs
      .countDocuments(toQuery(filter), limit)
      .catch((error: unknown) => refuseCount('count', TIME_LIMIT_MS, error)),
  );
}

/** Reads one index key and a few fields per failed job. */
export async function failures(mongo: Mongo, limit: number, name?: string): Promise<readonly FailureLine[]> {
  const { filter, sort } = failuresQuery(name);
  const projection = { _id: 0, name: 1, failReason: 1, updatedAt: 1 };
  const rows = await run('read failures', () =>
    mongo.jobs.find(filter, { projection, sort, limit }).toArray(),
  );
  return rows.map((row) => ({
    name: row.name,
    message: String(row['failReason'] ?? ''),
    at: row['updatedAt'] as Date,
  }));
}

/** Failures of one name are ordered by creation, newest first, because an index has that order. */
function failuresQuery(name?: string): { filter: Filter<JobDocument>; sort: Record<string, -1> } {
  return name === undefined
    ? { filter: { status: 'failed' }, sort: { updatedAt: -1, _id: -1 } }
    : { filter: { name: { $eq: name }, status: 'failed' }, sort: { createdAt: -1, _id: -1 } };
}

/**
 * Streams matching jobs without their payload. A job that the caller changes leaves the filter, so none comes twice.
 */
export async function* each(
  mongo: Mongo,
  filter: JobFilter,
  size: number,
): AsyncGenerator<readonly JobRecord[]> {
  const projection = { data: 0, result: 0, progress: 0, logs: 0, history: 0 };
  const cursor = mongo.jobs.find(toQuery(filter), { projection, batchSize: size });
  try {
    for (let batch: JobRecord[] = []; ;) {
      const row = await run('find', () => cursor.next());
      if (row !== null) batch.push(toRecord(row));
      if (batch.length === size || (row === null && batch.length > 0)) {
        yield batch;
        batch = [];
      }
      if (row === null) return;
    }
  } finally {
    await cursor.close();
  }
}

/** All names, one index key each. */
export const namesPipeline: Document[] = [{ $sort: { name: 1 } }, { $group: { _id: '$name' } }];

/** Reads one index key per name. Counts stop at the cap, so that a million finished jobs cost no more than the cap. */
export async function stats(
  mongo: Mongo,
  cap: number,
): Promise<{ names: readonly NameCounts[]; total: number }> {
  return run('stats', async () => {
    const total = await mongo.jobs.estimatedDocumentCount();
    const names = await mongo.jobs.aggregate<{ _id: string }>(namesPipeline).toArray();
    // The names share the cap, but each is counted up to at least 1,000.
    const each = Math.max(1_000, Math.floor(cap / Math.max(1, names.length)));
    const counted = await Promise.all(names.map(({ _id: name }) => countName(mongo, name, each)));
    return { names: counted.sort((a, b) => (a.name < b.name ? -1 : 1)), total };
  });
}

export function countPipeline(name: string, status: JobStatus, cap: number): Document[] {
  return [
    { $match: { name: { $eq: name }, status } },
    { $limit: cap + 1 },
    { $group: { _id: status, count: { $sum: 1 } } },
  ];
}

async function countName(mongo: Mongo, name: string, cap: number): Promise<NameCounts> {
  const [first = [], ...rest] = JOB_STATUSES.map((status) => countPipeline(name, status, cap));
  const pipeline = [
    ...first,
    ...rest.map((branch) => ({ $unionWith: { coll: mongo.jobs.collectionName, pipeline: branch } })),
  ];
  const rows = await mongo.jobs.aggregate<{ _id: JobStatus; count: number }>(pipeline).toArray();
  const found = new Map(rows.map((row) => [row._id, row.count]));
  const counts = Object.fromEntries(
    JOB_STATUSES.map((status) => [status, Math.min(cap, found.get(status) ?? 0)]),
  );
  return {
    name,
    counts: counts as StatusCounts,
    capped: JOB_STATUSES.filter((status) => (found.get(status) ?? 0) > cap),
  };
}
