/** Source documents -> tasks. The server evaluates filter and projection, compares with the snapshot, and writes. */
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

/** Where the planner keeps what the user's projection may leave out. */
const OWN = '__tidemill';
/** A snapshot larger than this could not be stored beside the rest of its task. */
const LARGEST_SNAPSHOT = 15_000_000;
const TOO_LARGE =
  'The watched document is larger than 15 MB; define watchProjection, so that less of it is kept.';

/** The snapshot of each document, and its id beside it. */
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
 * What becomes of a task that is there already (`$$new` is what a new one would be). Nothing, unless the document comes
 * to match or its snapshot changed; a document that is written as it was leaves no trace.
 */
function changedTask(plan: TaskPlan, trace: TraceContext | undefined): Document[] {
  const { waitMs, maxWaitMs } = plan.debounce;
  const running = { $in: ['$status', ['processing', 'processing_dirty']] };
  // A wait that has begun goes on; a retry's wait is not one.
  const since = when(
    { $in: ['$status', ['pending', 'processing_dirty']] },
    { $ifNull: ['$waitingSince', '$$NOW'] },
    '$$NOW',
  );
  const settled = { $min: [{ $add: ['$$NOW', waitMs] }, { $add: [since, maxWaitMs] }] };
  // A new sequence of attempts, unless the policy keeps the old one: then its delay is kept as well.
  // An attempt under way may yet be the first to fail, so it counts.
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
    // The attempt under way was claimed for other values: its `getDocument` must not take these for them.
    overtaken: when({ $and: [running, changed] }, true, '$overtaken'),
    attempts: when(fresh, 0, '$attempts'),
    firstErrorAt: when(fresh, null, '$firstErrorAt'),
    updatedAt: '$$NOW',
    ...keptTrace(trace),
  };
  // It may be about to be skipped for a state that has passed: then its end must know that somebody looked since.
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
 * A filter means what the source's collation says, but snapshots are compared letter by letter: where the source has
 * a collation, the ids that match are found first, and planned without a filter afterwards.
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
    // The source was made anew, with a collation that it did not have before.
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

/** A whole batch is over in a fraction of this; what takes longer waits for somebody's transaction. */
const BATCH_MS = 2_000;
/** Parts of a batch that took too long: whatever holds it is found soon, and the rest goes on. */
const PART_MS = 250;

interface Limits {
  /** For the statement itself. */
  readonly limitMs: number;
  /** With the wait for a majority. */
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
    // Where it fails without any document as well, no document is to blame: the batch has to be tried again.
    if (choked.length > 0) await planNothing(sources.place(of.source), of, limitMs);
    return choked.map(({ item, reason, blocked }) => ({ id: item, key: textOf(item), reason, blocked }));
  });
}

/** Fields that are in a task of a document that cannot be planned. */
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
      // A duplicate: it runs at this moment, and its own end is the better news; or it is of a later version.
      if (isTransient(error)) throw error;
    }
  });
}

/** Tasks of documents that counted as matching, or could not be planned: an answer is news for both. */
const COUNTED: Document = { ...OURS, $or: [{ matched: true }, { unplannable: true }] };
const LEFT: Document = {
  matched: when(LATER, '$matched', false),
  unplannable: when(LATER, '$unplannable', '$$REMOVE'),
};

/** Tasks of these ids whose document does not match any more. */
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

/** A document on which the filter errors does not match; whoever planned it has said why, and that is kept. */
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

/** Refuses a definition that the server does not understand. It is only parsed: no document is looked at. */
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
