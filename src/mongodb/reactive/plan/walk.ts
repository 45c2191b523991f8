/** Walks over all documents of a source, or all tasks of a name: ids only, one page at a time. */
import { MaxKey, MinKey, type Document } from 'mongodb';
import type { Partition } from '../../../store/reactive/partitions.js';
import type { IdPage, Source, TaskPlan } from '../../../store/reactive/reactive.js';
import { run } from '../../context.js';
import { findExact } from '../../exact.js';
import { fromText, keyOf, textOf, type TaskKey } from '../document.js';
import { inPartition } from '../partition.js';
import type { MongodbSources } from '../sources.js';

/** Every id lies between these. */
const BOTTOM = new MinKey();
const TOP = new MaxKey();

/** In a query: the keys of all tasks of a name. */
export const keysOf = (task: string): Document => ({ $gte: keyOf(task, BOTTOM), $lte: keyOf(task, TOP) });

/** Returns the next ids of a source, in the order of its `_id` index, which holds every type. */
export async function documents(
  sources: MongodbSources,
  source: Source,
  after: string | undefined,
  limit: number,
  partition: Partition,
): Promise<IdPage> {
  const place = sources.place(source);
  const { source: collection } = place;
  return run('read ids', async () => {
    if (after === undefined) {
      // A full pass often follows a drop: either collection may have been recreated.
      sources.forget(source);
      await sources.mend(place);
    }
    const own = inPartition(partition, '$_id');
    const cursor = findExact(collection, own, { projection: { _id: 1 }, batchSize: limit + 2 })
      .sort({ _id: 1 })
      .hint({ _id: 1 })
      .limit(limit + 1);
    // A comparison would stop at the end of one type; index bounds do not.
    if (after !== undefined) cursor.min({ _id: fromText(after) });
    const ids = (await cursor.toArray()).map((row): unknown => row['_id']);
    // With a lower bound, the server leaves out the greatest key of all.
    if (after !== undefined && ids.length <= limit)
      ids.push(...(await collection.find({ _id: TOP, ...own } as never).toArray()).map((row) => row._id));
    // The bound is inclusive.
    const rest = ids.filter((id) => textOf(id) !== after);
    const last = rest.at(-1);
    return {
      ids: rest.slice(0, limit),
      ...(ids.length > limit && last !== undefined
        ? { after: textOf(rest[Math.min(rest.length, limit) - 1]) }
        : {}),
    };
  });
}

/** Returns the next source ids of a task, in the order of its keys. */
export async function known(
  sources: MongodbSources,
  of: TaskPlan,
  after: string | undefined,
  limit: number,
  partition: Partition,
): Promise<IdPage> {
  const { tasks } = sources.place(of.source);
  return run('read task ids', async () => {
    const from = after === undefined ? keyOf(of.task, BOTTOM) : (fromText(after) as Document);
    const cursor = findExact(tasks, inPartition(partition, '$_id.id'), {
      projection: { _id: 1 },
      batchSize: limit + 2,
    })
      .sort({ _id: 1 })
      .hint({ _id: 1 })
      .min({ _id: from })
      // Exclusive, and greater than the key of the greatest id.
      .max({ _id: { ...keyOf(of.task, TOP), more: 1 } })
      .limit(limit + 1);
    const keys = (await cursor.toArray()).map((row) => row['_id'] as TaskKey);
    const rest = keys.filter((key) => textOf(key) !== after);
    const page = rest.slice(0, limit);
    const last = page.at(-1);
    return {
      ids: page.map(({ id }) => id),
      ...(keys.length > limit && last !== undefined ? { after: textOf(last) } : {}),
    };
  });
}

/** Returns the collection's own estimate, which costs nothing. */
export const size = (sources: MongodbSources, source: Source): Promise<number> =>
  run('count documents', () => sources.place(source).source.estimatedDocumentCount());
