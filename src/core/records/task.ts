import type { Attempt } from './job.js';
import type { TraceContext } from '../tracer.js';
import type { Work } from './work.js';

/** The states of a reactive task. docs/architecture.md lists all transitions. */
export const TaskStatus = {
  PENDING: 'pending',
  PROCESSING: 'processing',
  /** The document changed, or the task was retried, while its handler ran. The task runs again afterwards. */
  PROCESSING_DIRTY: 'processing_dirty',
  COMPLETED: 'completed',
  FAILED: 'failed',
} as const;
export type TaskStatus = (typeof TaskStatus)[keyof typeof TaskStatus];

export const TASK_STATUSES: readonly TaskStatus[] = Object.values(TaskStatus);

/** One reactive task for one source document, as stored. */
export interface Task {
  /** Identifies the stored task: its name and the document's id. */
  readonly _id: unknown;
  readonly task: string;
  readonly sourceDocId: unknown;
  /** The primary key columns of the source, if it is a table whose structure is known. Only in results of `find`. */
  readonly sourceKey?: readonly string[];
  readonly status: TaskStatus;
  /** When the task is, or was last, due. */
  readonly runAt: Date;
  /** The stored name of `runAt`. */
  readonly scheduledAt: Date;
  /** When it was first due. A deferral keeps it, so that the lag covers the whole wait. */
  readonly initialScheduledAt: Date;
  /** Attempts of this sequence, including the running one. */
  readonly attempts: number;
  /** The key by which limits count the task: the value at `limits.perKey.key` when it was planned. */
  readonly limitKey?: string;
  /** The watched fields as they were when the task was planned. */
  readonly lastObservedValues?: unknown;
  readonly firstErrorAt?: Date;
  /** The message of the last failure; its stack is in the history. */
  readonly error?: string;
  /** The stored name of `error`. */
  readonly lastError?: string;
  readonly lastSuccess?: { readonly at: Date; readonly durationMs: number };
  /** When an attempt last ended as completed or failed. */
  readonly lastFinalizedAt?: Date;
  readonly executionHistory?: readonly Attempt[];
  readonly createdAt: Date;
  /** When the watched fields last changed, or the task was reset. */
  readonly updatedAt: Date;
  readonly lockedAt: Date | null;
  readonly claimedBy?: string;
  /** The trace context in which its last change was planned. */
  readonly trace?: TraceContext;
}

/** A task with the fields that only the engine and the stores use, under its stored names. `name` is the task's. */
export interface TaskRecord extends Omit<Task, 'runAt' | 'error'>, Work {
  readonly lockedAt: Date | null;
  readonly claimedBy?: string;
  readonly trace?: TraceContext;
  /** Whether the document existed and matched at the claim. Only set by a claim. */
  readonly matches?: boolean;
}

/** Removes the internal fields of a record, and adds the names that all kinds of work have in common. */
export function toTask(record: TaskRecord): Task {
  const { key, id, name, leaseToken, startedToken, failKind, part, bytes, matches, ...task } = record;
  const { scheduledAt: runAt, lastError: error } = task;
  return { ...task, runAt, ...(error === undefined ? {} : { error }) };
}
