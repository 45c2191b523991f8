import { BSONRegExp, type Document, type Filter } from 'mongodb';
import type { TaskRecord } from '../../core/task.js';
import type { Source, TaskFilter, TaskPageRequest } from '../../store/reactive.js';
import { run } from '../context.js';
import { isTimeLimit } from '../errors.js';
import { resetPipeline } from './clean.js';
import { fromText, textOf, toRecord } from './document.js';
import { lookUp, nameOfSource, type Place, type Sources } from './sources.js';

/** Combinations that no index serves end after this long, with what was found. */
const LIMIT_MS = 10_000;
const BATCH = 1_000;

/** Tasks with where they live. */
export type Located = readonly { readonly task: string; readonly source: Source }[];

const escaped = (text: string): RegExp => new RegExp(text.replace(/[.*+?^${}()|[\]\\]/gu, '\\$&'), 'u');

/** The part of a filter that the task itself answers. */
function ownFilter(filter: TaskFilter, tasks: readonly string[]): Filter<Document> {
  const { status, errorMessage, hasError, _id } = filter;
  const parts: Filter<Document>[] = [{ task: { $in: tasks } }];
  if (status !== undefined) parts.push({ status: { $in: status } });
  if (errorMessage !== undefined)
    parts.push({ lastError: errorMessage instanceof RegExp ? errorMessage : escaped(errorMessage) });
  if (hasError !== undefined)
    parts.push({ lastError: hasError ? { $type: 'string' } : { $not: { $type: 'string' } } });
  if (_id !== undefined) parts.push({ _id: { $in: _id as never[] } });
  return { $and: parts };
}

/** Tasks of documents that match a query of the user's. */
function sourceStages(place: Place, filter: TaskFilter): Document[] {
  if (filter.sourceDocFilter === undefined) return [];
  return [
    lookUp(place, filter.sourceDocFilter as Document),
    { $match: { found: { $ne: [] } } },
    { $unset: 'found' },
  ];
}

/** A query by the document's id alone is answered by the task's own key. */
function byId(filter: TaskFilter, tasks: readonly string[]): Document | undefined {
  const query = filter.sourceDocFilter;
  if (typeof query !== 'object' || query === null) return undefined;
  const [[field, id] = [], ...others] = Object.entries(query as Record<string, unknown>);
  if (field !== '_id' || others.length > 0) return undefined;
  const isQuery = (value: object): boolean =>
    value instanceof RegExp ||
    value instanceof BSONRegExp ||
    Object.keys(value).some((key) => key.startsWith('$'));
  const plain = typeof id !== 'object' || id === null || !isQuery(id);
  return plain ? { _id: { $in: tasks.map((task) => ({ task, id })) } } : undefined;
}

function groups(sources: Sources, filter: TaskFilter, located: Located): { place: Place; tasks: string[] }[] {
  const wanted = located.filter(({ task }) => filter.task?.includes(task) ?? true);
  const map = new Map<string, { place: Place; tasks: string[] }>();
  for (const { task, source } of wanted) {
    const group = map.get(nameOfSource(source)) ?? { place: sources.place(source), tasks: [] };
    group.tasks.push(task);
    map.set(nameOfSource(source), group);
  }
  return [...map.values()];
}

function stages(place: Place, filter: TaskFilter, tasks: readonly string[]): Document[] {
  const own = ownFilter(filter, tasks);
  const key = byId(filter, tasks);
  if (key !== undefined) return [{ $match: { $and: [own, key] } }];
  return [{ $match: own }, ...sourceStages(place, filter)];
}

function afterStage({ field, direction, after }: TaskPageRequest): Document[] {
  if (after === undefined) return [];
  const compare = direction === 1 ? '$gt' : '$lt';
  const beyond = { [field]: after.at, _id: { [compare]: fromText(after.key) } };
  return [{ $match: { $or: [{ [field]: { [compare]: after.at } }, beyond] } }];
}

export async function find(
  sources: Sources,
  filter: TaskFilter,
  page: TaskPageRequest,
  located: Located,
): Promise<{ tasks: readonly TaskRecord[]; more: boolean; partial: boolean }> {
  const { field, direction, limit, skip } = page;
  const wanted = skip + limit + 1;
  return run('find tasks', async () => {
    let partial = false;
    const found: TaskRecord[] = [];
    for (const { place, tasks } of groups(sources, filter, located)) {
      const pipeline = [
        ...stages(place, filter, tasks),
        ...afterStage(page),
        { $sort: { [field]: direction, _id: direction } },
        { $limit: wanted },
      ];
      try {
        const rows = await place.tasks
          .aggregate(pipeline, { maxTimeMS: LIMIT_MS, batchSize: wanted + 1 })
          .toArray();
        found.push(...rows.map(toRecord));
      } catch (error) {
        if (!isTimeLimit(error)) throw error;
        partial = true;
      }
    }
    // A task lives in one collection, so ties are in the server's order already; across tasks their names decide.
    found.sort((a, b) => (a[field].getTime() - b[field].getTime() || byName(a, b)) * direction);
    const items = found.slice(skip, skip + limit);
    return { tasks: items, more: found.length > skip + limit, partial };
  });
}

/** As the server orders the keys of different tasks: the name comes first in them, and is compared by its bytes. */
const byName = (a: TaskRecord, b: TaskRecord): number =>
  a.name === b.name ? 0 : Buffer.compare(Buffer.from(a.name), Buffer.from(b.name));

export const cursorKey = (record: TaskRecord): string => textOf(record.key);

export async function count(sources: Sources, filter: TaskFilter, located: Located): Promise<number> {
  return run('count tasks', async () => {
    let total = 0;
    for (const { place, tasks } of groups(sources, filter, located)) {
      const [row] = await place.tasks.aggregate([...stages(place, filter, tasks), { $count: 'n' }]).toArray();
      total += Number(row?.['n'] ?? 0);
    }
    return total;
  });
}

/** In batches of ids, so that a reset of millions is no single statement. */
export async function retryMany(sources: Sources, filter: TaskFilter, located: Located): Promise<number> {
  return run('retry tasks', async () => {
    let modified = 0;
    for (const { place, tasks } of groups(sources, filter, located)) {
      const cursor = place.tasks.aggregate<{ _id: unknown }>(
        [...stages(place, filter, tasks), { $project: { _id: 1 } }],
        { batchSize: BATCH },
      );
      let keys: unknown[] = [];
      const flush = async (): Promise<void> => {
        if (keys.length === 0) return;
        const still = { $and: [ownFilter(filter, tasks), { _id: { $in: keys as never[] } }] };
        const { modifiedCount } = await place.tasks.updateMany(still, [...resetPipeline]);
        modified += modifiedCount;
        keys = [];
      };
      for await (const row of cursor) {
        keys.push(row._id);
        if (keys.length >= BATCH) await flush();
      }
      await flush();
    }
    return modified;
  });
}
