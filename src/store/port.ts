/**
 * The store port: what the engine needs of a database. One method per transition; each is atomic per job, takes a
 * batch, and has its precondition inside the write. A store records what the engine decided and decides nothing itself.
 */
import type { Clock } from '../core/clock.js';
import type { FailureLine } from '../core/records/failure-groups.js';
import type { FieldValues } from '../core/fields.js';
import type { Attempt, JobRecord, JobStatus, LogLine, MissedPolicy } from '../core/records/job.js';
import type { PayloadRules } from '../core/payload.js';
import type { TraceContext } from '../core/tracer.js';
import type { FailureKind } from '../core/records/work.js';
import type { AuditStore } from './audit.js';
import type { DocumentJobStore, DocumentPlace } from './documents.js';
import type { Finding } from './inspect.js';
import type { LockStore } from './lock.js';
import type { MetricsStore } from './metrics.js';
import type { ReactiveStore } from './reactive.js';
import type {
  Claimant,
  Cluster,
  FailedRun,
  Hint,
  Instance,
  InstanceState,
  Lease,
  Note,
  TaskAdvert,
  TimeRange,
  WorkStore,
} from './work.js';

export type { LockAnswer, LockManner, LockOwner, LockStore } from './lock.js';
export type { MetricsStore } from './metrics.js';
export {
  capFor,
  leaseOf,
  type ClaimAnswer,
  type ClaimRequest,
  type Claimant,
  type Cluster,
  type Depth,
  type DepthRequest,
  type FailedRun,
  type DueSummary,
  type Hint,
  type Instance,
  type InstanceState,
  type Leader,
  type Lease,
  type NameLimit,
  type Note,
  type SettleAnswer,
  type StrayQuery,
  type TaskAdvert,
  type TimeRange,
  type WakeUp,
  type WorkStore,
} from './work.js';

export interface NewJob {
  /** Made before the first write, so that a repeat of it is harmless. */
  readonly id?: string;
  /** The id is the user's own: a repeated call with it answers the first job. */
  readonly ownId?: boolean;
  readonly name: string;
  readonly data: unknown;
  readonly status: JobStatus;
  readonly priority: number;
  readonly nextRunAt: Date;
  readonly createdAt: Date;
  readonly uniqueKey?: string;
  readonly retryPolicy?: unknown;
  readonly timeoutMs?: number;
  /** Where the request for it stands in a trace. */
  readonly trace?: TraceContext;
  /** Asks the store to wake waiting instances. */
  readonly wake?: boolean;
  /** Stored as claimed already: the process that asks for it has a free slot, and runs it at once. */
  readonly claim?: Claimant;
}

export interface Inserted {
  readonly job: JobRecord;
  /** `existing`: the id, or the unique key, was taken by a live job, which is the one answered. */
  readonly outcome: 'created' | 'existing';
}

/** What an attempt's end writes. */
export interface Settlement {
  readonly lease: Lease;
  readonly status: JobStatus;
  readonly set: SettledFields;
  /** Written only if the schedule is still at this revision; otherwise the answer is `changed`. */
  readonly ifRev?: number;
  readonly entry?: Attempt;
  readonly historyLimit: number;
  readonly logs?: readonly LogLine[];
  /** Retention 0: the job is deleted instead of kept. */
  readonly remove?: boolean;
  /** The holder leaves its token on the job, so that a repeated settlement finds itself done; a reclaimer takes it off. */
  readonly by: 'holder' | 'reclaimer';
}

/** Null takes a field off. */
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
}

export interface JobFilter {
  readonly ids?: readonly string[];
  readonly name?: readonly string[];
  readonly status?: readonly JobStatus[];
  readonly uniqueKey?: readonly string[];
  readonly createdAt?: TimeRange;
  readonly updatedAt?: TimeRange;
  readonly nextRunAt?: TimeRange;
  /** Text contained in the failure's message. */
  readonly error?: string;
  /** Parts of the payload and the values that they have. */
  readonly data?: FieldValues;
}

export interface Page {
  readonly field: 'createdAt' | 'updatedAt' | 'nextRunAt';
  readonly direction: 1 | -1;
  readonly limit: number;
  /** Start after this job, in the given direction. `key` is text that the store wrote itself. */
  readonly after?: { readonly at: Date; readonly key: string };
}

export interface Found {
  readonly jobs: readonly JobRecord[];
  readonly more: boolean;
  /** The time limit was reached: there may be more than was found. */
  readonly partial: boolean;
}

export interface Ends {
  readonly ended: readonly JobRecord[];
  /** Ids alone: somebody who waits for a job asks often, and its payload may be large. */
  readonly live: readonly string[];
}

export type StatusCounts = Readonly<Record<JobStatus, number>>;

export interface NameCounts {
  readonly name: string;
  readonly counts: StatusCounts;
  /** Statuses of which there are more than the count says. */
  readonly capped: readonly JobStatus[];
}

export interface ScheduleChange {
  readonly name: string;
  readonly key: string;
  readonly data: unknown;
  readonly cron: string;
  readonly timezone: string;
  readonly startAt?: Date;
  readonly repeatUntil?: Date;
  readonly missed: MissedPolicy;
  readonly priority: number;
  readonly retryPolicy?: unknown;
  readonly timeoutMs?: number;
  /** The first run under the new rule; used where the schedule is new, ended, or its times changed. */
  readonly firstRunAt: Date;
  readonly now: Date;
}

export interface RetentionMs {
  readonly completed: number;
  readonly failed: number;
  readonly cancelled: number;
}

export interface JobStore<Tx = unknown> extends WorkStore<JobRecord, Settlement, Tx> {
  /** A new id, unlike any other. */
  newId(): string;
  insert(jobs: readonly NewJob[], transaction?: Tx): Promise<readonly Inserted[]>;
  /**
   * As `insert`, without waiting for a unique key that an open transaction holds: undefined for those jobs. Left out by stores
   * where nothing is waited for.
   */
  insertFree?(jobs: readonly NewJob[]): Promise<readonly (Inserted | undefined)[]>;
  /** As `held` for one lease, read inside the caller's transaction, which may have taken the last connection that there is. */
  heldIn(lease: Lease, transaction: Tx): Promise<JobRecord | undefined>;
  note(notes: readonly Note[]): Promise<void>;
  heartbeat(instance: Instance, except: readonly Lease[]): Promise<void>;
  cancelRequests(leases: readonly Lease[]): Promise<readonly Lease[]>;
  insertFailedRun(of: JobRecord, failure: FailedRun): Promise<void>;

  get(id: string): Promise<JobRecord | undefined>;
  /** Which of these jobs have ended and which have not, as of one moment; the rest do not exist. */
  ends(ids: readonly string[]): Promise<Ends>;
  find(filter: JobFilter, page: Page): Promise<Found>;
  /** The text that identifies a record in a cursor. */
  cursorKey(record: JobRecord): string;
  /** Stops counting at `most`. */
  count(filter: JobFilter, most?: number): Promise<number>;
  stats(cap: number): Promise<{ readonly names: readonly NameCounts[]; readonly total: number }>;
  /** What the newest failed jobs say, so many at most; of one name, or of all. */
  failures(limit: number, name?: string): Promise<readonly FailureLine[]>;
  cancel(
    id: string,
    retention: (name: string) => RetentionMs,
  ): Promise<{ outcome: 'cancelled' | 'requested' | 'finished'; job: JobRecord } | undefined>;
  retry(
    id: string,
    now: Date,
  ): Promise<{ outcome: 'retried' | 'live' | 'unfinished' | 'finished'; job: JobRecord } | undefined>;
  remove(id: string): Promise<{ outcome: 'removed' | 'running'; job: JobRecord } | undefined>;
  reschedule(
    id: string,
    at: Date,
  ): Promise<{ outcome: 'rescheduled' | 'running' | 'finished'; job: JobRecord } | undefined>;
  /** Ids of matching jobs, a batch at a time; the collection is never read as a whole. */
  each(filter: JobFilter, batch: number): AsyncIterable<readonly JobRecord[]>;
  cancelBatch(jobs: readonly JobRecord[], retention: (name: string) => RetentionMs): Promise<number>;
  retryBatch(jobs: readonly JobRecord[], now: Date): Promise<number>;
  removeBatch(jobs: readonly JobRecord[]): Promise<number>;
  /** Deletes finished jobs whose retention has passed. Stores whose database does that leave it out. */
  sweep?(now: Date): Promise<number>;

  putSchedule(change: ScheduleChange): Promise<JobRecord>;
  schedules(name?: string): Promise<readonly JobRecord[]>;
  schedule(name: string, key: string): Promise<JobRecord | undefined>;
  removeSchedule(name: string, key: string): Promise<boolean>;
  /** Changes a schedule that is not running, or marks it for its settlement to take over. */
  pauseSchedule(name: string, key: string, paused: boolean, nextRunAt: Date): Promise<JobRecord | undefined>;
  runScheduleNow(
    name: string,
    key: string,
    now: Date,
  ): Promise<{ outcome: 'due' | 'running'; job: JobRecord } | undefined>;

  pauseName(name: string): Promise<void>;
  resumeName(name: string): Promise<void>;
}

export interface Registration extends Instance {
  readonly names: readonly string[];
  /** The reactive tasks that it runs, each with the definition that it has of them. */
  readonly tasks: readonly TaskAdvert[];
  /** Retry policies by name, for whoever has to judge this instance's work after its death. */
  readonly policies: Readonly<Record<string, unknown>>;
  readonly host: string;
  readonly pid: number;
  readonly leaseMs: number;
  /** How much it runs at once; for people who ask why something waits. */
  readonly capacity?: Capacity;
}

/** How much an instance runs at once: in all, and of each name. */
export interface Capacity {
  readonly slots: number;
  readonly jobs: readonly (readonly [name: string, limit: number])[];
  readonly tasks: readonly (readonly [task: string, limit: number])[];
}

/** An instance as people look at it. */
export interface InstanceDetails extends InstanceState {
  readonly host: string;
  readonly pid: number;
  /** Absent where it runs an older version. */
  readonly capacity?: Capacity;
}

/** The process that has the instanceId which another one asks for. */
export interface Rival {
  readonly life: string;
  readonly host: string;
  readonly pid: number;
  /** Its lease has ended: it is dead, or was cut off and is about to renew. */
  readonly expired: boolean;
}

export interface InstanceStore {
  /**
   * Refused if another process has the same instanceId; the answer names it. `takeOver` is the life of a rival that may be
   * fenced if its lease has ended.
   */
  register(registration: Registration, takeOver?: string): Promise<{ refusedBy?: Rival }>;
  renew(registration: Registration): Promise<'renewed' | 'lost'>;
  deregister(instance: Instance): Promise<void>;
  list(): Promise<Cluster>;
  /** As `list`, with what only people ask for. */
  describe(): Promise<{ readonly cluster: Cluster; readonly instances: readonly InstanceDetails[] }>;
  /** Declares an instance dead if its lease is over. Its policies are the answer; undefined where it lives or is gone. */
  fence(instance: Instance): Promise<{ policies: Readonly<Record<string, unknown>> } | undefined>;
  /** Forgets a dead instance once nothing is held by it. */
  bury(instance: Instance): Promise<void>;
}

/** What a wake-up is about. */
export type WorkKind = 'jobs' | 'tasks';

/** An open wake-up channel: it only shortens a wait, the poll finds everything. */
export interface Watch {
  close(): Promise<void>;
}

export interface WatchHandlers {
  /** Something may be due; a hint names it. */
  readonly wake: (what: WorkKind, hint?: Hint) => void;
  readonly cancel: () => void;
  /** Definitions, leadership or requests have changed: of interest to whoever plans. */
  readonly news: () => void;
  /**
   * The channel broke, maybe before `watch` has resolved: what it resolves to is dead then. The poll covers the gap until
   * another one is opened.
   */
  readonly broken: (error: unknown) => void;
}

/** Too few of something that calls wait for, such as connections. */
export interface Shortage {
  /** What there is too little of, who has it, and what to do. */
  readonly text: string;
  /** How long the store's own statements have been waiting for it; 0 where only callers do. */
  readonly stuckMs: number;
}

export interface Store<Tx = unknown> {
  readonly kind: string;
  readonly clock: Clock;
  readonly payload: PayloadRules;
  readonly maxPayloadBytes: number;
  readonly jobs: JobStore<Tx>;
  readonly instances: InstanceStore;
  readonly locks: LockStore;
  readonly metrics: MetricsStore;
  readonly audit: AuditStore;
  /** Left out where data cannot be watched. */
  readonly reactive?: ReactiveStore<Tx>;
  /** The documents of one place, for a scheduler. It opens and closes the store by itself. */
  documents?(place: DocumentPlace): DocumentJobStore;
  /** Opens what is needed, once; safe to call again. Each mill holds the store until it lets go. */
  acquire(holder: object): Promise<void>;
  /** The last holder's release closes the connections that the store opened itself. */
  release(holder: object): Promise<void>;
  /** Undefined where no notification is to be had, with the reason. */
  watch(handlers: WatchHandlers): Promise<Watch | { readonly unavailable: string }>;
  transaction<T>(work: (transaction: Tx) => Promise<T>): Promise<T>;
  /** What calls have to wait for, beside the database itself; undefined while nothing is short. */
  shortage?(): Shortage | undefined;
  /**
   * Throws where a call that is given no transaction would wait for ever, because the running code is inside one. Whoever
   * makes calls together asks this in the name of each caller: the call itself is then made in another's place.
   */
  checkOutside?(): void;
  /** Looks at the server and at what the store made there, for `mill.doctor()`; changes nothing. */
  inspect?(): Promise<readonly Finding[]>;
  /** Takes away all that the store made, with all work in it: for places that a tool made for itself. */
  erase?(): Promise<void>;
  /** True for a handle that this store's `transaction` option accepts. */
  isTransaction(value: unknown): value is Tx;
}

/** The transaction handle of a store. */
export type TransactionOf<S> = S extends Store<infer Tx> ? Tx : never;
