/** Instances and their leases, as they are written. `leases.ts` is what instances read of each other. */
import type { Cluster, Instance, InstanceState, TaskAdvert } from '../work.js';
import type { Leases } from './leases.js';

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
