/**
 * What the engine asks of any kind of work, jobs and reactive tasks alike: claims, settlements, and the cluster around
 * them. Begin with `WorkStore` below; `JobStore` (port.ts) and `TaskStore` (reactive.ts) extend it. `Lease` is the
 * proof that every later write of an attempt carries. port.ts explains the words of the method comments.
 */
import type { Attempt, JobRecord, LogLine } from '../core/records/job.js';
import type { FailureKind, Work } from '../core/records/work.js';
import type { KeyRule } from './limits/limits.js';

/** Proof that one attempt owns one piece of work. Each claim makes a new token, so a stale holder can never write. */
export interface Lease {
  /** The store's own identity of the row or document, as in `Work.key`; callers pass it on unread. */
  readonly key: unknown;
  readonly id: string;
  /** Null: held by an older program that knows no tokens; then `lockedAt` takes the token's place in preconditions. */
  readonly token: string | null;
  readonly lockedAt: Date | null;
  /**
   * `claimedBy` of the work. An older program that claims it leaves the token as it is, so a store that such programs
   * share has this in its preconditions, too.
   */
  readonly holder?: string;
  /** Where the job lives in a sharded collection; absent in stores without shards. */
  readonly part?: number;
  /** The name and `limitKey` of work that has one; a store may free its key by them. */
  readonly limit?: { readonly name: string; readonly key: string };
}

/** A running mill. A `life` is one run of one instance: a restart, or a lost lease, begins a new one. */
export interface Instance {
  readonly instanceId: string;
  /** 16 hexadecimal digits, made anew for each run; it contains no dot. */
  readonly life: string;
}

/** What a claim writes to the work that it takes. */
export interface Claimant {
  readonly instance: Instance;
  /** `<life>.<number>`, used by one claim only. Every later write of the attempt matches it. */
  readonly token: string;
  /** Kept as `heartbeatInterval`, for older programs and for `StrayQuery.legacyAfterMs`. */
  readonly heartbeatMs: number;
}

export interface ClaimRequest extends Claimant {
  /** The names to claim, in their turn, with a limit for each. */
  readonly limits: ReadonlyMap<string, NameLimit>;
  /** The most that may be claimed in all. */
  readonly total: number;
  /** Jobs that a wake-up named. A store may take them first, or take only them; the engine looks for the rest. */
  readonly hints?: readonly Hint[];
}

/** What a wake-up says: this job was due. It may be claimed, or gone, by now. */
export interface Hint {
  readonly key: unknown;
  readonly name: string;
}

/** How many due jobs of which names a wake-up is about. */
export type DueNames = ReadonlyMap<string, number>;

export interface NameLimit {
  /** The most that may be claimed of the name. */
  readonly max: number;
  /**
   * This instance's place, from 0, among the `of` live instances that run the same names. A store whose claims would
   * compete for the same rows may give each place another slice of the queue's head; others ignore it. The place may
   * be some seconds old, so two instances may have the same one, and an instance that is gone may still have one.
   */
  readonly rank: number;
  readonly of: number;
  /**
   * Take none of this name once this time has passed by the server's clock: the permits and starts behind `max` hold
   * no longer. Part of the precondition of each write, so that a process that was paused takes nothing. Absent: no end.
   */
  readonly notAfter?: Date;
  /**
   * Limits of each key of this name; work without a `limitKey` has the key ''. Keys take turns: the one that has been
   * able to run for longest is first, and each gives one piece of work per turn. A key has been able to run since the
   * latest of: its next piece of work was due, it had its last turn, its rate let it through. Only for names whose
   * store has `limits`. Absent: keys do not matter.
   *
   * Precondition, inside the write, whoever else claims: of the key no more than `keys.concurrency` is processing
   * afterwards, in the whole store; and with `keys.rate` no more starts than the rate in any window, by
   * `grantStarts`; starts that did not happen are not spent. With `keys.order` nothing of the key was processing, and
   * the claim takes only the head: the pending job with the lowest `limitOrder`, ties by id. Under `hold` the head
   * holds its key although it is not due; under `pass` only due jobs count. Due jobs without a `limitOrder`, such as
   * runs of schedules, come before all others; others without it do not count. Without `order` the head is the due job
   * that comes first by priority, due time and id.
   *
   * The cost of a claim depends neither on the number of keys nor on what waits behind those that cannot run.
   */
  readonly keys?: KeyRule;
  /** Only with `keys`: what a turn is in this claim. Absent: each key that can run gives about the same part of `max`. */
  readonly turns?: KeyTurns;
}

/** The turns of keys in one claim whose work is called by key: few keys, and much of each. */
export interface KeyTurns {
  /** The most that a key gives in one turn, as far as it has due work and its limits allow. */
  readonly each: number;
  /** The most turns. What is left of `max` then is not taken. */
  readonly most: number;
}

export interface ClaimAnswer<W extends Work = JobRecord> {
  /** What the token holds now, in the order in which it is to run. */
  readonly jobs: readonly W[];
  /** How many the store tried to take. More than `jobs`: other instances were faster. Only counted. */
  readonly asked: number;
  /** True: claim again at once, more is due. False promises nothing; the engine peeks before it waits. */
  readonly more: boolean;
  /**
   * Names with `keys` of which work is due that their keys hold up, each with the time at which the first of it can
   * run by itself, as its rate lets it through or, under `hold`, its head is due. Null: not before work of the name
   * ends, which wakes the instances. `more` does not count such work. Absent: none. A name is left out while the claim has
   * not come to all of its keys: then `more` is true, and another claim goes on.
   */
  readonly heldUp?: ReadonlyMap<string, Date | null>;
  readonly cluster: ClusterBrief;
}

/**
 * What every peek and claim returns beside the work: the server's time, and what holds work up. Its size does not
 * depend on how many instances there are, or on what they run.
 */
export interface ClusterBrief {
  /** By the server's clock. */
  readonly now: Date;
  /**
   * Names of the kind of work that was asked about: jobs, or reactive tasks. `EVERYTHING` among them stands for all work;
   * ask with `isPausedIn`.
   */
  readonly paused: ReadonlySet<string>;
  /** When the first of the pauses that end by themselves does so; only for tasks. */
  readonly resumeAt?: Date;
  /**
   * By task: which filter, projection and handler version its documents are planned by; only for tasks. A claim
   * returns those that it asked for, a peek those that this instance defines. Absent from it: the task was never
   * planned.
   */
  readonly inForce?: InForce;
}

/** As a paused name, it stands for all jobs, tasks and document schedules. No work has this name. */
export const EVERYTHING = '';

/** Whether a pause, of the name or of everything, keeps work of the name from starting. */
export const isPausedIn = (paused: ReadonlySet<string>, name: string): boolean =>
  paused.has(name) || paused.has(EVERYTHING);

export type InForce = ReadonlyMap<string, Pick<TaskAdvert, 'trigger' | 'version'>>;

/** The whole cluster, with all that each instance runs. It may be large; see `Leases` for what instances need often. */
export interface Cluster {
  /** By the server's clock. */
  readonly now: Date;
  /** Paused names of jobs, and `EVERYTHING` if all work is paused. */
  readonly paused: ReadonlySet<string>;
  /** All that are registered, expired and dead ones included. */
  readonly instances: readonly InstanceState[];
  /** Who plans reactive tasks; absent if no instance ever did. */
  readonly leader?: Leader;
}

export interface Leader {
  /** Null: it has resigned. */
  readonly life: string | null;
  readonly instanceId: string;
  /** Raised by each change of leadership, and never lowered. */
  readonly term: number;
  /** How many partitions are planned, each by a leader of its own. Absent: one. Only of the leader of partition 0. */
  readonly partitions?: number | null;
  /** The number that is about to take its place; null or absent: none. */
  readonly next?: number | null;
}

export interface InstanceState extends Instance {
  /** Names of the jobs that it runs. */
  readonly names: readonly string[];
  readonly tasks: readonly TaskAdvert[];
  /**
   * The number of partitions that it is set to plan by; 0: it plans nothing. Null or absent: its version knows no
   * partitions, and may lead the whole.
   */
  readonly plans?: number | null;
  /** How long its lease still holds by the server's clock; 0 or less: it is over. */
  readonly leftMs: number;
  /** Fenced: it can never renew, and the reclaimer hands on what it held. */
  readonly dead: boolean;
}

export interface DueSummary {
  readonly cluster: ClusterBrief;
  /** The earliest due time, past or future, of each name that has something pending. */
  readonly nextDue: ReadonlyMap<string, Date>;
  /** The earliest time at which a pending job of any name expires; absent if none does. */
  readonly expiresAt?: Date;
  /** Pending work of a later schema version exists: the store leaves it alone, and the instance reports it. */
  readonly foreign: boolean;
}

/**
 * What became of one settlement.
 *
 * | answer | when | the settler then |
 * |---|---|---|
 * | `settled` | written by this call or an earlier one of the same holder; or gone, as `remove` asked | announces it |
 * | `lost` | held under another token, taken over by a reclaimer, or gone | emits `lease:lost` |
 * | `changed` | still held, but the revision differs, a cancel was requested, or a successor waits | reads `held`, decides again |
 * | `refused` | the database can never take the value, such as one that is too large | settles with less |
 * | `blocked` | an open transaction holds the row, and the store did not wait for it | tries again later, apart |
 */
export type SettleAnswer = 'settled' | 'lost' | 'changed' | 'refused' | 'blocked';

/** Progress and log lines of a running job. */
export interface Note {
  readonly lease: Lease;
  /** Wrapped, so that null is a value too. Absent: leave the progress as it is. */
  readonly progress?: { readonly value: unknown };
  /** Appended; the last 100 stay. */
  readonly logs?: readonly LogLine[];
}

/** Which held work is held under no valid lease. */
export interface StrayQuery {
  /** All registered instances, dead ones included: their work is found by `heldBy`. */
  readonly lives: readonly Instance[];
  /**
   * Work under a token of another life is a stray once its `lockedAt` is this old, by the server's clock. A store that
   * older programs share takes work under any token for a stray that none of `lives` holds, but counts as for work without
   * a token: such a program may have claimed it since, and have left the token as it was.
   */
  readonly olderThanMs: number;
  /**
   * Work without a token is a stray after max(this, 3 × its heartbeat interval), counted from the later of `lockedAt`
   * and `lastHeartbeat`. Reactive tasks always have a token; their stores ignore this.
   */
  readonly legacyAfterMs: number;
  readonly limit: number;
}

/** How much of one name there is; counting stops at `capFor(cap, names)`. */
export interface Depth {
  readonly name: string;
  /** By status: those that wait, run or have failed. Completed and cancelled work is not counted. */
  readonly counts: Readonly<Record<string, number>>;
  /** Pending, and due by the server's clock. */
  readonly due: number;
  /**
   * How long the oldest of it has been due; 0 if nothing is. For tasks: since `initialScheduledAt`, retries included.
   */
  readonly lagMs: number;
}

export interface DepthRequest {
  /** The most that is counted over all names; at least 1,000 of each status and name. */
  readonly cap: number;
  /** Which servers may answer; only MongoDB reads it. */
  readonly readPreference?: string;
}

/** What the engine, the settler and the reclaimer ask of one kind of work `W`, which ends in settlements `S`. */
export interface WorkStore<W extends Work, S, Tx = unknown> {
  /**
   * Returns when each of `names` is due next, and what holds work up. It is cheap, one index key per name, and changes no
   * state. MongoDB also adopts pending jobs that were written by hand: it gives them version, priority and due time.
   * Repeat: safe.
   * Caller: the claim loop, before each wait.
   */
  peek(names: readonly string[]): Promise<DueSummary>;
  /**
   * Takes due work: `pending` → `processing`, with token, holder and `lockedAt`; of a task also `attempts` + 1. Jobs
   * come by priority, due time and id, tasks by due time; names take turns. Other claims never get the same work.
   * Precondition: still pending, due and not expired by the server's clock, of a known schema version; its name is not
   * paused. Only a
   * hinted job of a name that was just paused may slip through; the caller sees that in `cluster`, and hands it back.
   * With `NameLimit.keys` it takes what the keys allow, and `NameLimit.notAfter` belongs to the precondition.
   * Returns what was taken. For tasks, `matches` says whether the document is there and matches; absent: not known.
   * Repeat: never with the same token. After a lost answer the claim loop asks `claimedUnder`.
   */
  claim(request: ClaimRequest): Promise<ClaimAnswer<W>>;
  /**
   * Returns what `instance` holds under `token` now, as `claim` would have. Writes nothing.
   * Repeat: safe.
   * Caller: the claim loop after a claim that threw, until this succeeds. A claim that lands later still is found by
   * `heldBy`, and handed back after a lease.
   */
  claimedUnder(instance: Instance, token: string): Promise<readonly W[]>;
  /**
   * Ends attempts: `processing` (of tasks also `processing_dirty`) → the state that each settlement says.
   * Precondition: still held under `lease.token`; if that is null, without a token and with `lease.lockedAt`. For a
   * job also `ifRev`, no cancel request if it goes back to `pending`, and not `followed` if it ends without
   * `releases`. A batch may have two leases of one job.
   * Returns a `SettleAnswer` for each, in order. A store may wait for an open transaction on behalf of a `holder`; for
   * a `reclaimer` it returns `blocked` or `lost` within about a second, and the reclaimer comes again.
   * Work with a `limitKey` frees its key, in the same write or, if that is lost, by `LimitStore.repairKeys`. If the
   * key can run again, the instances are woken for the name, best effort.
   * Repeat: a holder gets `settled` again, since its token stays on the work; a reclaimer gets `lost`.
   * Errors: the recorder repeats the batch after a transient `StoreError`, and halves it after any other.
   */
  settle(settlements: readonly S[]): Promise<readonly SettleAnswer[]>;
  /**
   * As `settle` for one, inside the caller's transaction: it takes effect when that commits. The same precondition.
   * Returns `settled`, or `lost` in every other case.
   * Repeat: a transaction that is tried again calls it again; each try writes anew.
   * Errors: the driver's own pass unchanged. A handle without an open transaction is an `OptionError`, if the store
   * can tell.
   * Caller: `complete()` of a job or a task.
   */
  settleIn(settlement: S, transaction: Tx): Promise<SettleAnswer>;
  /**
   * Returns the records behind leases as they are now, in order; undefined for work that is not held under its token.
   * Repeat: safe.
   * Caller: the settler after `changed`, and a handler's end after a transaction.
   */
  held(leases: readonly Lease[]): Promise<readonly (W | undefined)[]>;
  /**
   * Returns true if the lease's own settlement was written: the work carries its token and is not held, or is gone.
   * False: it is held, or carries another token or none. Repeat: safe.
   * Caller: the engine, to learn whether a transaction with `settleIn` was committed.
   */
  settledUnder(lease: Lease): Promise<boolean>;
  /**
   * Marks that the attempt has really started: `processing` → the same, with `startedToken`. After a crash the
   * reclaimer reads it, and hands back uncounted what only waited in a buffer.
   * Precondition: held under the token. Returns `begun`, or `lost` if it is not; then the handler is not called.
   * Repeat: `begun` again.
   * Caller: the engine, for work whose last attempt crashed, or that is at its last attempt.
   */
  begin(lease: Lease): Promise<'begun' | 'lost'>;
  /**
   * Returns up to `limit` pieces of work that a life holds: running, with a token that begins with `<life>.`. Payload,
   * progress, logs and snapshot may be missing. Repeat: safe.
   * Caller: the reclaimer, for a fenced instance, until nothing is left; and each instance for its own life, after the
   * answer of a claim was lost.
   */
  heldBy(instance: Instance, limit: number): Promise<readonly W[]>;
  /**
   * Returns up to `query.limit` pieces of work that are held under no valid lease, such as a claim that landed after
   * its owner was buried. Ages count by the server's clock. Payload and snapshot may be missing. Repeat: safe.
   * Caller: the reclaimer, once per lease.
   */
  strays(query: StrayQuery): Promise<readonly W[]>;
  /**
   * Writes progress and appends log lines: `processing` → the same. Best effort; nothing depends on it.
   * Precondition: held under the token; the notes of a stale holder are dropped in silence. It passes over, or waits
   * at most a second for, a row that an open transaction holds.
   * Repeat: log lines would appear twice, so the engine drops what was not answered.
   */
  note?(notes: readonly Note[]): Promise<void>;
  /**
   * Sets `lastHeartbeat` and `updatedAt` of what a life holds, without `except`, which open transactions may have
   * locked. For people and older programs; nothing here depends on it. Best effort, as `note`. Repeat: safe.
   * Absent if a read returns the holder's last renewal as `lastHeartbeat`, which costs no write.
   * Caller: the engine, after each renewal of its lease.
   */
  heartbeat?(instance: Instance, except: readonly Lease[]): Promise<void>;
  /**
   * Returns those of the leases whose job has a `cancelRequestedAt`, by id; tokens are not compared. Repeat: safe.
   * Caller: the engine, twice a second while something runs and on each `cancel` wake-up. Absent if the kind of work
   * cannot be cancelled.
   */
  cancelRequests?(leases: readonly Lease[]): Promise<readonly Lease[]>;
  /**
   * Returns how much there is of each name. Each count stops at `capFor(request.cap, names)`. Repeat: safe.
   * Caller: metrics, for each scrape and once a minute on one instance.
   */
  depths(request: DepthRequest): Promise<readonly Depth[]>;
  /**
   * Keeps a run of a recurring job that used up its attempts: none → a `failed` copy with the id `failedRunId(of.id,
   * scheduledFor)`. The payload comes from the stored schedule, since `of` may lack it; name, priority, retry policy
   * and history go along.
   * Precondition: no job has that id, and the schedule still exists; otherwise it does nothing. Repeat: no effect.
   * Caller: the settler and the reclaimer, before the settlement that moves the schedule on.
   */
  insertFailedRun?(of: W, failure: FailedRun): Promise<void>;
}

/**
 * How instances learn of new work: from the store (`stream`, or `direct`, which loses none), or by the `poll` alone.
 */
export type WakeUp = 'stream' | 'direct' | 'poll';

/** What `insertFailedRun` writes to the copy, beside what it takes from the schedule. */
export interface FailedRun {
  readonly failCount: number;
  readonly failReason: string;
  readonly failKind: FailureKind;
  /** The run time that failed; part of the copy's id. */
  readonly scheduledFor: Date;
  readonly finishedAt: Date;
  /** When the copy may be deleted; null: never. */
  readonly expiresAt: Date | null;
  readonly entry?: Attempt;
  readonly historyLimit: number;
}

/** Both ends belong to it; an absent end is open. */
export interface TimeRange {
  readonly from?: Date;
  readonly to?: Date;
}

/** What an instance says of a reactive task that it runs. */
export interface TaskAdvert {
  readonly task: string;
  /** Identifies the definition in the registry: `PublishedPlan.id`. */
  readonly definition: string;
  /** Identifies its source, filter and projection. */
  readonly trigger: string;
  /** Its handler's version. */
  readonly version: number;
}

/** The lease that a record carries. */
export const leaseOf = ({
  key,
  id,
  name,
  leaseToken,
  lockedAt,
  claimedBy,
  part,
  limitKey,
}: Work & { readonly limitKey?: string }): Lease => ({
  key,
  id,
  token: leaseToken ?? null,
  lockedAt,
  ...(claimedBy === undefined ? {} : { holder: claimedBy }),
  ...(part === undefined ? {} : { part }),
  ...(limitKey === undefined ? {} : { limit: { name, key: limitKey } }),
});

/** The life that minted a token: its part before the dot. */
export const lifeOf = (token: string | null | undefined): string | undefined => token?.split('.')[0];

/** How many of each name and status are counted, so that all of them together stay within `cap`; at least 1,000. */
export const capFor = (cap: number, names: number): number =>
  Math.max(1_000, Math.floor(cap / Math.max(1, names)));
