/**
 * The store port: what Tidemill needs of a database. Begin with `Store` at the end of this file, which names the ports
 * by role, then read `JobStore` in jobs/job-store.ts, `InstanceStore` in cluster/instances.ts and `WorkStore` in
 * work.ts. README.md lists which ports each feature needs, and the rules that every store keeps.
 *
 * One method is one transition, atomic per job. A store records what its caller decided, and decides nothing itself.
 * Method comments use these words:
 * - Precondition: it belongs inside the write. What does not match stays as it is.
 * - Repeat: what a second call with the same arguments does, after the answer to the first was lost.
 * - Caller: who calls it, if the name does not tell. The facts in src/testing/conformance are proved on every store.
 */
import type { Clock } from '../core/clock.js';
import type { PayloadRules } from '../core/payload.js';
import type { AuditStore } from './audit.js';
import type { InstanceStore } from './cluster/instances.js';
import type { LockStore } from './cluster/lock.js';
import type { Watch, WatchHandlers } from './cluster/watch.js';
import type { DocumentJobStore, DocumentPlace } from './documents.js';
import type { Finding } from './inspect.js';
import type { JobStore } from './jobs/job-store.js';
import type { LimitStore } from './limits/limits.js';
import type { MetricsStore } from './metrics.js';
import type { Partitioned } from './reactive/partitions.js';
import type { ReactiveStore } from './reactive/reactive.js';
import type { WakeUp } from './work.js';

export type * from './jobs/enqueue.js';
export type * from './jobs/find.js';
export type { JobStore } from './jobs/job-store.js';
export type * from './jobs/manage.js';
export type * from './jobs/pauses.js';
export type * from './jobs/schedules.js';
export type * from './jobs/settlement.js';
export type * from './cluster/watch.js';
export * from './cluster/instances.js';
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
} from './limits/limits.js';
export type { LockAnswer, LockManner, LockOwner, LockStore } from './cluster/lock.js';
export type { MetricsStore } from './metrics.js';
export {
  leasesOf,
  NOTHING,
  readLeases,
  runsOf,
  type InstanceLease,
  type Leases,
  type Runs,
} from './cluster/leases.js';
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
