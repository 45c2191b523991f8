/** Enqueuing: what a new job is, and how a store takes it. */
import type { Attempt, JobRecord, JobStatus } from '../../core/records/job.js';
import type { FailureKind } from '../../core/records/work.js';
import type { TraceContext } from '../../core/tracer.js';
import type { Claimant } from '../work.js';

/** What `insert` does if a live job has the unique key of a new one. */
export type OnExisting =
  | { readonly kind: 'replace' }
  | { readonly kind: 'reschedule' }
  /** As `replace`, due `waitMs` after `createdAt`, and `maxWaitMs` after the first such call at the latest. */
  | { readonly kind: 'debounce'; readonly waitMs: number; readonly maxWaitMs: number };

/** A job to be stored. The enqueuer has checked it and filled in every default; a store writes it as it is. */
export interface NewJob {
  /**
   * Made by `newId` before the first write, so that a repeated insert finds its own job. Absent: the store makes one.
   */
  readonly id?: string;
  /** The user chose the id: if a job has it, in any state, `insert` returns that job as `existing`. */
  readonly ownId?: boolean;
  readonly name: string;
  readonly data: unknown;
  /** `pending`; with a `past` also `failed`. A store writes `processing` instead if `claim` is given. */
  readonly status: JobStatus;
  /** A whole number from -10 to 10; higher comes first within the name. */
  readonly priority: number;
  /** When it is due. */
  readonly nextRunAt: Date;
  /** The producer's estimate of the server's time. */
  readonly createdAt: Date;
  /** At most one live job, pending or processing, has this key and name. Absent: no limit. */
  readonly uniqueKey?: string;
  /** Whose turn it takes under `NameLimit.keys`; up to 1,024 characters, any text. Absent: ''. */
  readonly limitKey?: string;
  /**
   * Its place among the jobs of its key under `KeyRule.order`, ASCII text compared by code units; `orderOf` made it.
   * `retry` and whatever moves the due time of a pending job change it; the end of an attempt does not.
   */
  readonly limitOrder?: string;
  /** Given only with `uniqueKey`, and without `claim`. Absent: the live job stays as it is. */
  readonly onExisting?: OnExisting;
  /** No claim takes the job from this time on; `expire` cancels it. Absent: no limit. */
  readonly startBy?: Date;
  /** Kept for `conclude`; opaque to the store. */
  readonly retryPolicy?: unknown;
  readonly timeoutMs?: number;
  /** Where the request for it stands in a trace. */
  readonly trace?: TraceContext;
  /**
   * Wake the instances that listen with `watch`, best effort, since the call stores this many due jobs of this name.
   * 0: it stores jobs of many names, so a wake-up names none. Absent: wake nobody for this job.
   */
  readonly wake?: number;
  /** Store it as claimed: the process that enqueues it has a free slot, and runs it at once. */
  readonly claim?: Claimant;
  /** Stored in the same write. Given only with an id of the caller's own, without `claim` and `onExisting`. */
  readonly past?: Past;
}

/**
 * What had happened to a job before it was stored, in another system. Only `tidemill import` gives it, which opens the
 * stores of this package; a store of yours may ignore it.
 */
export interface Past {
  readonly failCount: number;
  readonly failReason?: string;
  readonly failKind?: FailureKind;
  readonly firstFailedAt?: Date;
  readonly finishedAt?: Date;
  readonly expiresAt?: Date;
  readonly history?: readonly Attempt[];
}

export interface Inserted {
  readonly job: JobRecord;
  /**
   * `created`: this call stored it. `existing`: a job in any state has its id, or a live job its name and unique key;
   * `job` is that one. If a repeated insert finds its own job under an id that the store made, either may be returned.
   * `replaced`, `rescheduled`: `job` is the pending one that `onExisting` has changed.
   */
  readonly outcome: 'created' | 'existing' | 'replaced' | 'rescheduled';
}

/** What the enqueuer asks of a store. */
export interface EnqueueStore<Tx = unknown> {
  /**
   * Returns a new id, unlike any other, without a call to the database. Ids that grow with time let older jobs go
   * first when priority and due time are equal. `createdAt` is that of the job, if the caller knows it: a store may
   * begin the id with it.
   * Caller: the enqueuer, before the first insert of a job.
   */
  newId(createdAt?: Date): string;
  /**
   * Stores jobs: none → `pending`, or `processing` if `claim` is given.
   * Precondition, for each: no job has its id, and no live job its name and unique key. A unique index decides.
   * Returns an `Inserted` for each, in order; of twins in one call the first is stored, the others are `existing`. It
   * may wait for a key that an open transaction holds. With `transaction`, the jobs exist once that commits.
   * With `onExisting`, the live job of the name and key decides:
   *
   * | live job | `replace`, `debounce` | `reschedule` |
   * |---|---|---|
   * | none | created | created |
   * | pending | `replaced`: payload, options and due time of the new job, `failCount` 0 | `rescheduled`: its due time |
   * | pending or processing, and a successor waits | the successor is `replaced` | as without a successor |
   * | processing | created as its successor, and the live job is `followed` | existing |
   *
   * A successor is pending, due at `NEVER`, with `successorKey` and without `uniqueKey`; at most one waits for a key
   * (unique index). The write that ends the live job releases it, or `releaseSuccessors` after a crash in between.
   * Repeat: safe with the same ids; nothing is stored twice.
   * Errors: `outcomeUnknown` is true if something may have been stored. With `transaction` the driver's own pass
   * unchanged, so that the caller's transaction can be tried again.
   */
  insert(jobs: readonly NewJob[], transaction?: Tx): Promise<readonly Inserted[]>;
  /**
   * As `insert`, without waiting for an open transaction: returns undefined for a job whose unique key, or own id,
   * such a transaction holds, and stores nothing for it. Absent if no insert ever waits; then the enqueuer calls
   * `insert`.
   * Repeat: safe, as `insert`.
   * Caller: the enqueuer, for calls that it gathers. It tries the undefined ones again every 200 ms, for 30 s.
   */
  insertFree?(jobs: readonly NewJob[]): Promise<readonly (Inserted | undefined)[]>;
}
