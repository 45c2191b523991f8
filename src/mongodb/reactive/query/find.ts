import type { Document, Filter } from 'mongodb';
import { TASK_STATUSES, type TaskRecord } from '../../../core/records/task.js';
import type { TaskFilter, TaskPageRequest } from '../../../store/reactive/reactive.js';
import { isTimeLimit, refuseCount } from '../../errors.js';
import { aggregateExact, findExact } from '../../exact.js';
import { fromText, textOf, toRecord } from '../document.js';
import { selected, taken, type Located, type Selection } from './select.js';
import type { MongodbSources } from '../sources.js';

/** A query that no index serves stops after this long: `find` returns what it has, and a count fails. */
const LIMIT_MS = 10_000;
const BATCH = 1_000;

function afterStage({ field, direction, after }: TaskPageRequest): Document[] {
  if (after === undefined) return [];
  const [past, upTo] = direction === 1 ? ['$gt', '$gte'] : ['$lt', '$lte'];
  const beyond = { [field]: after.at, _id: { [past]: fromText(after.key) } };
  // The first condition bounds the index; the `$or` alone would not.
  return [{ $match: { [field]: { [upTo]: after.at }, $or: [{ [field]: { [past]: after.at } }, beyond] } }];
}

/** Adds what the index needs before it can serve the sort, without changing the result. */
const helped = (own: Filter<Document>, filter: TaskFilter, field: string): Filter<Document> =>
  filter.status === undefined && field === 'scheduledAt'
    ? { $and: [own, { status: { $in: [...TASK_STATUSES] } }] }
    : own;

/** Returns what is left of the time limit, for calls that share it. */
function limitFromNow(): () => { readonly maxTimeMS: number } {
  const end = performance.now() + LIMIT_MS;
  return () => ({ maxTimeMS: Math.max(1, Math.ceil(end - performance.now())) });
}

/** Yields up to `wanted` tasks of one collection, in order. */
async function* pageOf(
  selection: Selection,
  filter: TaskFilter,
  page: TaskPageRequest,
  wanted: number,
): AsyncGenerator<TaskRecord> {
  const { place, own, joined, apart } = selection;
  const { field, direction } = page;
  const pipeline = [
    { $match: helped(own, filter, field) },
    ...afterStage(page),
    ...joined,
    { $sort: { [field]: direction, _id: direction } },
    ...(apart === undefined ? [{ $limit: wanted }] : []),
  ];
  const limit = limitFromNow();
  const rows = aggregateExact(place.tasks, pipeline, { ...limit(), batchSize: wanted + 1 });
  let count = 0;
  for await (const row of taken(selection, rows, wanted, limit)) {
    yield toRecord(row);
    count += 1;
    if (count === wanted) return;
  }
}

export async function find(
  sources: MongodbSources,
  filter: TaskFilter,
  page: TaskPageRequest,
  located: Located,
): Promise<{ tasks: readonly TaskRecord[]; more: boolean; partial: boolean }> {
  const { field, direction, limit, skip } = page;
  return selected('find tasks', sources, filter, located, async (selections) => {
    let partial = false;
    const found: TaskRecord[] = [];
    for (const selection of selections) {
      try {
        for await (const record of pageOf(selection, filter, page, skip + limit + 1)) found.push(record);
      } catch (error) {
        if (!isTimeLimit(error)) throw error;
        partial = true;
      }
    }
    // A task lives in one collection, so its ties are already in the server's order; across tasks, the names decide.
    found.sort((a, b) => (a[field].getTime() - b[field].getTime() || byName(a, b)) * direction);
    const items = found.slice(skip, skip + limit);
    return { tasks: items, more: found.length > skip + limit, partial };
  });
}

/** Orders tasks as the server orders their keys: the name comes first in a key, and is compared by its bytes. */
const byName = (a: TaskRecord, b: TaskRecord): number =>
  a.name === b.name ? 0 : Buffer.compare(Buffer.from(a.name), Buffer.from(b.name));

export const cursorKey = (record: TaskRecord): string => textOf(record.key);

async function countIn(selection: Selection, most: number): Promise<number> {
  const { place, own, joined, apart } = selection;
  if (apart === undefined) {
    const limit = Number.isFinite(most) ? [{ $limit: most }] : [];
    const [row] = await place.tasks
      .aggregate(
        [{ $match: own }, ...joined, ...limit, { $count: 'n' }],
        Number.isFinite(most) ? { maxTimeMS: LIMIT_MS } : {},
      )
      .toArray()
      .catch((error: unknown) => refuseCount('count tasks', LIMIT_MS, error));
    return Number(row?.['n'] ?? 0);
  }
  return countApart(selection, most).catch((error: unknown) => refuseCount('count tasks', LIMIT_MS, error));
}

async function countApart(selection: Selection, most: number): Promise<number> {
  const { place, own } = selection;
  const limit = Number.isFinite(most) ? limitFromNow() : () => ({});
  const keys = findExact(place.tasks, own, { projection: { _id: 1 }, batchSize: BATCH, ...limit() });
  let count = 0;
  for await (const _row of taken(selection, keys, BATCH, limit)) {
    count += 1;
    if (count >= most) break;
  }
  return count;
}

export async function count(
  sources: MongodbSources,
  filter: TaskFilter,
  located: Located,
  most: number,
): Promise<number> {
  return selected('count tasks', sources, filter, located, async (selections) => {
    let total = 0;
    for (const selection of selections) if (total < most) total += await countIn(selection, most - total);
    return total;
  });
}
