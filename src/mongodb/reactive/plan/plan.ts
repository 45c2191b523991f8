/** Source documents to tasks: the server evaluates filter and projection, compares with the snapshot, and writes. */
import type { Document } from 'mongodb';
import { OptionError, reasonOf } from '../../../core/errors.js';
import type { TraceContext } from '../../../core/tracer.js';
import type { Poisoned, TaskPlan } from '../../../store/reactive.js';
import { literal, run } from '../../context.js';
import { isOtherCollation, isTransient } from '../../errors.js';
import { findExact } from '../../exact.js';
import { keyOf, LATER, OURS, TASK_VERSION, textOf } from '../document.js';
import { queryOf } from './filter.js';
import { bisect } from './bisect.js';
import { type Place, type MongodbSources, withoutDocument } from '../sources.js';

/** Holds the id, which the user's projection may leave out. */
const OWN = '__tidemill';
/** A larger snapshot would not fit into a document with the rest of its task. */
const LARGEST_SNAPSHOT = 15_000_000;
const TOO_LARGE =
  'The watched document is larger than 15 MB; define watchProjection, so that less of it is kept.';

/** Computes the snapshot of each document, with the id beside it. */
function snapshotStages({ watchProjection }: TaskPlan): Document[] {
  if (watchProjection === undefined) return [{ $replaceWith: { id: '$_id', snapshot: '$$ROOT' } }];
  return [
    { $project: { ...(watchProjection as Document), [OWN]: '$_id' } },
    {
      $replaceWith: {
        id: `$${OWN}`,
        snapshot: { $unsetField: { field: OWN, input: '$$ROOT' } },
      },
    },
  ];
}

/** A task as it is first written. */
function newTask(plan: TaskPlan, trace: TraceContext | undefined): Document {
  const due = { $add: ['$$NOW', plan.debounce.waitMs] };
  return {
    _id: { task: literal(plan.task), id: '$id' },
    v: { $literal: TASK_VERSION },
    task: literal(plan.task),
    sourceDocId: '$id',
    status: { $cond: ['$large', 'failed', 'pending'] },
    scheduledAt: due,
    initialScheduledAt: due,
    waitingSince: '$$NOW',
    attempts: { $literal: 0 },
    matched: { $literal: true },
    lastObservedValues: { $cond: ['$large', null, '$snapshot'] },
    lastError: { $cond: ['$large', TOO_LARGE, '$$REMOVE'] },
    unplannable: { $cond: ['$large', true, '$$REMOVE'] },
    createdAt: '$$NOW',
    updatedAt: '$$NOW',
    lockedAt: null,
    ...keptTrace(trace),
  };
}

const keptTrace = (trace: TraceContext | undefined): Document =>
  trace === undefined ? {} : { trace: literal(trace) };

const when = (condition: unknown, yes: unknown, no: unknown): Document => ({ $cond: [condition, yes, no] });

/**
 * What becomes of an existing task (`$$new` is what a new one would be). It changes only if the document begins to
 * match or its snapshot differs. A document that is written as it was has no effect, except that a running task becomes
 * `touched`.
 */
function changedTask(plan: TaskPlan, trace: TraceContext | undefined): Document[] {
  const { waitMs, maxWaitMs } = plan.debounce;
  const running = { $in: ['$status', ['processing', 'processing_dirty']] };
  // A debounce that has begun continues; the delay of a retry is not one.
  const since = when(
    { $in: ['$status', ['pending', 'processing_dirty']] },
    { $ifNull: ['$waitingSince', '$$NOW'] },
    '$$NOW',
  );
  const settled = { $min: [{ $add: ['$$NOW', waitMs] }, { $add: [since, maxWaitMs] }] };
  // A change starts a new sequence of attempts, unless the policy keeps the old one, and with it its delay. An attempt
  // under way may yet be the first to fail, so it counts as part of a sequence.
  const fresh = plan.resetRetriesOnDataChange
    ? true
    : { $and: [{ $not: [running] }, { $lte: ['$firstErrorAt', null] }] };
  const due = { $max: [settled, '$$NOW', '$deferredUntil', when(fresh, null, '$scheduledAt')] };
  const changed = { $ne: ['$lastObservedValues', '$$new.lastObservedValues'] };
  const triggered = { $or: [{ $ne: ['$matched', true] }, changed] };
  const large = { $eq: ['$$new.unplannable', true] };
  const next: Document = {
    status: when(running, 'processing_dirty', when(large, 'failed', 'pending')),
    lastObservedValues: '$$new.lastObservedValues',
    lastError: when(large, TOO_LARGE, '$lastError'),
    unplannable: when(large, true, '$$REMOVE'),
    matched: true,
    waitingSince: since,
    scheduledAt: due,
    initialScheduledAt: when({ $gt: ['$deferredUntil', null] }, '$initialScheduledAt', due),
    // The running attempt was claimed for other values; its `getDocument` must not return these in their place.
    overtaken: when({ $and: [running, changed] }, true, '$overtaken'),
    attempts: when(fresh, 0, '$attempts'),
    firstErrorAt: when(fresh, null, '$firstErrorAt'),
    updatedAt: '$$NOW',
    ...keptTrace(trace),
  };
  // The running attempt may be about to skip for a state that has passed. Its settlement must know that the planner has
  // looked at the document since.
  const touched = when(running, { $mergeObjects: ['$$ROOT', { touched: true }] }, '$$ROOT');
  const without = (field: string, input: unknown): Document => ({ $unsetField: { field, input } });
  const before = without('trace', without('unplannable', '$$ROOT'));
  const planned = when(triggered, { $mergeObjects: [before, next] }, touched);
  return [{ $replaceWith: when(LATER, '$$ROOT', planned) }];
}

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
    { $set: { large: { $gt: [{ $bsonSize: '$snapshot' }, LARGEST_SNAPSHOT] } } },
    { $replaceWith: newTask(plan, trace) },
    {
      $merge: {
        into: place.tasks.collectionName,
        on: '_id',
        whenMatched: changedTask(plan, trace),
        whenNotMatched: 'insert',
      },
    },
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

/** Tasks that count as matching, or that could not be planned. For both, a document that does not match is a change. */
const COUNTED: Document = { ...OURS, $or: [{ matched: true }, { unplannable: true }] };
const LEFT: Document = {
  matched: when(LATER, '$matched', false),
  unplannable: when(LATER, '$unplannable', '$$REMOVE'),
};

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
    {
      $merge: {
        into: place.tasks.collectionName,
        on: '_id',
        whenMatched: [{ $set: LEFT }],
        whenNotMatched: 'discard',
      },
    },
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
