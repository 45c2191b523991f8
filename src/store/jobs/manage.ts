/** Changes of jobs that people and chores ask for: none of them needs a lease. */
import type { JobRecord } from '../../core/records/job.js';

/** What `update` changes; absent fields stay. */
export interface JobChanges {
  /** Wrapped, so that null is a payload too. */
  readonly data?: { readonly value: unknown };
  readonly priority?: number;
  readonly nextRunAt?: Date;
  /** Without `nextRunAt`, its place in the order of keys, `limitOrder`, stays. */
  readonly limitKey?: string;
}

/** How long finished jobs are kept, by the state in which they ended. 0: not at all, or until the next sweep. */
export interface RetentionMs {
  readonly completed: number;
  readonly failed: number;
  readonly cancelled: number;
}

/** What management and the chores of the cluster ask of a store. */
export interface ManageStore {
  /**
   * Cancels one job. `pending` → `cancelled`, with `finishedAt` and `expiresAt`; `processing` → the same, with
   * `cancelRequestedAt` and a `cancel` wake-up for its holder.
   * Precondition: still in the state that was read; otherwise the store reads again.
   * Returns `cancelled`, `requested`, or `finished` if it had ended, with the job as it is then, or undefined: no such
   * job.
   * Repeat: `finished`, or `requested` again.
   * Errors: if an open transaction holds the job, the store waits for it, or throws a transient `StoreError`.
   */
  cancel(
    id: string,
    retention: (name: string) => RetentionMs,
  ): Promise<{ outcome: 'cancelled' | 'requested' | 'finished'; job: JobRecord } | undefined>;
  /**
   * Begins a fresh sequence of attempts: `failed`, `cancelled` → `pending`, due at `now`, `failCount` 0. Result,
   * progress, token, cancel request and times of the end go; `failReason` and history stay. If it has a `limitOrder`,
   * that becomes `orderOf(now, now)`. With `replacement`, the same write replaces the payload. Wakes instances.
   * Precondition: still failed or cancelled, and its unique key is not live (unique index).
   * Returns `retried`; `live` if another live job has its unique key; `unfinished` if it is pending or processing;
   * `finished` if it is completed; undefined: no such job.
   * Repeat: `unfinished`, or what has become of it by then.
   */
  retry(
    id: string,
    now: Date,
    replacement?: { readonly data: unknown },
  ): Promise<{ outcome: 'retried' | 'live' | 'unfinished' | 'finished'; job: JobRecord } | undefined>;
  /**
   * Deletes one job: any state but `processing` → gone.
   * Precondition: not processing.
   * Returns `removed` with the job as it was, `running`, or undefined: no such job. Repeat: undefined.
   */
  remove(id: string): Promise<{ outcome: 'removed' | 'running'; job: JobRecord } | undefined>;
  /**
   * Moves one job to another time: `pending` → `pending`, due at `at`, with its `startBy`. If it has a `limitOrder`, that
   * becomes `orderOf(at, now)`. Wakes instances.
   * Precondition: still pending.
   * Returns `rescheduled`; `running` or `finished`, unchanged; undefined: no such job. Repeat: the same again.
   */
  reschedule(
    id: string,
    at: Date,
  ): Promise<{ outcome: 'rescheduled' | 'running' | 'finished'; job: JobRecord } | undefined>;
  /**
   * Changes one job: `pending` → `pending`. A `startBy` and a `limitOrder` move with the due time. Wakes instances.
   * Precondition: still pending.
   * Returns `updated`; `running` or `finished`, unchanged; undefined: no such job. Repeat: the same again.
   * Absent: `jobs.update` refuses every call.
   */
  update?(
    id: string,
    changes: JobChanges,
  ): Promise<{ outcome: 'updated' | 'running' | 'finished'; job: JobRecord } | undefined>;
  /**
   * As `cancel` for a list, with the same preconditions. Jobs that have ended or have a cancel request are passed
   * over; a store may pass over what an open transaction holds, too.
   * Returns how many it changed. Repeat: changes, and counts, only what is left.
   */
  cancelBatch(jobs: readonly JobRecord[], retention: (name: string) => RetentionMs): Promise<number>;
  /** As `retry` for a list, with the same preconditions. Returns how many it retried. Repeat: counts what is left. */
  retryBatch(jobs: readonly JobRecord[], now: Date): Promise<number>;
  /** As `remove` for a list, with the same precondition. Returns how many it deleted. Repeat: counts what is left. */
  removeBatch(jobs: readonly JobRecord[]): Promise<number>;
  /**
   * Cancels jobs that did not start in time, oldest first and up to 500, or only those of `ids`: `pending` →
   * `cancelled`, with `failReason` `expired`. It passes over what an open transaction holds.
   * Precondition: still pending, and `startBy` has passed by the server's clock.
   * Returns what it changed. Repeat: changes only what is left.
   * Caller: the expirer, if `DueSummary.expiresAt` has passed; the enqueuer, for a job that holds a unique key. Absent:
   * the enqueuer refuses `expireIn`.
   */
  expire?(retention: (name: string) => RetentionMs, ids?: readonly string[]): Promise<readonly JobRecord[]>;
  /**
   * Releases successors whose predecessor has ended: `pending` → `pending`, due at `successorRunAt`, with their unique
   * key. Wakes instances.
   * Precondition: no live job has the key (unique index).
   * Returns how many it released. Repeat: safe, also on several instances at once.
   * Caller: the cleaner, once a minute on one instance, for what a crash or an older version left behind. Absent: the
   * enqueuer refuses `onExisting` and `debounce`.
   */
  releaseSuccessors?(): Promise<number>;
  /**
   * Deletes jobs whose `expiresAt` is `now` or earlier. A store may delete other things whose time is over, too.
   * Returns how many jobs it deleted. Repeat: safe, also on several instances at once. Absent if the database does it
   * by itself.
   * Caller: the cleaner, once a minute on one instance of the cluster.
   */
  sweep?(now: Date): Promise<number>;
}
