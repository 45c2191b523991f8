import type { Clock } from '../../core/clock.js';
import type { Logger } from '../../core/logger.js';
import type { Instance, Registration, ScopeRef, Store } from '../../store/port.js';
import { Slots } from '../claim/lanes.js';
import { LeaseKeeper } from './lease-keeper.js';
import { LeaseWatch } from './lease-watch.js';
import { Listener } from '../claim/listener.js';

export interface InstanceContextOptions {
  readonly store: Store;
  readonly instanceId: string;
  readonly concurrency: number;
  readonly leaseMs: number;
  readonly log: Logger;
  /** What the instance advertises with each renewal. */
  readonly describe: () => Pick<Registration, 'names' | 'policies' | 'tasks' | 'capacity' | 'plans'>;
  readonly error: (error: unknown, where: string) => void;
}

/** Reacts to changes of the instance's lease and of its slots. */
export interface LeaseListener {
  /** A slot of the instance became free. */
  slotFreed(): void;
  leaseLost(reason: string): void;
  leaseRegained(): void;
  leaseRenewed(): void;
  /** Definitions, leadership or requests have changed in the cluster. */
  news?(): void;
  /** Permits of these scopes were given back, or their limits have changed. */
  freed?(scopes: readonly ScopeRef[]): void;
}

/**
 * What the engines of one instance share: its lease, its listener for wake-ups and its slots. The lease belongs to the
 * instance, not to single jobs, so one small renewal keeps all its work.
 */
export class InstanceContext {
  readonly keeper: LeaseKeeper;
  readonly listener: Listener;
  /** The leases of all instances. */
  readonly leases: LeaseWatch;
  readonly slots: Slots;
  readonly #clock: Clock;
  readonly #crew: LeaseListener[] = [];
  #lastRenewalAt = -Infinity;

  constructor(options: InstanceContextOptions) {
    const { store, instanceId, leaseMs, concurrency, log, describe, error } = options;
    this.#clock = store.clock;
    this.slots = new Slots(concurrency);
    this.keeper = new LeaseKeeper({
      store: store.instances,
      clock: store.clock,
      instanceId,
      leaseMs,
      host: {
        describe,
        lost: (reason) => {
          for (const one of this.#crew) one.leaseLost(reason);
        },
        regained: () => {
          for (const one of this.#crew) one.leaseRegained();
        },
        renewed: () => {
          this.#lastRenewalAt = this.#clock.monotonic();
          for (const one of this.#crew) one.leaseRenewed();
          this.leases.renewed();
        },
        failed: (problem) => error(problem, 'renew'),
      },
    });
    this.leases = new LeaseWatch({
      store: store.instances,
      clock: store.clock,
      leaseMs,
      self: () => this.keeper.self,
      error: (problem) => error(problem, 'read leases'),
    });
    this.listener = new Listener({
      store,
      clock: store.clock,
      error: (problem) => error(problem, 'watch'),
      news: () => {
        for (const one of this.#crew) one.news?.();
      },
      freed: (scopes) => {
        for (const one of this.#crew) one.freed?.(scopes);
      },
      unavailable: (reason) => {
        log.warn({ reason }, `no wake-ups: ${reason}; new work is found by polling`);
      },
    });
  }

  get self(): Instance {
    return this.keeper.self;
  }

  /** Monotonic time of the last successful renewal. */
  get lastRenewalAt(): number {
    return this.#lastRenewalAt;
  }

  join(crew: LeaseListener): void {
    this.#crew.push(crew);
  }

  /** A listener has given back the only free slot: the others may be waiting for it. */
  freed(by: LeaseListener): void {
    if (this.slots.free !== 1) return;
    for (const one of this.#crew) if (one !== by) one.slotFreed();
  }

  async start(): Promise<void> {
    await this.keeper.start();
    this.#lastRenewalAt = this.#clock.monotonic();
    this.leases.look();
  }

  /** Call this after all engines have stopped. */
  /** `isEmpty`: false leaves the lease to its end, so that others reclaim what is held under it. */
  async stop(isEmpty = true): Promise<void> {
    this.leases.stop();
    await Promise.all([this.listener.close(), this.keeper.stop(isEmpty)]);
  }
}
