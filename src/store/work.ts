/** What the engine needs of a store for any kind of work: leases, claims, settlements, and who is alive. */
import type { Attempt, JobRecord, LogLine } from '../core/records/job.js';
import type { FailureKind, Work } from '../core/records/work.js';

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

/** Under what a claim is written: every later write of the attempt matches the token. */
export interface Claimant {
  readonly instance: Instance;
  readonly token: string;
  readonly heartbeatMs: number;
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

export interface ClaimAnswer<W extends Work = JobRecord> {
  readonly jobs: readonly W[];
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
  /** When the next pause ends by itself. */
  readonly resumeAt?: Date;
  /** By task: what its documents are planned by. */
  readonly inForce?: ReadonlyMap<string, Pick<TaskAdvert, 'trigger' | 'version'>>;
  /** Who plans reactive tasks; absent where nobody ever did. */
  readonly leader?: Leader;
}

export interface Leader {
  /** Null: it has resigned. */
  readonly life: string | null;
  readonly instanceId: string;
  readonly term: number;
}

export interface InstanceState extends Instance {
  /** Names of the work that it runs, of the kind that was asked about. */
  readonly names: readonly string[];
  readonly tasks: readonly TaskAdvert[];
  /** How long its lease still holds by the server's clock; negative when it is over. */
  readonly leftMs: number;
  /** Fenced: it can write nothing any more, and what it held is being handed on. */
  readonly dead: boolean;
}

export interface DueSummary {
  readonly cluster: Cluster;
  /** The earliest due time of each name that has something pending. */
  readonly nextDue: ReadonlyMap<string, Date>;
  /** Pending work of a later schema version exists; it is left alone. */
  readonly foreign: boolean;
}

/**
 * `settled`: written, by this call or an earlier one of the same holder. `lost`: somebody else has the job now.
 * `changed`: still held, but its schedule was changed or a cancel was requested meanwhile: read, decide and settle again.
 * `refused`: the database will never take it (too large): settle without its result.
 * `blocked`: somebody's open transaction holds the row: settle it later, and apart from others.
 */
export type SettleAnswer = 'settled' | 'lost' | 'changed' | 'refused' | 'blocked';

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

/** How much of one name there is, by status; counting stops at a limit. */
export interface Depth {
  readonly name: string;
  readonly counts: Readonly<Record<string, number>>;
  /** Due by the server's clock. */
  readonly due: number;
  /** How long the oldest of it has been waiting. */
  readonly lagMs: number;
}

export interface DepthRequest {
  /** The most that is counted over all names; at least 1,000 of each status and name. */
  readonly cap: number;
  /** Which servers may answer, where a store knows several. */
  readonly readPreference?: string;
}

/** What the engine asks of any kind of work. */
export interface WorkStore<W extends Work, S, Tx = unknown> {
  peek(names: readonly string[]): Promise<DueSummary>;
  claim(request: ClaimRequest): Promise<ClaimAnswer<W>>;
  /** What a claim whose answer was lost has really taken. */
  claimedUnder(instance: Instance, token: string): Promise<readonly W[]>;
  settle(settlements: readonly S[]): Promise<readonly SettleAnswer[]>;
  /** Settles inside the caller's transaction. */
  settleIn(settlement: S, transaction: Tx): Promise<SettleAnswer>;
  /** The records behind leases, in order; undefined for those that are no longer held. */
  held(leases: readonly Lease[]): Promise<readonly (W | undefined)[]>;
  /** True where the lease's own settlement was written: the work carries its token and is not held, or is gone. */
  settledUnder(lease: Lease): Promise<boolean>;
  /** Marks the attempt as really begun. Only asked for work whose last attempt crashed. */
  begin(lease: Lease): Promise<'begun' | 'lost'>;
  heldBy(instance: Instance, limit: number): Promise<readonly W[]>;
  strays(query: StrayQuery): Promise<readonly W[]>;
  /** Best effort; nothing depends on it. */
  note?(notes: readonly Note[]): Promise<void>;
  /** Best effort; nothing depends on it. */
  heartbeat?(instance: Instance, except: readonly Lease[]): Promise<void>;
  /** Which of these have been asked to cancel. Left out where nothing can be cancelled. */
  cancelRequests?(leases: readonly Lease[]): Promise<readonly Lease[]>;
  /** How much there is of each name, within a limit: nothing is read as a whole. */
  depths(request: DepthRequest): Promise<readonly Depth[]>;
  /** Keeps the copy of a recurring run that used up its attempts. */
  insertFailedRun?(of: W, failure: FailedRun): Promise<void>;
}

/** How instances learn of new work: by the store (`stream`, `direct`) or only by asking again (`poll`). */
export type WakeUp = 'stream' | 'direct' | 'poll';

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

/** Both ends belong to it. */
export interface TimeRange {
  readonly from?: Date;
  readonly to?: Date;
}

export interface TaskAdvert {
  readonly task: string;
  /** Identifies the definition in the registry. */
  readonly definition: string;
  /** Identifies its filter and projection. */
  readonly trigger: string;
  /** Its handler's version. */
  readonly version: number;
}

export const leaseOf = ({ key, id, leaseToken, lockedAt, part }: Work): Lease => ({
  key,
  id,
  token: leaseToken ?? null,
  lockedAt,
  ...(part === undefined ? {} : { part }),
});

/** How many of each name and status are counted, for all of them to stay within the limit. */
export const capFor = (cap: number, names: number): number =>
  Math.max(1_000, Math.floor(cap / Math.max(1, names)));
