/** Translates a filter for tasks: conditions on the task itself, and conditions on its document. */
import { BSONRegExp, type Document, type Filter } from 'mongodb';
import { OptionError, reasonOf, StoreError } from '../../../core/errors.js';
import type { Source, TaskFilter } from '../../../store/reactive/reactive.js';
import { run } from '../../context.js';
import { isTransient } from '../../errors.js';
import { findExact } from '../../exact.js';
import { fieldsQuery, rangeQuery, spelled } from '../../fields.js';
import { fromText, textOf, type TaskKey } from '../document.js';
import { checkSourceFilter } from '../plan/filter.js';
import { lookUp, nameOfSource, type Place, type MongodbSources } from '../sources.js';

/** Tasks with their sources. */
export type Located = readonly { readonly task: string; readonly source: Source }[];

/** A filter, translated for one task collection. */
export interface Selection {
  readonly place: Place;
  readonly tasks: readonly string[];
  /** The conditions on the task itself. */
  readonly own: Filter<Document>;
  /** Stages that keep the tasks whose document matches the user's query. */
  readonly joined: readonly Document[];
  /** The user's query, if the source has to be queried separately: no lookup can use the source's collation. */
  readonly apart?: Document;
}

const escaped = (text: string): RegExp => new RegExp(text.replace(/[.*+?^${}()|[\]\\]/gu, '\\$&'), 'iu');

function ownFilter(filter: TaskFilter, tasks: readonly string[]): Filter<Document> {
  const { status, errorMessage, hasError, _id, keys, source } = filter;
  const parts: Filter<Document>[] = [{ task: { $in: tasks } }];
  if (status !== undefined) parts.push({ status: { $in: status } });
  if (errorMessage !== undefined)
    parts.push({ lastError: errorMessage instanceof RegExp ? errorMessage : escaped(errorMessage) });
  if (hasError !== undefined)
    parts.push({ lastError: hasError ? { $type: 'string' } : { $not: { $type: 'string' } } });
  if (_id !== undefined) parts.push({ _id: { $in: _id as never[] } });
  for (const time of ['scheduledAt', 'createdAt', 'updatedAt'] as const) {
    const range = filter[time];
    if (range !== undefined) parts.push({ [time]: rangeQuery(range) });
  }
  if (keys !== undefined) parts.push({ _id: { $in: keys.flatMap(keyOfText) as never[] } });
  const sourceId = source?.['_id'];
  if (sourceId !== undefined) {
    const ids = tasks.flatMap((task) => spelled(sourceId).map((id) => ({ task, id })));
    parts.push({ _id: { $in: ids as never[] } });
  }
  return { $and: parts };
}

/** Text that is not the key of a task matches nothing; it must never be read as an expression. */
function keyOfText(text: string): readonly TaskKey[] {
  try {
    const { task, id, ...others } = fromText(text) as TaskKey;
    return typeof task === 'string' && Object.keys(others).length === 0 ? [{ task, id }] : [];
  } catch {
    return [];
  }
}

/** Returns the query on the documents, without the id, which is matched against the keys of the tasks. */
function queryOnSource({ sourceDocFilter, source }: TaskFilter): Document | undefined {
  if (source === undefined) return sourceDocFilter as Document | undefined;
  const { _id, ...others } = source;
  return Object.keys(others).length === 0 ? undefined : fieldsQuery(others);
}

/** Returns the id if the query asks for nothing else. */
function idAlone(query: Document): { readonly id: unknown } | undefined {
  const [[field, id] = [], ...others] = Object.entries(query) as [string, unknown][];
  if (field !== '_id' || others.length > 0) return undefined;
  const isQuery = (value: object): boolean =>
    value instanceof RegExp ||
    value instanceof BSONRegExp ||
    Object.keys(value).some((key) => key.startsWith('$'));
  return typeof id !== 'object' || id === null || !isQuery(id) ? { id } : undefined;
}

/** Returns the id as given, and as the source spells it if its collation takes the two for equal. */
async function spellings({ source, collation }: Place, id: unknown): Promise<readonly unknown[]> {
  if (collation === undefined) return [id];
  const options = { projection: { _id: 1 }, collation: collation as never };
  const same = await findExact(source, { _id: id as never }, options).toArray();
  return [id, ...same.map((row): unknown => row['_id'])];
}

async function selectIn(place: Place, tasks: readonly string[], filter: TaskFilter): Promise<Selection> {
  const own = ownFilter(filter, tasks);
  const query = queryOnSource(filter);
  if (query === undefined) return { place, tasks, own, joined: [] };
  const only = idAlone(query);
  if (only !== undefined) {
    // The keys of the tasks contain the id, so this also finds tasks whose document is gone.
    const ids = await spellings(place, only.id);
    const keys = tasks.flatMap((task) => ids.map((id) => ({ task, id })));
    return { place, tasks, own: { $and: [own, { _id: { $in: keys as never[] } }] }, joined: [] };
  }
  if (place.collation !== undefined) return { place, tasks, own, joined: [], apart: query };
  const joined = [lookUp(place, query), { $match: { found: { $ne: [] } } }, { $unset: 'found' }];
  return { place, tasks, own, joined };
}

/** Returns one selection per task collection. */
async function select(
  sources: MongodbSources,
  filter: TaskFilter,
  located: Located,
): Promise<readonly Selection[]> {
  const groups = new Map<string, { source: Source; tasks: string[] }>();
  for (const { task, source } of located) {
    if (filter.task?.includes(task) === false) continue;
    const group = groups.get(nameOfSource(source)) ?? { source, tasks: [] };
    group.tasks.push(task);
    groups.set(nameOfSource(source), group);
  }
  return Promise.all(
    [...groups.values()].map(async ({ source, tasks }) =>
      selectIn(await sources.open(source), tasks, filter),
    ),
  );
}

/** Runs `work` on all selections. If the server refuses the user's query, the error names the option. */
export async function selected<T>(
  what: string,
  sources: MongodbSources,
  filter: TaskFilter,
  located: Located,
  work: (selections: readonly Selection[]) => Promise<T>,
): Promise<T> {
  const query = filter.sourceDocFilter as Document | undefined;
  checkSourceFilter(what, query);
  try {
    return await run(what, async () => work(await select(sources, filter, located)));
  } catch (error) {
    if (query !== undefined && error instanceof StoreError && !error.transient)
      for (const { source } of located) await judge(what, sources.place(source), query);
    throw error;
  }
}

/** Throws if the server refuses the query. The server only parses it; no document is read. */
async function judge(what: string, { source }: Place, query: Document): Promise<void> {
  try {
    await source
      .aggregate([{ $match: { $expr: false } }, { $match: query }], { maxTimeMS: 10_000 })
      .toArray();
  } catch (error) {
    if (isTransient(error)) return;
    const reason = reasonOf(error);
    throw new OptionError(
      `${what}: MongoDB refuses sourceDocFilter: ${reason}. It must be a query such as { vip: true }; put an ` +
        'expression into { $expr: … }.',
      { cause: error },
    );
  }
}

/** Yields lists of at most `size`. */
export async function* inBatches<T>(rows: AsyncIterable<T>, size: number): AsyncGenerator<T[]> {
  let batch: T[] = [];
  for await (const row of rows) {
    batch.push(row);
    if (batch.length < size) continue;
    yield batch;
    batch = [];
  }
  if (batch.length > 0) yield batch;
}

/**
 * Yields the rows whose document matches the user's query, checked in batches. Yields every row if the statement that
 * found them has already checked that.
 */
export async function* taken(
  { place, apart }: Selection,
  rows: AsyncIterable<Document>,
  size: number,
  limit: () => { readonly maxTimeMS?: number } = () => ({}),
): AsyncGenerator<Document> {
  if (apart === undefined) {
    yield* rows;
    return;
  }
  const idOf = (row: Document): unknown => (row['_id'] as TaskKey).id;
  const options = { projection: { _id: 1 }, collation: place.collation as never };
  for await (const batch of inBatches(rows, size)) {
    const query = { $and: [{ _id: { $in: batch.map(idOf) as never[] } }, apart] };
    const found = await findExact(place.source, query, { ...options, ...limit() }).toArray();
    const there = new Set(found.map((row) => textOf(row['_id'])));
    yield* batch.filter((row) => there.has(textOf(idOf(row))));
  }
}
