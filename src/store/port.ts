/**
 * The store port: what the engine needs of a database. One method per transition; each is atomic per job, takes a
 * batch, and has its precondition inside the write. A store records what the engine decided and decides nothing itself.
 */
import type { Clock } from '../core/clock.js';
import type { Attempt, FailureKind, JobRecord, JobStatus, LogLine, MissedPolicy } from '../core/job.js';
import type { PayloadRules } from '../core/payload.js';

/** Proof that one attempt owns one job. Each claim mints a new token, so a stale holder can never write. */
export interface Lease {
  readonly key: unknown;
  readonly id: string;
  /** Null: held by a program that knows no tokens; `lockedAt` stands in for it. */
  readonly token: string | null;
  readonly lockedAt: Date | null;
  /** Where the job lives in a sharded collection; stores that have no such thing leave it out. */
  readonly part?: number;
}

/** Who claims. A `life` is one run of one instance: a restart, or a lost lease, begins a new one. */
export interface Instance {
  readonly instanceId: string;
  readonly life: string;
}

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
  /** Asks the store to wake waiting instances. */
  readonly wake?: boolean;
  /** Stored as claimed already: the process that asks for it has a free slot, and runs it at once. */
  readonly claim?: Claimant;
}

/** Under what a claim is written: every later write of the attempt matches the token. */
export interface Claimant {
  readonly instance: Instance;
  readonly token: string;
  readonly heartbeatMs: number;
}

export interface Inserted {
  readonly job: JobRecord;
  /** `existing`: the id, or the unique key, was taken by a live job, which is the one answered. */
  readonly outcome: 'created' | 'existing';
}

export interface ClaimRequest extends Claimant {
  /** Names in their turn, with what may be claimed of each. */
  readonly limits: ReadonlyMap<string, NameLimit>;
  /** The most that may be claimed in all. */
  readonly total: number;
  /** Jobs that a wake-up named: a store may take them while it looks for the rest. */
  readonly hints?: readonly Hint[];
}

/** What a wake-up says: this job was due. It may be taken, or gone, by now. */
export interface Hint {
  readonly key: unknown;
  readonly name: string;
}

export interface NameLimit {
  /** The most that may be claimed. */
  readonly max: number;
  /**
   * This instance's place among the `of` live ones that run the name. Each takes another slice of the queue's head, so
   * that they do not fight over the same jobs.
   */
  readonly rank: number;
  readonly of: number;
}

export interface ClaimAnswer {
  readonly jobs: readonly JobRecord[];
  /** How many it tried to take, hints that others were faster with aside; fewer were got where others were faster. */
  readonly asked: number;
  /** True where more is due than was taken. */
  readonly more: boolean;
  readonly cluster: Cluster;
}

/** What every look at the store brings along: the server's time, who else is alive, what is paused. */
export interface Cluster {
  readonly now: Date;
  readonly paused: ReadonlySet<string>;
  readonly instances: readonly InstanceState[];
}

export interface InstanceState extends Instance {
  readonly names: readonly string[];
  /** How long its lease still holds by the server's clock; negative when it is over. */
  readonly leftMs: number;
  /** Fenced: it can write nothing any more, and what it held is being handed on. */
  readonly dead: boolean;
}

export interface Glance {
  readonly cluster: Cluster;
  /** The earliest due time of each name that has something pending. */
  readonly nextDue: ReadonlyMap<string, Date>;
  /** Pending jobs of an unknown schema version exist; they are left alone. */
  readonly foreign: boolean;
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

/**
 * `settled`: written, by this call or an earlier one of the same holder. `lost`: somebody else has the job now.
 * `changed`: still held, but its schedule was changed or a cancel was requested meanwhile: read, decide and settle again.
 * `refused`: the database will never take it (too large): settle without its result.
 */
export type SettleAnswer = 'settled' | 'lost' | 'changed' | 'refused';

export interface Note {
  readonly lease: Lease;
  /** Wrapped, so that null is a value too. */
  readonly progress?: { readonly value: unknown };
  readonly logs?: readonly LogLine[];
}

export interface StrayQuery {
  /** The lives that hold valid leases. */
  readonly lives: readonly string[];
  /** A claim of an unknown life is a stray once it is this old. */
  readonly olderThanMs: number;
  /** Work of older programs, without lease fields, is a stray after max(this, 3 × its heartbeat interval). */
  readonly legacyAfterMs: number;
  readonly limit: number;
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
}

export interface TimeRange {
  readonly from?: Date;
  readonly to?: Date;
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

export interface JobStore<Tx = unknown> {
  /** A new id, unlike any other. */
  newId(): string;
  insert(jobs: readonly NewJob[], transaction?: Tx): Promise<readonly Inserted[]>;
  look(names: readonly string[]): Promise<Glance>;
  claim(request: ClaimRequest): Promise<ClaimAnswer>;
  /** What a claim whose answer was lost has really taken. */
  claimedUnder(instance: Instance, token: string): Promise<readonly JobRecord[]>;
  settle(settlements: readonly Settlement[]): Promise<readonly SettleAnswer[]>;
  /** Settles inside the caller's transaction. */
  settleIn(settlement: Settlement, transaction: Tx): Promise<SettleAnswer>;
  /** The records behind leases, in order; undefined for those that are no longer held. */
  held(leases: readonly Lease[]): Promise<readonly (JobRecord | undefined)[]>;
  /** Marks the attempt as really begun. Only asked for jobs whose last attempt crashed. */
  begin(lease: Lease): Promise<'begun' | 'lost'>;
  /** Best effort; nothing depends on it. */
  note(notes: readonly Note[]): Promise<void>;
  /** Best effort; nothing depends on it. */
  beat(instance: Instance, except: readonly Lease[]): Promise<void>;
  /** Which of these have been asked to cancel. */
  cancelRequests(leases: readonly Lease[]): Promise<readonly Lease[]>;
  heldBy(instance: Instance, limit: number): Promise<readonly JobRecord[]>;
  strays(query: StrayQuery): Promise<readonly JobRecord[]>;
  insertFailedRun(of: JobRecord, failure: FailedRun): Promise<void>;

  get(id: string): Promise<JobRecord | undefined>;
  getMany(ids: readonly string[]): Promise<readonly JobRecord[]>;
  find(filter: JobFilter, page: Page): Promise<Found>;
  /** The text that identifies a record in a cursor. */
  cursorKey(record: JobRecord): string;
  count(filter: JobFilter): Promise<number>;
  stats(cap: number): Promise<{ readonly names: readonly NameCounts[]; readonly total: number }>;
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

export interface FailedRun {
  readonly failCount: number;
  readonly failReason: string;
  readonly failKind: FailureKind;
  readonly scheduledFor: Date;
  readonly finishedAt: Date;
  readonly expiresAt: Date | null;
  readonly entry?: Attempt;
  readonly historyLimit: number;
}

export interface Registration extends Instance {
  readonly names: readonly string[];
  /** Retry policies by name, for whoever has to judge this instance's work after its death. */
  readonly policies: Readonly<Record<string, unknown>>;
  readonly host: string;
  readonly pid: number;
  readonly leaseMs: number;
}

export interface InstanceStore {
  /** Refused where another live process has the same instanceId; the answer names it. */
  register(registration: Registration): Promise<{ refusedBy?: { host: string; pid: number } }>;
  renew(registration: Registration): Promise<'renewed' | 'lost'>;
  deregister(instance: Instance): Promise<void>;
  list(): Promise<Cluster>;
  /** Declares an instance dead if its lease is over. Its policies are the answer; undefined where it lives or is gone. */
  fence(instance: Instance): Promise<{ policies: Readonly<Record<string, unknown>> } | undefined>;
  /** Forgets a dead instance once nothing is held by it. */
  bury(instance: Instance): Promise<void>;
}

/** An open wake-up channel: it only shortens a wait, the poll finds everything. */
export interface Watch {
  close(): Promise<void>;
}

export interface WatchHandlers {
  readonly wake: (hint?: Hint) => void;
  readonly cancel: () => void;
  /** The channel broke; the poll covers the gap until it is opened again. */
  readonly broken: (error: unknown) => void;
}

/** How instances learn of new work: by the store (`stream`, `direct`) or only by asking again (`poll`). */
export type WakeUp = 'stream' | 'direct' | 'poll';

export interface Store<Tx = unknown> {
  readonly kind: string;
  readonly clock: Clock;
  readonly payload: PayloadRules;
  readonly maxPayloadBytes: number;
  readonly jobs: JobStore<Tx>;
  readonly instances: InstanceStore;
  /** Opens what is needed, once; safe to call again. Each mill holds the store until it lets go. */
  acquire(holder: object): Promise<void>;
  /** The last holder's release closes the connections that the store opened itself. */
  release(holder: object): Promise<void>;
  /** Undefined where no notification is to be had, with the reason. */
  watch(handlers: WatchHandlers): Promise<Watch | { readonly unavailable: string }>;
  transaction<T>(work: (transaction: Tx) => Promise<T>): Promise<T>;
  /** True for a handle that this store's `transaction` option accepts. */
  isTransaction(value: unknown): value is Tx;
}

/** The transaction handle of a store. */
export type TransactionOf<S> = S extends Store<infer Tx> ? Tx : never;

export const leaseOf = (job: JobRecord): Lease => ({
  key: job.key,
  id: job.id,
  token: job.leaseToken ?? null,
  lockedAt: job.lockedAt,
  ...(job.part === undefined ? {} : { part: job.part }),
});
