import type { Attempt } from './job.js';
import type { TraceContext } from '../tracer.js';
import type { Work } from './work.js';

/** The states of a reactive task. docs/architecture.md has every allowed move. */
export const TaskStatus = {
  PENDING: 'pending',
  PROCESSING: 'processing',
  /** The document changed while its task ran: it runs again afterwards. */
  PROCESSING_DIRTY: 'processing_dirty',
  COMPLETED: 'completed',
  FAILED: 'failed',
} as const;
export type TaskStatus = (typeof TaskStatus)[keyof typeof TaskStatus];

export const TASK_STATUSES: readonly TaskStatus[] = Object.values(TaskStatus);

/** One task for one source document, as stored. */
export interface Task {
  /** The stored identity: the task's name and the document's id. */
  readonly _id: unknown;
  readonly task: string;
  readonly sourceDocId: unknown;
  /** Where a table is the source, and its shape is known: the columns of its primary key. Only in what `find` returns. */
  readonly sourceKey?: readonly string[];
  readonly status: TaskStatus;
  /** When it is due. */
  readonly scheduledAt: Date;
  /** When it was first due: a deferral leaves this alone, so that the lag tells the whole wait. */
  readonly initialScheduledAt: Date;
  /** Attempts of this sequence, the running one included. */
  readonly attempts: number;
  /** What the watched fields were when the task was planned. */
  readonly lastObservedValues?: unknown;
  readonly firstErrorAt?: Date;
  /** The message; the stack is in the history. */
  readonly lastError?: string;
  readonly lastSuccess?: { readonly at: Date; readonly durationMs: number };
  /** When an attempt last completed or failed it. */
  readonly lastFinalizedAt?: Date;
  readonly executionHistory?: readonly Attempt[];
  readonly createdAt: Date;
  /** When its watched fields last changed, or somebody reset it. */
  readonly updatedAt: Date;
  readonly lockedAt: Date | null;
  readonly claimedBy?: string;
  /** Where the planning of its last change stands in a trace. */
  readonly trace?: TraceContext;
}

/** A task with the fields that only the engine and the stores use. `name` is the task's. */
export interface TaskRecord extends Task, Work {
  readonly lockedAt: Date | null;
  readonly claimedBy?: string;
  readonly trace?: TraceContext;
  /** Whether the document was there and matched when the task was claimed. Only after a claim. */
  readonly matches?: boolean;
}

/** The user's view of a record. */
export function toTask(record: TaskRecord): Task {
  const { key, id, name, leaseToken, startedToken, failKind, part, matches, ...task } = record;
  return task;
}
