/** The stages that turn source documents into tasks, for statements on one task and on several. */
import type { Document } from 'mongodb';
import type { TraceContext } from '../../../core/tracer.js';
import type { TaskPlan } from '../../../store/reactive/reactive.js';
import { literal } from '../../context.js';
import { LATER, OURS, TASK_VERSION } from '../document.js';
import type { Place } from '../sources.js';

/** Holds the id, which the user's projection may leave out. */
const OWN = '__tidemill';
/** A larger snapshot would not fit into a document with the rest of its task. */
const LARGEST_SNAPSHOT = 15_000_000;
const TOO_LARGE =
  'The watched document is larger than 15 MB; define watchProjection, so that less of it is kept.';

/** Computes the snapshot of each document, with the id beside it. */
export function snapshotStages({ watchProjection }: TaskPlan): Document[] {
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

/** What tasks are written by: the options of one task, or expressions that choose among those of several. */
export interface Terms {
  /** The name of the task, from the row that `snapshotStages` made. */
  readonly task: unknown;
  readonly waitMs: unknown;
  /** The same in the update of an existing task, where that row is `$$new`. */
  readonly waitedMs: unknown;
  readonly maxWaitMs: unknown;
  readonly resets: unknown;
  /** The key of the task, from that row; absent if no task has one. */
  readonly key?: unknown;
}

const LONGEST_KEY = 1_024;
const KEY_TYPES = ['int', 'long', 'double', 'decimal', 'objectId'];

/** The text, number or ObjectId at a path into the snapshot, as text. Planning refuses no document: all else is ''. */
function keyAt(path: string): Document {
  const value = `$snapshot.${path}`;
  const text = {
    $switch: {
      branches: [
        { case: { $eq: [{ $type: value }, 'string'] }, then: value },
        { case: { $in: [{ $type: value }, KEY_TYPES] }, then: { $toString: value } },
      ],
      default: '',
    },
  };
  const isShort = { $lte: [{ $strLenCP: '$$text' }, LONGEST_KEY] };
  return { $let: { vars: { text }, in: { $cond: [isShort, '$$text', ''] } } };
}

export const termsOf = ({ task, debounce, resetRetriesOnDataChange, limitKey }: TaskPlan): Terms => ({
  task: literal(task),
  waitMs: debounce.waitMs,
  waitedMs: debounce.waitMs,
  maxWaitMs: debounce.maxWaitMs,
  resets: resetRetriesOnDataChange,
  ...(limitKey === undefined ? {} : { key: keyAt(limitKey) }),
});

/** Chooses by the name of the task among values that are numbers or booleans. */
function chosen(plans: readonly TaskPlan[], task: string, valueOf: (plan: TaskPlan) => unknown): unknown {
  const names = new Map<unknown, string[]>();
  for (const plan of plans) {
    const value = valueOf(plan);
    names.set(value, [...(names.get(value) ?? []), plan.task]);
  }
  const [first, ...others] = names.keys();
  if (others.length === 0) return first;
  const branches = [...names].map(([value, of]) => ({ case: { $in: [task, literal(of)] }, then: value }));
  return { $switch: { branches } };
}

/** For rows of several tasks, with the name of theirs as `task`. */
export const termsOfAll = (plans: readonly TaskPlan[]): Terms => ({
  task: '$task',
  waitMs: chosen(plans, '$task', ({ debounce }) => debounce.waitMs),
  waitedMs: chosen(plans, '$$new.task', ({ debounce }) => debounce.waitMs),
  maxWaitMs: chosen(plans, '$$new.task', ({ debounce }) => debounce.maxWaitMs),
  resets: chosen(plans, '$$new.task', ({ resetRetriesOnDataChange }) => resetRetriesOnDataChange),
  ...keysOfAll(plans),
});

/** A task without a path has no key. */
function keysOfAll(plans: readonly TaskPlan[]): Pick<Terms, 'key'> {
  const branches = plans.flatMap(({ task, limitKey }) =>
    limitKey === undefined ? [] : [{ case: { $eq: ['$task', literal(task)] }, then: keyAt(limitKey) }],
  );
  return branches.length === 0 ? {} : { key: { $switch: { branches, default: '$$REMOVE' } } };
}

/** A task as it is first written. */
function newTask({ task, waitMs, key }: Terms, trace: TraceContext | undefined): Document {
  const due = { $add: ['$$NOW', waitMs] };
  return {
    _id: { task, id: '$id' },
    v: { $literal: TASK_VERSION },
    task,
    sourceDocId: '$id',
    status: { $cond: ['$large', 'failed', 'pending'] },
    scheduledAt: due,
    initialScheduledAt: due,
    waitingSince: '$$NOW',
    attempts: { $literal: 0 },
    ...(key === undefined ? {} : { limitKey: key }),
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

const when = (condition: unknown, yes: unknown, no: unknown): Document => ({
  $cond: [condition, yes, no],
});

/** A running task keeps the key under which it was claimed until its end. A row of a task without a key changes none. */
const rekeyed = (running: Document): Document =>
  when(
    { $eq: [{ $type: '$$new.limitKey' }, 'string'] },
    when(running, { nextLimitKey: '$$new.limitKey' }, { limitKey: '$$new.limitKey' }),
    {},
  );

/**
 * What becomes of an existing task (`$$new` is what a new one would be). It changes only if the document begins to
 * match or its snapshot differs. A document that is written as it was has no effect, except that a running task becomes
 * `touched`.
 */
function changedTask(
  { waitedMs, maxWaitMs, resets, key }: Terms,
  trace: TraceContext | undefined,
): Document[] {
  const running = { $in: ['$status', ['processing', 'processing_dirty']] };
  // A debounce that has begun continues; the delay of a retry is not one.
  const since = when(
    { $in: ['$status', ['pending', 'processing_dirty']] },
    { $ifNull: ['$waitingSince', '$$NOW'] },
    '$$NOW',
  );
  const settled = { $min: [{ $add: ['$$NOW', waitedMs] }, { $add: [since, maxWaitMs] }] };
  // A change starts a new sequence of attempts, unless the policy keeps the old one, and with it its delay. An attempt
  // under way may yet be the first to fail, so it counts as part of a sequence.
  const fresh = { $or: [resets, { $and: [{ $not: [running] }, { $lte: ['$firstErrorAt', null] }] }] };
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
  const keys = key === undefined ? [] : [rekeyed(running)];
  // The running attempt may be about to skip for a state that has passed. Its settlement must know that the planner has
  // looked at the document since.
  const touched = { $mergeObjects: ['$$ROOT', when(running, { touched: true }, {}), ...keys] };
  const without = (field: string, input: unknown): Document => ({ $unsetField: { field, input } });
  const before = without('trace', without('unplannable', '$$ROOT'));
  const planned = when(triggered, { $mergeObjects: [before, next, ...keys] }, touched);
  return [{ $replaceWith: when(LATER, '$$ROOT', planned) }];
}

/** Writes the rows that `snapshotStages` made as tasks, as far as they differ from what is there. */
export const writeStages = (
  terms: Terms,
  { tasks }: Pick<Place, 'tasks'>,
  trace: TraceContext | undefined,
): Document[] => [
  { $set: { large: { $gt: [{ $bsonSize: '$snapshot' }, LARGEST_SNAPSHOT] } } },
  { $replaceWith: newTask(terms, trace) },
  {
    $merge: {
      into: tasks.collectionName,
      on: '_id',
      whenMatched: changedTask(terms, trace),
      whenNotMatched: 'insert',
    },
  },
];

/** Tasks that count as matching, or that could not be planned. For both, a document that does not match is a change. */
export const COUNTED: Document = { ...OURS, $or: [{ matched: true }, { unplannable: true }] };
export const LEFT: Document = {
  matched: when(LATER, '$matched', false),
  unplannable: when(LATER, '$unplannable', '$$REMOVE'),
};

/** Marks the tasks of these keys as not matching. */
export const leaveStage = ({ tasks }: Pick<Place, 'tasks'>): Document => ({
  $merge: {
    into: tasks.collectionName,
    on: '_id',
    whenMatched: [{ $set: LEFT }],
    whenNotMatched: 'discard',
  },
});
