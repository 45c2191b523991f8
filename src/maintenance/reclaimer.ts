import { pause, type Clock, type Timer } from '../core/clock.js';
import type { Cluster, Instance, InstanceState, Store, StrayQuery } from '../store/port.js';
import type { Policies } from './handover.js';

/** What hands on one kind of work. */
interface HandsOn {
  emptied(instance: Instance, policies: Policies, stop: AbortSignal): Promise<boolean>;
  strays(query: Omit<StrayQuery, 'limit'>): Promise<void>;
  handBackUnknown(self: Instance, leaseMs: number): Promise<void>;
}

export interface ReclaimerOptions {
  readonly store: Pick<Store, 'clock' | 'instances'>;
  readonly leaseMs: number;
  readonly self: () => Instance;
  /** Of each kind of work that this instance can hand on. */
  readonly handovers: () => readonly HandsOn[];
  /** False while a dead instance may hold work of a kind that another instance has to hand on. */
  readonly mayBury: (instance: InstanceState) => Promise<boolean>;
  readonly error: (error: unknown) => void;
}

/** A lease that ends is looked at this much later, so that the server agrees that it has ended. */
const SLACK_MS = 50;
/** Work of older programs is left alone for at least this long. */
const LEGACY_MS = 90_000;

/**
 * Hands on the work of dead instances. Any instance may do it, several at once: each step has its precondition in
 * the write. First the dead one is fenced, so that it can never renew again; then what it held goes back or fails.
 */
export class Reclaimer {
  readonly #options: ReclaimerOptions;
  readonly #clock: Clock;
  readonly #stop = new AbortController();
  /** By life: when this instance had handed on all it can of a dead one that it must not bury. */
  readonly #left = new Map<string, number>();
  #timer: Timer | undefined;
  #seenAt = -Infinity;
  #strays: Promise<void> = Promise.resolve();
  #working: Promise<void> | undefined;

  constructor(options: ReclaimerOptions) {
    this.#options = options;
    this.#clock = options.store.clock;
  }

  start(): void {
    this.#strays = this.#lookForStrays();
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    this.#timer?.cancel();
    await this.#strays;
    await this.#working;
  }

  /** Takes note of who is alive, and sets a timer for whoever's lease ends first. */
  observe(cluster: Cluster): void {
    if (this.#stop.signal.aborted) return;
    this.#seenAt = this.#clock.monotonic();
    this.#timer?.cancel();
    const others = cluster.instances.filter((instance) => instance.life !== this.#options.self().life);
    const gone = others.filter((instance) => instance.dead || instance.leftMs <= 0);
    const due = gone.filter((instance) => !this.#isLeft(instance));
    if (due.length > 0) this.#reclaim(due);
    const next = Math.min(...others.filter((one) => !gone.includes(one)).map((one) => one.leftMs));
    if (next !== Infinity) this.#timer = this.#clock.timer(next + SLACK_MS, () => this.#lookAgain());
  }

  /** Looked at once a lease, since a claim of the dead one may land late; the rest is for an instance that runs its tasks. */
  #isLeft({ life }: Instance): boolean {
    const leftAt = this.#left.get(life);
    if (leftAt === undefined) return false;
    if (this.#clock.monotonic() - leftAt < this.#options.leaseMs) return true;
    this.#left.delete(life);
    return false;
  }

  /** A loop that is too busy to look brings no news: then this asks for itself. */
  renewed(): void {
    if (this.#clock.monotonic() - this.#seenAt > this.#options.leaseMs / 3) this.#lookAgain();
  }

  #lookAgain(): void {
    const look = this.#lookOnce();
    this.#clock.track?.(look);
  }

  async #lookOnce(): Promise<void> {
    try {
      this.observe(await this.#options.store.instances.list());
    } catch (error) {
      if (this.#stop.signal.aborted) return;
      this.#options.error(error);
      this.#timer?.cancel();
      this.#timer = this.#clock.timer(1_000, () => this.#lookAgain());
    }
  }

  #reclaim(instances: readonly InstanceState[]): void {
    if (this.#working !== undefined) return;
    this.#working = this.#reclaimAll(instances)
      .catch((error: unknown) => this.#options.error(error))
      .finally(() => (this.#working = undefined));
    this.#clock.track?.(this.#working);
  }

  async #reclaimAll(instances: readonly InstanceState[]): Promise<void> {
    const { store, mayBury } = this.#options;
    for (const instance of instances) {
      if (this.#stop.signal.aborted) return;
      const fenced = await store.instances.fence(instance);
      const emptied = fenced !== undefined && (await this.#emptied(instance, fenced.policies));
      if (!emptied) continue;
      if (await mayBury(instance)) await store.instances.bury(instance);
      else this.#left.set(instance.life, this.#clock.monotonic());
    }
  }

  async #emptied(instance: Instance, policies: Policies): Promise<boolean> {
    let all = true;
    for (const handover of this.#options.handovers())
      all = (await handover.emptied(instance, policies, this.#stop.signal)) && all;
    return all;
  }

  async #lookForStrays(): Promise<void> {
    while (await pause(this.#clock, this.#options.leaseMs, this.#stop.signal)) {
      const look = this.#handOnStrays().catch(this.#options.error);
      this.#clock.track?.(look);
      await look;
    }
  }

  async #handOnStrays(): Promise<void> {
    const { store, leaseMs, handovers, self } = this.#options;
    // Asked now: a process that comes back from a pause remembers a cluster that is long gone.
    const { instances } = await store.instances.list();
    const lives = instances.map((instance) => instance.life);
    for (const handover of handovers()) {
      await handover.strays({ lives, olderThanMs: leaseMs, legacyAfterMs: Math.max(leaseMs, LEGACY_MS) });
      await handover.handBackUnknown(self(), leaseMs);
    }
  }
}
