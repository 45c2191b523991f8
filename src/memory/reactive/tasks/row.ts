import { byTaskOrder } from '../../../core/records/claim-order.js';
import type { Attempt } from '../../../core/records/job.js';
import type { TaskRecord, TaskStatus } from '../../../core/records/task.js';
import type { TraceContext } from '../../../core/tracer.js';
import type { FailureKind } from '../../../core/records/work.js';
import { copyOf } from '../../jobs/records.js';
import type { KeyedKind } from '../../limits/keys.js';
import { textOf } from '../query/values.js';

/** A task as it is stored. What leaves the store is a copy. */
export interface TaskRow {
  /** Identifies the task: the text of its collection, name and document id. */
  readonly key: string;
  readonly collection: string;
  readonly task: string;
  readonly sourceDocId: unknown;
  status: TaskStatus;
  scheduledAt: Date;
  initialScheduledAt: Date;
  /** When the debounce in progress began. */
  waitingSince: Date | undefined;
  attempts: number;
  /** The key under which it waits or runs. */
  limitKey: string | undefined;
  /** The key that it has from the end of its run on: a change must not move work that runs. */
  nextLimitKey: string | undefined;
  /** Whether the document matched when it was last checked; false also after a skip. */
  matched: boolean;
  lastObservedValues: unknown;
  readonly createdAt: Date;
  updatedAt: Date;
  lockedAt: Date | null;
  claimedBy: string | undefined;
  leaseToken: string | undefined;
  startedToken: string | undefined;
  firstErrorAt: Date | undefined;
  lastError: string | undefined;
  failKind: FailureKind | undefined;
  lastSuccess: { readonly at: Date; readonly durationMs: number } | undefined;
  lastFinalizedAt: Date | undefined;
  executionHistory: readonly Attempt[] | undefined;
  trace: TraceContext | undefined;
  /** The task does not run before this time, even if the document changes. */
  deferredUntil: Date | undefined;
  /** The document was checked during the attempt, and was as planned. */
  touched: boolean;
  /** The watched fields changed during the attempt: `getDocument` must not return values other than those claimed. */
  overtaken: boolean;
  /** The document could not be planned: the task does not run until the document or the definition changes. */
  unplannable: boolean;
}

export const placeOf = (collection: string, task: string, id: unknown): string =>
  textOf([collection, task, id]);

export function newTaskRow(collection: string, task: string, id: unknown, now: Date): TaskRow {
  return {
    key: placeOf(collection, task, id),
    collection,
    task,
    sourceDocId: copyOf(id),
    status: 'pending',
    scheduledAt: now,
    initialScheduledAt: now,
    waitingSince: now,
    attempts: 0,
    limitKey: undefined,
    nextLimitKey: undefined,
    matched: true,
    lastObservedValues: undefined,
    createdAt: now,
    updatedAt: now,
    lockedAt: null,
    claimedBy: undefined,
    leaseToken: undefined,
    startedToken: undefined,
    firstErrorAt: undefined,
    lastError: undefined,
    failKind: undefined,
    lastSuccess: undefined,
    lastFinalizedAt: undefined,
    executionHistory: undefined,
    trace: undefined,
    deferredUntil: undefined,
    touched: false,
    overtaken: false,
    unplannable: false,
  };
}

export const isRunning = ({ status }: TaskRow): boolean =>
  status === 'processing' || status === 'processing_dirty';

/** Tasks as limits of keys see them: one per document, so they have no order of their own. */
export const KEYED_TASKS: KeyedKind<TaskRow> = {
  read: ({ key, scheduledAt }) => ({ id: key, dueAt: scheduledAt }),
  byTurn: byTaskOrder,
  byOrder: byTaskOrder,
};

/** The text that identifies a task in cursors and links. */
export const cursorKey = ({ task, sourceDocId }: Pick<TaskRow, 'task' | 'sourceDocId'>): string =>
  textOf({ task, id: sourceDocId });

/** The record of a row, for users and the engine: a copy without the store's own fields. */
export function toRecord(row: TaskRow, matches?: boolean): TaskRecord {
  const {
    collection,
    waitingSince,
    matched,
    deferredUntil,
    touched,
    overtaken,
    unplannable,
    nextLimitKey,
    ...fields
  } = row;
  const { task, sourceDocId } = row;
  const own = {
    _id: { task, id: sourceDocId },
    id: `${task}/${textOf(sourceDocId)}`,
    name: task,
    ...(matches === undefined ? {} : { matches }),
  };
  const known = Object.entries(fields).filter(([, value]) => value !== undefined);
  return copyOf({ ...Object.fromEntries(known), ...own }) as TaskRecord;
}
