import type { Clock, Timer } from '../../core/clock.js';
import {
  isAlive,
  readLeases,
  type Instance,
  type InstanceLease,
  type InstanceStore,
  type Leases,
  type WorkKind,
} from '../../store/port.js';

export interface LeaseWatchOptions {
  readonly store: Pick<InstanceStore, 'leases' | 'list'>;
  readonly clock: Clock;
  readonly leaseMs: number;
  readonly self: () => Instance;
  readonly error: (error: unknown) => void;
}

/** An instance's place, from 0, among the `of` live instances that run the same names. */
export interface Place {
  readonly rank: number;
  readonly of: number;
}

const ALONE: Place = { rank: 0, of: 1 };

/** Instances that started together must not all read at the same moment: each waits up to this share of a lease. */
const JITTER_SHARE = 0.1;
/** An instance that is alone reads the leases after every third renewal only. */
const RENEWALS_ALONE = 3;

/**
 * Reads the leases of all instances, up to three times per lease, and passes them on: to the reclaimer, to the election of a
 * leader, and to claims, which need this instance's place among the others. Claims themselves read none of it, so their
 * cost does not grow with the cluster.
 */
export class LeaseWatch {
  readonly #options: LeaseWatchOptions;
  readonly #observers: ((leases: Leases) => void)[] = [];
  #leases: Leases | undefined;
  #places = new Map<WorkKind, Place>();
  #timer: Timer | undefined;
  #renewals = 0;
  #isClose = false;
  #closed = false;

  constructor(options: LeaseWatchOptions) {
    this.#options = options;
  }

  join(observer: (leases: Leases) => void): void {
    this.#observers.push(observer);
  }

  /** From now on, reads the leases after each renewal, alone or not: this instance may have to lead. */
  watchClosely(): void {
    this.#isClose = true;
  }

  /** Called after each renewal of this instance's own lease: reads the leases soon. */
  renewed(): void {
    const { clock, leaseMs } = this.#options;
    this.#renewals += 1;
    const isAlone = this.#leases !== undefined && this.#leases.instances.length <= 1;
    const isRare = isAlone && !this.#isClose;
    if (this.#closed || (isRare && this.#renewals % RENEWALS_ALONE !== 0)) return;
    const look = (): void => {
      this.#timer = undefined;
      this.look();
    };
    this.#timer ??= clock.timer(Math.round(Math.random() * leaseMs * JITTER_SHARE), look, {
      housekeeping: true,
    });
  }

  /** Reads the leases now. */
  look(): void {
    const looking = this.#look();
    this.#options.clock.track?.(looking);
  }

  stop(): void {
    this.#closed = true;
    this.#timer?.cancel();
  }

  /** As of the last reading; alone before the first. */
  place(kind: WorkKind): Place {
    const known = this.#places.get(kind) ?? this.#find(kind);
    this.#places.set(kind, known);
    return known;
  }

  #find(kind: WorkKind): Place {
    const { life } = this.#options.self();
    const alive = (this.#leases?.instances ?? []).filter(isAlive);
    const mine = alive.find((one) => one.life === life)?.runs?.[kind];
    if (mine === undefined) return ALONE;
    const peers = alive.filter(({ runs }: InstanceLease) => runs?.[kind] === mine).map((one) => one.life);
    return { rank: peers.sort().indexOf(life), of: peers.length };
  }

  async #look(): Promise<void> {
    const { store, error } = this.#options;
    try {
      const leases = await readLeases(store);
      if (this.#closed) return;
      this.#leases = leases;
      this.#places = new Map();
      for (const observer of this.#observers) observer(leases);
    } catch (problem) {
      if (!this.#closed) error(problem);
    }
  }
}
