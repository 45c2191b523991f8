import { Backoff } from '../core/backoff.js';
import { pause, type Clock, type Timer } from '../core/clock.js';
import type { Cluster, Instance, InstanceState, Store } from '../store/port.js';
import type { Policies, StraySearch } from './handover.js';

/** Hands on one kind of work. See `Handover`. */
interface HandsOn {
  emptied(instance: Instance, policies: Policies, stop: AbortSignal): Promise<boolean>;
  strays(search: StraySearch): Promise<void>;
  handBackUnknown(self: Instance, leaseMs: number): Promise<void>;
}

/** Decides when an instance whose lease has ended may be declared dead. See `FailureDetector`. */
interface Detector {
  observe(cluster: Cluster): void;
  /** Milliseconds until this instance may be declared dead, as far as is known now; 0 if it may be. */
  waitMs(instance: InstanceState): number;
  /** Milliseconds that other instances still have to come back after an outage; 0 in normal operation. */
  readonly graceMs: number;
}

export interface ReclaimerOptions {
  readonly store: Pick<Store, 'clock' | 'instances'>;
  readonly leaseMs: number;
  readonly self: () => Instance;
  readonly detector: Detector;
  /** One for each kind of work that this instance can hand on. */
  readonly handovers: () => readonly HandsOn[];
  /** False while a dead instance may hold work of a kind that another instance has to hand on. */
  readonly mayBury: (instance: InstanceState) => Promise<boolean>;
  readonly error: (error: unknown) => void;
}

/** Added to the end of a lease before the next look, so that it has ended by the server's clock, too. */
const SLACK_MS = 50;
/** Backoff for a dead instance whose work could not all be handed on. */
const RETRY_MS = { min: 500, max: 10_000 };
/** Work of older programs, which hold no lease, counts as stray only after this long. */
const LEGACY_MS = 90_000;

/**
 * Hands on the work of dead instances. Any instance may do so, even several at once: each write carries its
 * precondition. First the reclaimer fences the dead instance, so that it can never renew again; then it hands back or
 * fails what the instance held. An expired lease alone does not make an instance dead: the failure detector gives live
 * processes time to renew.
 */
export class Reclaimer {
  readonly #options: ReclaimerOptions;
  readonly #clock: Clock;
  readonly #stop = new AbortController();
  /** By life: when to retry a dead instance that still holds work, or that may not be buried yet. */
  readonly #left = new Map<string, { readonly until: number; readonly retry: Backoff }>();
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

  /** Reclaims the instances that may be declared dead, and sets a timer for the next one. */
  observe(cluster: Cluster): void {
    if (this.#stop.signal.aborted) return;
    this.#seenAt = this.#clock.monotonic();
    this.#timer?.cancel();
    const { detector, self } = this.#options;
    detector.observe(cluster);
    const others = cluster.instances.filter((instance) => instance.life !== self().life);
    for (const life of this.#left.keys())
      if (!others.some((other) => other.life === life)) this.#left.delete(life);
    const waits = others.map((instance) => ({ instance, waitMs: this.#waitMs(instance) }));
    const due = waits.filter(({ waitMs }) => waitMs <= 0).map(({ instance }) => instance);
    if (due.length > 0) this.#reclaim(due);
    const next = Math.min(...waits.filter(({ waitMs }) => waitMs > 0).map(({ waitMs }) => waitMs));
    if (next !== Infinity) this.#timer = this.#clock.timer(next + SLACK_MS, () => this.#lookAgain());
  }

  #waitMs(instance: InstanceState): number {
    if (!instance.dead) return this.#options.detector.waitMs(instance);
    return (this.#left.get(instance.life)?.until ?? -Infinity) - this.#clock.monotonic();
  }

  #leave({ life }: Instance, waitMs?: number): void {
    const { retry } = this.#left.get(life) ?? { retry: new Backoff(RETRY_MS) };
    this.#left.set(life, { retry, until: this.#clock.monotonic() + (waitMs ?? retry.next()) });
  }

  /** The claim loop normally reports the cluster. If it has been too busy for a third of a lease, asks the store. */
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
    const { store, mayBury, leaseMs } = this.#options;
    for (const instance of instances) {
      if (this.#stop.signal.aborted) return;
      const fenced = await store.instances.fence(instance);
      if (fenced === undefined) continue;
      if (!(await this.#emptied(instance, fenced.policies))) this.#leave(instance);
      else if (await mayBury(instance)) await store.instances.bury(instance);
      // Try again once per lease: a claim of the dead instance may land late. Instances that run its tasks do the rest.
      else this.#leave(instance, leaseMs);
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
    const { store, leaseMs, handovers, self, detector } = this.#options;
    if (detector.graceMs > 0) return;
    const lives = async (): Promise<readonly string[]> =>
      (await store.instances.list()).instances.map(({ life }) => life);
    for (const handover of handovers()) {
      await handover.strays({ lives, olderThanMs: leaseMs, legacyAfterMs: Math.max(leaseMs, LEGACY_MS) });
      await handover.handBackUnknown(self(), leaseMs);
    }
  }
}
