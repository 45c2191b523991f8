import type { TraceContext } from '../tracer.js';
import type { Work } from './work.js';

/** The states of a job. docs/architecture.md has the diagram of all transitions. */
export const JobStatus = {
  PENDING: 'pending',
  PROCESSING: 'processing',
  COMPLETED: 'completed',
  FAILED: 'failed',
  CANCELLED: 'cancelled',
} as const;
export type JobStatus = (typeof JobStatus)[keyof typeof JobStatus];

export const JOB_STATUSES: readonly JobStatus[] = Object.values(JobStatus);
export const FINISHED: readonly JobStatus[] = ['completed', 'failed', 'cancelled'];
export const hasEnded = ({ status }: { readonly status: JobStatus }): boolean => FINISHED.includes(status);

/** How many lines of a job's log are kept. */
export const LOG_LIMIT = 100;

/** The `nextRunAt` of a paused schedule. Resuming computes it again. */
export const NEVER: Date = new Date('9999-12-31T23:59:59.999Z');

/** Reserved for ids of schedules. */
export const SCHEDULE_PREFIX = 'schedule:';

/** The id of a schedule follows from its name and key, so every process addresses the same one. */
export const scheduleId = (name: string, key: string): string =>
  `${SCHEDULE_PREFIX}${encodeURIComponent(name)}:${encodeURIComponent(key)}`;

/** The id of the copy of a run that used up its attempts. It follows from the run, so a repeated insert is harmless. */
export const failedRunId = (schedule: string, scheduledFor: Date): string =>
  `${schedule}@${scheduledFor.toISOString()}`;

/** The id of the dead letter of a failure. It follows from the attempt that failed, so a repeated insert is harmless. */
export const deadLetterId = (job: string, token: string | undefined, lockedAt: Date | null): string =>
  `${job}@${token ?? lockedAt?.toISOString() ?? ''}`;

/** What to do with run times that passed while no instance ran the schedule. */
export type MissedPolicy = 'once' | 'skip' | 'all';

/** One attempt of a job or task, as kept in its history. */
export interface Attempt {
  readonly attempt: number;
  readonly status: 'completed' | 'failed' | 'crashed' | 'deferred' | 'released' | 'cancelled' | 'skipped';
  readonly startedAt: Date;
  readonly finishedAt: Date;
  readonly durationMs: number;
  readonly instanceId: string;
  readonly error?: { readonly name: string; readonly message: string; readonly stack?: string };
}

export interface LogLine {
  readonly at: Date;
  readonly message: string;
  readonly fields?: unknown;
}

/** A job as the API returns it. The fields are the same on every store. */
export interface Job<T = unknown> {
  readonly id: string;
  readonly name: string;
  readonly data: T;
  readonly status: JobStatus;
  readonly priority: number;
  /** When the job is, or was last, due. */
  readonly runAt: Date;
  /** The stored name of `runAt`. */
  readonly nextRunAt: Date;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  readonly finishedAt?: Date;
  readonly lockedAt: Date | null;
  readonly claimedBy?: string;
  readonly lastHeartbeat?: Date;
  /** Milliseconds between two heartbeats of the holder. */
  readonly heartbeatInterval?: number;
  readonly failCount: number;
  /** The message of the last failure. */
  readonly error?: string;
  /** The stored name of `error`. */
  readonly failReason?: string;
  readonly uniqueKey?: string;
  /** The key by which limits per key, turns and order count it. Absent: ''. */
  readonly limitKey?: string;
  /** The latest time at which its first attempt may start; then it is cancelled as expired. Gone once it has started. */
  readonly startBy?: Date;
  readonly retryPolicy?: unknown;
  readonly timeoutMs?: number;
  readonly cancelRequestedAt?: Date;
  readonly result?: unknown;
  readonly progress?: unknown;
  readonly logs?: readonly LogLine[];
  readonly history?: readonly Attempt[];
  /** On a recurring job: the cron expression, or `@every …`. */
  readonly repeatInterval?: string;
  readonly timezone?: string;
  readonly startAt?: Date;
  readonly repeatUntil?: Date;
  readonly missed?: MissedPolicy;
  readonly paused?: boolean;
  /** On a failed copy of one run of a recurring job: the schedule's id. */
  readonly scheduleId?: string;
  /** The scheduled time of this run. Retries do not change it. */
  readonly scheduledFor?: Date;
  /** The trace context of the call that enqueued it. */
  readonly trace?: TraceContext;
}

/** A job with the fields that only the engine and the stores use, under its stored names. */
export interface JobRecord extends Omit<Job, 'runAt' | 'error'>, Work {
  readonly id: string;
  readonly name: string;
  readonly lockedAt: Date | null;
  readonly claimedBy?: string;
  readonly trace?: TraceContext;
  readonly firstFailedAt?: Date;
  readonly scheduleRev?: number;
  /** Its place among the jobs of its key. */
  readonly limitOrder?: string;
  /** A successor may wait for this job to end. Never taken off a job that has ended. */
  readonly followed?: boolean;
  /** On a successor that waits: the unique key that it takes when it is released. It has no `uniqueKey` until then. */
  readonly successorKey?: string;
  /** On a successor that waits: when it is due. `nextRunAt` is `NEVER` until it is released. */
  readonly successorRunAt?: Date;
  /** When `debounce` was first called for a job that has not started since. */
  readonly debouncedAt?: Date;
}

/** Removes the internal fields of a record, and adds the names that all kinds of work have in common. */
export function toJob(record: JobRecord): Job {
  const { key, leaseToken, startedToken, failKind, firstFailedAt, scheduleRev, part, bytes, ...rest } =
    record;
  const { limitOrder, followed, successorKey, successorRunAt, debouncedAt, ...job } = rest;
  const { failReason: error } = job;
  const nextRunAt = successorRunAt ?? job.nextRunAt;
  const uniqueKey = successorKey ?? job.uniqueKey;
  return {
    ...job,
    nextRunAt,
    runAt: nextRunAt,
    ...(uniqueKey === undefined ? {} : { uniqueKey }),
    ...(error === undefined ? {} : { error }),
  };
}

/** Why an expired job was cancelled: its `failReason`. */
export const EXPIRED = 'expired';

/** True for a job that may no longer start. */
export const isLate = ({ startBy }: Pick<JobRecord, 'startBy'>, now: number): boolean =>
  startBy !== undefined && startBy.getTime() <= now;
