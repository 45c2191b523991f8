/** Source documents to tasks: the server evaluates filter and projection, compares with the snapshot, and writes. */
import type { Document } from 'mongodb';
import { OptionError, reasonOf } from '../../../core/errors.js';
import type { TraceContext } from '../../../core/tracer.js';
import type { Poisoned, TaskPlan } from '../../../store/reactive/reactive.js';
import { literal, run } from '../../context.js';
import { isOtherCollation, isTransient } from '../../errors.js';
import { findExact } from '../../exact.js';
import { keyOf, OURS, textOf } from '../document.js';
import { markPlanned } from '../keyed.js';
import { queryOf } from './filter.js';
import { bisect } from './bisect.js';
import { COUNTED, LEFT, leaveStage, snapshotStages, termsOf, writeStages } from './stages.js';
import { type Place, type MongodbSources, withoutDocument } from '../sources.js';

/** The statement that plans a batch of one task. */
export function planPipeline(
  plan: TaskPlan,
  place: Place,
  ids: readonly unknown[],
  query: Document,
  trace?: TraceContext,
): Document[] {
  return [
    { $match: { $and: [{ _id: { $in: ids } }, query] } },
    ...snapshotStages(plan),
    ...writeStages(termsOf(plan), place, trace),
  ];
}

/**
 * Returns the ids that match. A filter follows the source's collation, but snapshots are compared under the simple one.
 * If the source has a collation, matching ids are found first, and then planned without a filter.
 */
async function matching(place: Place, plan: TaskPlan, ids: readonly unknown[]): Promise<readonly unknown[]> {
  const query = { $and: [{ _id: { $in: ids as never[] } }, queryOf(plan)] };
  const rows = await findExact(place.source, query, {
    projection: { _id: 1 },
    ...(place.collation === undefined ? {} : { collation: place.collation as never }),
  }).toArray();
  return rows.map((row): unknown => row['_id']);
}

async function planOnce(
  sources: MongodbSources,
  plan: TaskPlan,
  ids: readonly unknown[],
  limits: Limits,
  trace?: TraceContext,
): Promise<void> {
  const place = await sources.open(plan.source);
  const collated = place.collation !== undefined;
  const known = collated && plan.filter !== undefined ? await matching(place, plan, ids) : ids;
  if (known.length === 0) return;
  const query = collated ? {} : queryOf(plan);
  try {
    const pipeline = planPipeline(plan, place, known, query, trace);
    const simple = collated ? { collation: { locale: 'simple' } } : {};
    await sources.majority.write(limits.limitMs, limits.longestMs, (limit) =>
      place.source.aggregate(pipeline, { ...limit, ...simple }).toArray(),
    );
  } catch (error) {
    // The source was recreated with a collation that it did not have before.
    if (collated || !isOtherCollation(error)) throw error;
    sources.forget(plan.source);
    if ((await sources.open(plan.source)).collation === undefined) throw error;
    await planOnce(sources, plan, ids, limits, trace);
  }
}

async function planNothing(place: Place, plan: TaskPlan, maxTimeMS: number): Promise<void> {
  const simple = place.collation === undefined ? {} : { collation: { locale: 'simple' } };
  const query = place.collation === undefined ? queryOf(plan) : {};
  await place.source.aggregate(planPipeline(plan, place, [], query), { maxTimeMS, ...simple }).toArray();
}

/** A batch takes a fraction of this; one that takes longer waits for an open transaction. */
const BATCH_MS = 2_000;
/** Limit for parts of a batch that took too long: the blocked documents are found soon, and the rest continues. */
const PART_MS = 250;

interface Limits {
  /** For the statement itself. */
  readonly limitMs: number;
  /** Including the wait for a majority. */
  readonly longestMs: number;
}

const limitsOf = (part: boolean, longestMs: number): Limits => ({
  limitMs: Math.min(longestMs, part ? PART_MS : BATCH_MS),
  longestMs,
});

export async function plan(
  sources: MongodbSources,
  of: TaskPlan,
  ids: readonly unknown[],
  limitMs: number,
  trace?: TraceContext,
): Promise<readonly Poisoned[]> {
  return run('plan', async () => {
    const limit = (some: readonly unknown[]): Limits => limitsOf(some.length < ids.length, limitMs);
    const choked = await bisect(ids, (some) => planOnce(sources, of, some, limit(some), trace));
    await markPlanned(sources, sources.place(of.source).tasks, [of], ids);
    // If planning fails even without a document, no document is at fault: this throws, and the batch is tried again.
    if (choked.length > 0) await planNothing(sources.place(of.source), of, limitMs);
    return choked.map(({ item, reason, blocked }) => ({ id: item, key: textOf(item), reason, blocked }));
  });
}

/** Writes a `failed` task for each document that cannot be planned, unless the task runs at this moment. */
export async function park(
  sources: MongodbSources,
  of: TaskPlan,
  poisoned: readonly Poisoned[],
): Promise<void> {
  const { tasks } = sources.place(of.source);
  const operations = poisoned.map(({ id, reason }) => ({
    updateOne: {
      filter: {
        _id: keyOf(of.task, id) as never,
        ...OURS,
        status: { $nin: ['processing', 'processing_dirty'] },
      },
      update: [
        {
          $set: {
            ...OURS,
            task: literal(of.task),
            sourceDocId: literal(id),
            status: 'failed',
            matched: false,
            attempts: { $ifNull: ['$attempts', 0] },
            scheduledAt: { $ifNull: ['$scheduledAt', '$$NOW'] },
            initialScheduledAt: { $ifNull: ['$initialScheduledAt', '$$NOW'] },
            createdAt: { $ifNull: ['$createdAt', '$$NOW'] },
            updatedAt: '$$NOW',
            lastFinalizedAt: '$$NOW',
            lockedAt: null,
            lastError: literal(`It could not be planned: ${reason}`),
            unplannable: true,
          },
        },
      ],
      upsert: true,
    },
  }));
  await run('park', async () => {
    try {
      await tasks.bulkWrite(operations, { ordered: false });
    } catch (error) {
      // Usually a duplicate key: the task runs at this moment and records its own outcome, or it is of a later version.
      if (isTransient(error)) throw error;
    }
  });
}

/** Marks the tasks of these ids whose document is gone or no longer matches. */
export function unmatchPipeline(
  of: TaskPlan,
  place: Place,
  ids: readonly unknown[],
  query: Document,
): Document[] {
  return [
    { $match: { _id: { $in: ids.map((id) => keyOf(of.task, id)) }, ...COUNTED } },
    ...withoutDocument(place, query),
    leaveStage(place),
  ];
}

async function unmatchOnce(
  sources: MongodbSources,
  place: Place,
  of: TaskPlan,
  ids: readonly unknown[],
  { limitMs, longestMs }: Limits,
): Promise<void> {
  if (place.collation === undefined) {
    const pipeline = unmatchPipeline(of, place, ids, queryOf(of));
    await sources.majority.write(limitMs, longestMs, (limit) =>
      place.tasks.aggregate(pipeline, limit).toArray(),
    );
    return;
  }
  const still = new Set((await matching(place, of, ids)).map(textOf));
  const left = ids.filter((id) => !still.has(textOf(id))).map((id) => keyOf(of.task, id));
  await sources.majority.write(limitMs, longestMs, (limit) =>
    place.tasks.updateMany({ _id: { $in: left as never[] }, ...COUNTED }, [{ $set: LEFT }], limit),
  );
}

/** A document on which the filter fails does not match. The reason that planning recorded is kept. */
async function markFailing(
  sources: MongodbSources,
  place: Place,
  of: TaskPlan,
  ids: readonly unknown[],
  { limitMs, longestMs }: Limits,
): Promise<void> {
  const keys = ids.map((id) => keyOf(of.task, id));
  const failing = { _id: { $in: keys as never[] }, ...OURS, matched: true };
  await sources.majority.write(limitMs, longestMs, (limit) =>
    place.tasks.updateMany(failing, { $set: { matched: false } }, limit),
  );
}

export async function unmatch(
  sources: MongodbSources,
  of: TaskPlan,
  ids: readonly unknown[],
  limitMs: number,
): Promise<readonly Poisoned[]> {
  return run('unmatch', async () => {
    const place = await sources.open(of.source);
    const limit = (some: readonly unknown[]): Limits => limitsOf(some.length < ids.length, limitMs);
    const choked = await bisect(ids, (some) => unmatchOnce(sources, place, of, some, limit(some)));
    const odd = choked.filter(({ blocked }) => !blocked).map(({ item }) => item);
    const held = await bisect(odd, (some) => markFailing(sources, place, of, some, limit(some)));
    return [...choked, ...held]
      .filter(({ blocked }) => blocked)
      .map(({ item, reason }) => ({ id: item, key: textOf(item), reason, blocked: true }));
  });
}

/** Refuses a definition that the server does not accept. The server only parses it; no document is read. */
export async function ask(where: string, sources: MongodbSources, of: TaskPlan): Promise<void> {
  const { source } = sources.place(of.source);
  const pipeline = [{ $match: { $expr: false } }, { $match: queryOf(of) }, ...snapshotStages(of)];
  try {
    await source.aggregate(pipeline, { maxTimeMS: 10_000 }).toArray();
  } catch (error) {
    if (isTransient(error)) throw error;
    const reason = reasonOf(error);
    throw new OptionError(`${where}: MongoDB refuses filter or watchProjection: ${reason}`, { cause: error });
  }
}
