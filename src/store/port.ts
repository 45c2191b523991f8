/**
 * The store port: what Tidemill needs of a database. Begin with `Store` at the end of this file, which names the ports
 * by role, then read `JobStore` and `InstanceStore` here and `WorkStore` in work.ts. README.md lists which ports each
 * feature needs, and the rules that every store keeps.
 *
 * One method is one transition, atomic per job. A store records what its caller decided, and decides nothing itself.
 * Method comments use these words:
 * - Precondition: it belongs inside the write. What does not match stays as it is.
 * - Repeat: what a second call with the same arguments does, after the answer to the first was lost.
 * - Caller: who calls it, if the name does not tell. The facts in src/testing/conformance are proved on every store.
 */
import type { Clock } from '../core/clock.js';
import type { FailureLine } from '../core/records/failure-groups.js';
import type { FieldValues } from '../core/fields.js';
import type { Attempt, JobRecord, JobStatus, LogLine, MissedPolicy } from '../core/records/job.js';
import type { PayloadRules } from '../core/payload.js';
import type { TraceContext } from '../core/tracer.js';
import type { FailureKind } from '../core/records/work.js';
import type { AuditStore } from './audit.js';
import type { ChangeStore } from './changes.js';
import type { DocumentJobStore, DocumentPlace } from './documents.js';
import type { Finding } from './inspect.js';
import type { Leases } from './leases.js';
import type { LimitStore, ScopeRef } from './limits.js';
import type { LockStore } from './lock.js';
import type { MetricsStore } from './metrics.js';
import type { Partitioned } from './partitions.js';
import type { ReactiveStore } from './reactive.js';
import type {
  Claimant,
  Cluster,
  DueNames,
  FailedRun,
  Hint,
  Instance,
  InstanceState,
  Lease,
  Note,
  TaskAdvert,
  TimeRange,
  WakeUp,
  WorkStore,
} from './work.js';

export {
  FAILURE_SLICES,
  isKeyedScope,
  scopeText,
  WAITING_MS,
  type BreakerRule,
  type BreakerState,
  type KeyedScope,
  type KeyRule,
  type KeyUse,
  type LimitStore,
  type RateLimit,
  type Refusal,
  type ScopeAsk,
  type ScopeDefinition,
  type ScopeGrant,
  type ScopeHolder,
  type ScopeKind,
  type ScopeLimits,
  type ScopeRecord,
  type ScopeRef,
  type UnusedStarts,
} from './limits.js';
export type { LockAnswer, LockManner, LockOwner, LockStore } from './lock.js';
export type { MetricsStore } from './metrics.js';
export {
  leasesOf,
  NOTHING,
  readLeases,
  runsOf,
  type InstanceLease,
  type Leases,
  type Runs,
} from './leases.js';
export {
  capFor,
  EVERYTHING,
  isPausedIn,
  leaseOf,
  lifeOf,
  type ClaimAnswer,
  type ClaimRequest,
  type Claimant,
  type Cluster,
  type ClusterBrief,
  type Depth,
  type DepthRequest,
  type FailedRun,
  type DueNames,
  type DueSummary,
  type Hint,
  type InForce,
  type Instance,
  type InstanceState,
  type Leader,
  type Lease,
  type KeyTurns,
  type NameLimit,
  type Note,
  type SettleAnswer,
  type StrayQuery,
  type TaskAdvert,
  type TimeRange,
  type WakeUp,
  type WorkStore,
} from './work.js';

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

/**
 * What the end of an attempt writes to a job; `conclude` in src/jobs decides it. The store also sets `updatedAt`, sets
 * `lockedAt` to null, and takes off `claimedBy`, `lastHeartbeat`, `heartbeatInterval` and `startedToken`.
 */
export interface Settlement {
  readonly lease: Lease;
  /** `completed`, `failed` or `cancelled`; or `pending`, for another attempt or the next run. */
  readonly status: JobStatus;
  readonly set: SettledFields;
  /** Of a recurring job: write only if `scheduleRev` is still this; otherwise return `changed`. */
  readonly ifRev?: number;
  /** The job ends, and its successor takes this key: the store releases it. Absent: `followed` must not be set. */
  readonly releases?: UniqueKey;
  /** Appended to `history`, of which the last `historyLimit` entries stay, at least one. */
  readonly entry?: Attempt;
  readonly historyLimit: number;
  /** Appended to `logs`, of which the last 100 stay. */
  readonly logs?: readonly LogLine[];
  /**
   * Retention 0: delete the job instead of writing to it. A store that knows of a watcher writes to it all the same, so
   * that its last state can be read, and leaves it to `sweep`.
   */
  readonly remove?: boolean;
  /**
   * The handler was not called. If the claim counted a start of the job's key (`KeyRule.rate`), it counts no more: by
   * the lease's `lockedAt`, in the same write or, if that is lost, not at all. A repeat gives nothing back again.
   */
  readonly unstarted?: true;
  /**
   * A job to store if and only if this settlement is written, and in the same write: none → `pending`. It has an id that
   * follows from the lease, so that a repeat of the call stores it once. Wakes instances.
   */
  readonly letter?: NewJob & { readonly id: string };
  /**
   * `holder`: leave the token on the job, so that a repeated settlement recognises itself. `reclaimer`: take it off,
   * so that a late settlement of the dead holder is `lost`.
   */
  readonly by: 'holder' | 'reclaimer';
}

/** A unique key, which counts within the name. */
export interface UniqueKey {
  readonly name: string;
  readonly uniqueKey: string;
}

/**
 * An absent field stays as it is. Null takes a field off, except `result` and `progress`, of which null is a value.
 * One batch may share one `finishedAt` and `expiresAt`.
 */
export interface SettledFields {
  readonly nextRunAt?: Date;
  readonly scheduledFor?: Date;
  readonly failCount?: number;
  readonly failReason?: string | null;
  readonly failKind?: FailureKind | null;
  readonly firstFailedAt?: Date | null;
  readonly result?: unknown;
  readonly progress?: unknown;
  readonly finishedAt?: Date | null;
  readonly expiresAt?: Date | null;
  readonly cancelRequestedAt?: null;
  /** The job has started. */
  readonly startBy?: null;
  readonly debouncedAt?: null;
}

/** What `update` changes; absent fields stay. */
export interface JobChanges {
  /** Wrapped, so that null is a payload too. */
  readonly data?: { readonly value: unknown };
  readonly priority?: number;
  readonly nextRunAt?: Date;
  /** Without `nextRunAt`, its place in the order of keys, `limitOrder`, stays. */
  readonly limitKey?: string;
}

/** Which jobs: all parts that are given must match; of a list, one of its values. */
export interface JobFilter {
  readonly ids?: readonly string[];
  readonly name?: readonly string[];
  readonly status?: readonly JobStatus[];
  readonly uniqueKey?: readonly string[];
  readonly createdAt?: TimeRange;
  readonly updatedAt?: TimeRange;
  readonly nextRunAt?: TimeRange;
  /** Text contained in `failReason`, in upper or lower case. */
  readonly error?: string;
  /** Parts of the payload, by dot path, and the values that they have. No text in it is ever an operator. */
  readonly data?: FieldValues;
}

/** One page of a list, in the order of `field`, ties by id. */
export interface Page {
  readonly field: 'createdAt' | 'updatedAt' | 'nextRunAt';
  readonly direction: 1 | -1;
  readonly limit: number;
  /** Start after this job, in the given direction. `key` is what `cursorKey` returned for it. */
  readonly after?: { readonly at: Date; readonly key: string };
}

export interface Found {
  readonly jobs: readonly JobRecord[];
  /** There is a next page. */
  readonly more: boolean;
  /** The store's time limit was reached: there may be more than was found, and `jobs` may be empty. */
  readonly partial: boolean;
}

export interface Ends {
  /** Completed, failed or cancelled, as whole records. */
  readonly ended: readonly JobRecord[];
  /** Ids alone: the caller polls for a job's end, and its payload may be large. */
  readonly live: readonly string[];
}

export type StatusCounts = Readonly<Record<JobStatus, number>>;

export interface NameCounts {
  readonly name: string;
  readonly counts: StatusCounts;
  /** Statuses of which there are more than `counts` says. */
  readonly capped: readonly JobStatus[];
}

/** A schedule as `putSchedule` is to leave it. `cron`, `timezone`, `startAt` and `repeatUntil` are its times. */
export interface ScheduleChange {
  readonly name: string;
  /** With the name, it identifies the schedule: its id is `scheduleId(name, key)`. Unrelated to unique keys of jobs. */
  readonly key: string;
  readonly data: unknown;
  /** Stored as `repeatInterval`. */
  readonly cron: string;
  readonly timezone: string;
  readonly startAt?: Date;
  readonly repeatUntil?: Date;
  readonly missed: MissedPolicy;
  readonly priority: number;
  /** As `NewJob.limitKey`. Runs of schedules have no `limitOrder`. */
  readonly limitKey?: string;
  readonly retryPolicy?: unknown;
  readonly timeoutMs?: number;
  /** The first run by the new times; `putSchedule` says when it counts. */
  readonly firstRunAt: Date;
  /** The caller's estimate of the server's time. */
  readonly now: Date;
}

/** How long finished jobs are kept, by the state in which they ended. 0: not at all, or until the next sweep. */
export interface RetentionMs {
  readonly completed: number;
  readonly failed: number;
  readonly cancelled: number;
}

/** What enqueuing, managing and scheduling ask of jobs, beside what the engine asks (`WorkStore`). */
export interface JobStore<Tx = unknown> extends WorkStore<JobRecord, Settlement, Tx> {
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
  /**
   * As `held` for one lease, read through the caller's transaction, which may have taken the last connection.
   * Returns the record, or undefined if it is not held under its token. Repeat: safe. The driver's errors pass
   * unchanged.
   * Caller: `complete()`, after `settleIn` returned `lost`: the schedule may merely have changed.
   */
  heldIn(lease: Lease, transaction: Tx): Promise<JobRecord | undefined>;
  /** Tells of jobs that change, for `jobs.watch()`. Absent: watchers poll. */
  readonly changes?: ChangeStore;
  /** As `WorkStore.note`; every store of jobs has it. */
  note(notes: readonly Note[]): Promise<void>;
  /** As `WorkStore.cancelRequests`; every store of jobs has it. */
  cancelRequests(leases: readonly Lease[]): Promise<readonly Lease[]>;
  /** As `WorkStore.insertFailedRun`; every store of jobs has it. */
  insertFailedRun(of: JobRecord, failure: FailedRun): Promise<void>;

  /** Returns the job with this id, in any state, or undefined if there is none. Repeat: safe. */
  get(id: string): Promise<JobRecord | undefined>;
  /**
   * Returns which of these jobs have ended and which are live, as of one moment; an id in neither list does not exist.
   * Repeat: safe.
   * Caller: `jobs.result()` and `cancel({ wait })`, which poll.
   */
  ends(ids: readonly string[]): Promise<Ends>;
  /**
   * Returns one page of the jobs that match. It ends after a time limit of the store's own, and says so in `partial`.
   * Repeat: safe.
   */
  find(filter: JobFilter, page: Page): Promise<Found>;
  /** Returns the text that stands for a record in `Page.after`. Only this store reads it. */
  cursorKey(record: JobRecord): string;
  /**
   * Returns how many jobs match, `most` at the highest. Without `most` it counts all, however long that takes.
   * Repeat: safe.
   * Errors: with `most`, a `TidemillError` with the code `TIME_LIMIT` if the store's time limit is reached.
   */
  count(filter: JobFilter, most?: number): Promise<number>;
  /**
   * Returns counts by name and status, and about how many jobs there are in all. Counting stops at a limit that
   * follows from `cap`: a store may share `cap` among the names, but counts at least 1,000 of each, or `cap` if that
   * is less. Repeat: safe.
   */
  stats(cap: number): Promise<{ readonly names: readonly NameCounts[]; readonly total: number }>;
  /**
   * Returns what the newest `limit` failed jobs say, of one name or of all. Of all names the newest are those updated
   * last; of one name a store may go by `createdAt`, if that is what its index has in order. Repeat: safe.
   */
  failures(limit: number, name?: string): Promise<readonly FailureLine[]>;
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
   * Yields the jobs that match, each once, in lists of up to `batch`; it never reads a whole collection at once.
   * Payload, result, progress, logs and history may be missing. The caller changes each list before it asks for more.
   * Caller: `cancelMany`, `retryMany` and `removeMany`, which pass each list to the method of the same name below.
   */
  each(filter: JobFilter, batch: number): AsyncIterable<readonly JobRecord[]>;
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
   * Deletes jobs whose `expiresAt` is `now` or earlier. A store may delete other things whose time is over, too.
   * Returns how many jobs it deleted. Repeat: safe, also on several instances at once. Absent if the database does it
   * by itself.
   * Caller: the cleaner, once a minute on one instance of the cluster.
   */
  sweep?(now: Date): Promise<number>;

  /**
   * Creates or changes a schedule, in one upsert by `scheduleId(name, key)`; the precondition is in its branches:
   *
   * | before | after |
   * |---|---|
   * | none, or ended | `pending`, due at `firstRunAt`, not paused, `failCount` 0 |
   * | `pending`, not paused, other times | `pending`, due at `firstRunAt`, `failCount` 0 |
   * | any other difference | the new fields; state, lease, due time and pause stay |
   * | no difference | as it was |
   *
   * A change raises `scheduleRev`: the settlement of a run in progress then is `changed`. Wakes instances.
   * Returns the schedule as it is then. Repeat: no effect. Errors: `outcomeUnknown`, as `insert`.
   */
  putSchedule(change: ScheduleChange): Promise<JobRecord>;
  /** Returns all schedules, ended ones included, or those of one name, by name and key. Repeat: safe. */
  schedules(name?: string): Promise<readonly JobRecord[]>;
  /** Returns one schedule, in any state, or undefined if there is none. Repeat: safe. */
  schedule(name: string, key: string): Promise<JobRecord | undefined>;
  /**
   * Deletes a schedule: any state → gone, without a precondition. If it runs, the settlement of that run is `lost`.
   * Returns whether there was one. Repeat: false.
   */
  removeSchedule(name: string, key: string): Promise<boolean>;
  /**
   * Pauses or resumes a schedule, and raises `scheduleRev`. `pending` → the same, due at `NEVER` if `paused`, else at
   * `nextRunAt`; `processing` → the same: its settlement is `changed`, and decided again. Wakes instances.
   * Precondition: pending or processing, and not already as `paused` says.
   * Returns the schedule as it is then, changed or not; undefined: no such schedule. Repeat: no effect.
   */
  pauseSchedule(name: string, key: string, paused: boolean, nextRunAt: Date): Promise<JobRecord | undefined>;
  /**
   * Brings the next run forward, paused or not: `pending` → `pending`, due at `now`; a run that is overdue keeps its
   * time, so that missed runs still count. Wakes instances.
   * Precondition: still pending.
   * Returns `due`; `running` if a run is in progress; undefined if it has ended or does not exist. Repeat: no effect.
   */
  runScheduleNow(
    name: string,
    key: string,
    now: Date,
  ): Promise<{ outcome: 'due' | 'running'; job: JobRecord } | undefined>;

  /**
   * Pauses a name: `ClusterBrief.paused` lists it, and no claim takes its jobs. Running jobs continue. Wakes instances, so
   * that they hand back what they took ahead. `EVERYTHING` pauses all names, of reactive tasks as well: their briefs list
   * it, too. Pauses of single names stay as they are. Repeat: no effect.
   */
  pauseName(name: string): Promise<void>;
  /** Ends the pause of a name, or that of `EVERYTHING`, and wakes instances. Repeat: no effect. */
  resumeName(name: string): Promise<void>;
  /**
   * Returns whether a name, or everything, is paused. Repeat: safe.
   * Caller: people; document schedules, which ask about `EVERYTHING` at most once a second.
   */
  isPaused(name: string): Promise<boolean>;
  /**
   * Returns whether jobs of a name start by a claim only: the name, or everything, is paused, or the name has limits.
   * As cheap as `isPaused`. Repeat: safe.
   * Caller: the engine, for each job that is stored for a free slot of its own.
   */
  isHeldUp(name: string): Promise<boolean>;
}

/** What an instance says of itself, with each renewal. */
export interface Registration extends Instance {
  /** Names of the jobs that it runs. They may contain any character. */
  readonly names: readonly string[];
  /** The reactive tasks that it runs, each with its definition. */
  readonly tasks: readonly TaskAdvert[];
  /** Retry policies by name, and under '' the names of dead letters; `fence` returns them to the reclaimer, which judges this instance's work by them. */
  readonly policies: Readonly<Record<string, unknown>>;
  readonly host: string;
  readonly pid: number;
  /** How long the lease holds, from the server's time of the write. */
  readonly leaseMs: number;
  /** How much it runs at once; only shown to people. */
  readonly capacity?: Capacity;
  /** As `InstanceState.plans`. */
  readonly plans?: number | null;
}

/** How much an instance runs at once: in all, and of each name. */
export interface Capacity {
  readonly slots: number;
  readonly jobs: readonly (readonly [name: string, limit: number])[];
  readonly tasks: readonly (readonly [task: string, limit: number])[];
}

/** True while an instance is not fenced and its lease has not ended by the server's clock. */
export const isAlive = ({ dead, leftMs }: Pick<InstanceState, 'dead' | 'leftMs'>): boolean =>
  !dead && leftMs > 0;

/** An instance as people look at it. */
export interface InstanceDetails extends InstanceState {
  readonly host: string;
  readonly pid: number;
  /** Absent if it runs an older version of Tidemill. */
  readonly capacity?: Capacity;
}

/** The process that has the `instanceId` for which another one asks. */
export interface Rival {
  readonly life: string;
  readonly host: string;
  readonly pid: number;
  /** Its lease has ended by the server's clock: it is dead, or was cut off and is about to renew. */
  readonly expired: boolean;
}

/** Who is alive: none → alive (`register`) → dead (`fence`) → gone (`bury`), or alive → gone (`deregister`). */
export interface InstanceStore {
  /**
   * Adds an instance: none → alive, with a lease that begins now by the server's clock.
   * Precondition: no other life with its `instanceId` is registered, unless that is fenced (unique index). If
   * `takeOver` names such a life, and its lease has ended, the store fences it first.
   * Returns `{}`, or `refusedBy` with the rival; nothing is registered then.
   * Repeat: `{}` for the same life.
   * Caller: the lease keeper, at the start and after a lost lease, with a new life each time.
   */
  register(registration: Registration, takeOver?: string): Promise<{ refusedBy?: Rival }>;
  /**
   * Extends a lease: alive → alive until `leaseMs` from now by the server's clock, and replaces what was registered.
   * Precondition: this life is registered and not fenced. A lease that is over and was not fenced is renewed as well.
   * Returns `renewed`, or `lost`: then the lease keeper begins a new life. The answer also corrects the store's clock.
   * Repeat: safe.
   * Errors: a transient `StoreError` after about a third of the lease without an answer, so that there is time to try
   * again.
   */
  renew(registration: Registration): Promise<'renewed' | 'lost'>;
  /**
   * Removes an instance, in any state → gone, without a precondition. Repeat: no effect.
   * Caller: the lease keeper, at the end of a stop.
   */
  deregister(instance: Instance): Promise<void>;
  /**
   * Returns the whole cluster, with the names that each instance runs. Repeat: safe.
   * Caller: what people ask for, and the leader, now and then.
   */
  list(): Promise<Cluster>;
  /**
   * Returns the same as `leasesOf(await list())`, without what each instance runs. Repeat: safe. Absent: the engine
   * calls `list`.
   * Caller: each instance, about three times per lease.
   */
  leases?(): Promise<Leases>;
  /**
   * Returns the same as `list`, with host, process and capacity of each instance, as of one moment. Repeat: safe.
   * Caller: `mill.instances()` and `mill.why()`.
   */
  describe(): Promise<{ readonly cluster: Cluster; readonly instances: readonly InstanceDetails[] }>;
  /**
   * Declares an instance dead: alive → dead. From then on its `renew` returns `lost`, for good.
   * Precondition: its lease is over by the server's clock, or it is dead already.
   * Returns its policies, also for one that was dead before; undefined if it lives, is gone, or cannot be written now.
   * A store that can also ends the open transactions of that life.
   * Repeat: returns the policies again.
   * Caller: the reclaimer, and the election of a leader, once the failure detector allows it.
   */
  fence(instance: Instance): Promise<{ policies: Readonly<Record<string, unknown>> } | undefined>;
  /**
   * Forgets a dead instance: dead → gone.
   * Precondition: dead; otherwise nothing happens. Repeat: no effect.
   * Caller: the reclaimer, once `heldBy` is empty for every kind of work.
   */
  bury(instance: Instance): Promise<void>;
}

/** What a wake-up is about. */
export type WorkKind = 'jobs' | 'tasks';

/** An open wake-up channel. It only shortens a wait: the poll finds everything. */
export interface Watch {
  /** Ends the channel; no handler is called afterwards. Repeat: no effect. */
  close(): Promise<void>;
}

/** Called by the store for what happens on any instance, also for writes of this process. */
export interface WatchHandlers {
  /**
   * Work of this kind may be due, or its pauses have changed; a hint names one job. With `due`, it concerns those names
   * only, so that other instances can ignore it.
   */
  readonly wake: (what: WorkKind, hint?: Hint, due?: DueNames) => void;
  /** A running job was asked to cancel: the engine calls `cancelRequests`. */
  readonly cancel: () => void;
  /** Definitions, leadership or reconciliation requests have changed; for the instances that may plan. */
  readonly news: () => void;
  /**
   * Permits of these scopes were given back while others wait for them, or their limits or breakers have changed. A
   * store may name more scopes than it has to.
   */
  readonly freed: (scopes: readonly ScopeRef[]) => void;
  /**
   * The channel broke, maybe before `watch` resolved; what it resolves to is dead then. The poll covers the gap until
   * the listener opens another one.
   */
  readonly broken: (error: unknown) => void;
  /** A connection broke while nothing used it. The store replaces it, and the listener reports the error. */
  readonly fault?: (error: unknown) => void;
}

/** Too few of something that calls wait for, such as connections. */
export interface Shortage {
  /** What there is too little of, who has it, and what to do. */
  readonly text: string;
  /** How long the store's own statements have been waiting for it; 0 if only those of callers wait. */
  readonly stuckMs: number;
}

/** A store: the ports by role, and how it is opened. README.md says which ports a feature needs. */
export interface Store<Tx = unknown> {
  /** Its name in messages. */
  readonly kind: string;
  /** How wake-ups arrive. `direct`: none is ever lost, so that instances need not poll. Default: `stream`. */
  readonly wakeUp?: Exclude<WakeUp, 'poll'>;
  /**
   * The store's estimate of the server's clock, and timers. A store learns the time when it opens and with renewals.
   */
  readonly clock: Clock;
  /** What payloads may contain beyond JSON values and dates. */
  readonly payload: PayloadRules;
  /** Largest payload, result or progress value. */
  readonly maxPayloadBytes: number;
  /** Jobs and schedules. */
  readonly jobs: JobStore<Tx>;
  /** Leases of instances. */
  readonly instances: InstanceStore;
  /** `withLock`, and work that one instance does for the cluster. */
  readonly locks: LockStore;
  /** Limits of the cluster. Absent: definitions with limits are refused. */
  readonly limits?: LimitStore;
  /** Counts and minutes of all instances. */
  readonly metrics: MetricsStore;
  /** Who did what by hand. */
  readonly audit: AuditStore;
  /** Reactive tasks. Absent if the store's data cannot be watched. */
  readonly reactive?: ReactiveStore<Tx> & Partitioned;
  /**
   * Returns the documents of one place, for a scheduler; nothing is opened yet. Throws an `OptionError` for a place
   * that cannot be right. Its `open` and `close` hold and release this store. Absent if it keeps no documents of
   * users.
   */
  documents?(place: DocumentPlace): DocumentJobStore;
  /**
   * Loads the code that this store otherwise loads on the first call that needs it, so that no later call waits for the
   * module loader. Repeat: no effect. Absent: nothing is left to load.
   * Caller: an instance at its start.
   */
  loadParts?(): Promise<void>;
  /**
   * Adds a holder. For the first one it opens the store, makes or checks its schema, and reads the server's clock.
   * Resolves when calls can be made. Repeat: safe; a holder counts once. After an error the next call tries again.
   * Caller: each mill before each of its calls, and each scheduler of documents.
   */
  acquire(holder: object): Promise<void>;
  /**
   * Removes a holder. After the last one it closes the connections that the store opened itself; later calls throw a
   * transient `StoreError` until the next `acquire`. Repeat: no effect.
   */
  release(holder: object): Promise<void>;
  /**
   * Opens a wake-up channel. Resolves when every wake-up from now on is heard.
   * Returns the channel, or `unavailable` with the reason if there are no notifications; the engine polls then, and
   * asks again from time to time. Repeat: each call opens a channel of its own.
   * Errors: it could not be opened just now; the listener tries again.
   */
  watch(handlers: WatchHandlers): Promise<Watch | { readonly unavailable: string }>;
  /**
   * Runs `work` in a transaction: commits when it resolves, rolls back when it rejects, and returns what it returned.
   * A store may call `work` again if the transaction meets another one.
   * Caller: `mill.withTransaction()`.
   */
  transaction<T>(work: (transaction: Tx) => Promise<T>): Promise<T>;
  /**
   * Returns what calls wait for besides the database itself, or undefined while nothing is short. No call to the
   * database.
   * Caller: `mill.health()`. Absent if nothing can be short.
   */
  shortage?(): Shortage | undefined;
  /**
   * Throws if the running code is inside a transaction, and a call without that transaction would wait for it for
   * ever.
   * Caller: code that gathers calls, in the name of each caller, before it makes them in another's place. Absent if no
   * call can wait like that.
   */
  checkOutside?(): void;
  /** Returns what is wrong with the server and with what the store made there; changes nothing. For `mill.doctor()`. */
  inspect?(): Promise<readonly Finding[]>;
  /** Deletes all that the store made, with all work in it. Caller: tools, for places that they made for themselves. */
  erase?(): Promise<void>;
  /**
   * Returns true for a handle that this store's `transaction` options accept. It may throw an `OptionError` that
   * explains a likely mistake, such as a pool instead of a client.
   */
  isTransaction(value: unknown): value is Tx;
}

/** The transaction handle of a store. */
export type TransactionOf<S> = S extends Store<infer Tx> ? Tx : never;
