import type { Attempt } from '../../../core/records/job.js';
import type { TaskRecord, TaskStatus } from '../../../core/records/task.js';
import type { TraceContext } from '../../../core/tracer.js';
import type { FailureKind } from '../../../core/records/work.js';
import { copyOf } from '../../jobs/records.js';
import { textOf } from '../query/values.js';

/** A task as it is kept; what leaves the store is a copy. */
export interface TaskRow {
  /** The text of its place: collection, task and document. */
  readonly key: string;
  readonly collection: string;
  readonly task: string;
  readonly sourceDocId: unknown;
  status: TaskStatus;
  scheduledAt: Date;
  initialScheduledAt: Date;
  /** Since when a debounce has been waiting. */
  waitingSince: Date | undefined;
  attempts: number;
  /** The document counted as matching when it was last looked at. */
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
  /** Not before this time, also if the document changes. */
  deferredUntil: Date | undefined;
  /** The document was looked at during the attempt, and was as planned. */
  touched: boolean;
  /** The document changed during the attempt: `getDocument` must not take the new values for those that were claimed. */
  overtaken: boolean;
  /** The document could not be planned: nothing runs until it, or the definition, is another one. */
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

/** The text that identifies a task in cursors and links. */
export const cursorKey = ({ task, sourceDocId }: Pick<TaskRow, 'task' | 'sourceDocId'>): string =>
  textOf({ task, id: sourceDocId });

/** What the engine and users get of a row. */
export function toRecord(row: TaskRow, matches?: boolean): TaskRecord {
  const { collection, waitingSince, matched, deferredUntil, touched, overtaken, unplannable, ...fields } =
    row;
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
