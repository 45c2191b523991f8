import { Backoff } from '../core/backoff.js';
import { pause, type Clock, type Timer } from '../core/clock.js';
import { readLeases, type Instance, type InstanceLease, type Leases, type Store } from '../store/port.js';
import type { Policies, StraySearch } from './handover.js';

/** Hands on one kind of work. See `Handover`. */
export interface HandsOn {
  emptied(instance: Instance, policies: Policies, stop: AbortSignal): Promise<boolean>;
  strays(search: StraySearch): Promise<void>;
  handBackUnknown(self: Instance, leaseMs: number): Promise<void>;
}

/** Decides when an instance whose lease has ended may be declared dead. See `FailureDetector`. */
interface Detector {
  observe(leases: Leases): void;
  /** Milliseconds until this instance may be declared dead, as far as is known now; 0 if it may be. */
  waitMs(instance: InstanceLease): number;
  /** Milliseconds that other instances still have to come back after an outage; 0 in normal operation. */
  readonly graceMs: number;
}

/** The instance, as its reclaimer sees it. */
export interface ReclaimHost {
  readonly self: Instance;
  /** One for each kind of work that this instance can hand on. */
  readonly handovers: readonly HandsOn[];
  /** False while a dead instance may hold work of a kind that another instance has to hand on. */
  mayBury(instance: InstanceLease): Promise<boolean>;
  /** Frees the permits of a dead instance, which holds no work any more. */
  drop(instance: Instance): Promise<void>;
  /** Frees permits of lives that are not registered. */
  dropUnregistered(): Promise<void>;
  error(error: unknown, where: string): void;
}

export interface ReclaimerOptions {
  readonly host: ReclaimHost;
  readonly store: Pick<Store, 'clock' | 'instances'>;
  readonly leaseMs: number;
  readonly detector: Detector;
}

/** A dead instance that could not be buried yet. */
interface Left {
  /** Monotonic times: when it was left first, and when to retry. */
  readonly since: number;
  readonly until: number;
  readonly retry: Backoff;
}

/** Added to the end of a lease before the next look, so that it has ended by the server's clock, too. */
const SLACK_MS = 50;
/** Added at random, so that not all instances look at the same moment when a lease has ended: up to this share. */
const JITTER = { share: 0.05, mostMs: 250 };
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
  readonly #left = new Map<string, Left>();
  #timer: Timer | undefined;
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
  observe(leases: Leases): void {
    if (this.#stop.signal.aborted) return;
    this.#timer?.cancel();
    const { detector, host, leaseMs } = this.#options;
    detector.observe(leases);
    const others = leases.instances.filter((instance) => instance.life !== host.self.life);
    for (const life of this.#left.keys())
      if (!others.some((other) => other.life === life)) this.#left.delete(life);
    const waits = others.map((instance) => ({ instance, waitMs: this.#waitMs(instance) }));
    const due = waits.filter(({ waitMs }) => waitMs <= 0).map(({ instance }) => instance);
    if (due.length > 0) this.#reclaim(due);
    const next = Math.min(...waits.filter(({ waitMs }) => waitMs > 0).map(({ waitMs }) => waitMs));
    if (next === Infinity) return;
    const slackMs = SLACK_MS + Math.round(Math.random() * Math.min(leaseMs * JITTER.share, JITTER.mostMs));
    this.#timer = this.#clock.timer(next + slackMs, () => this.#lookAgain());
  }

  #waitMs(instance: InstanceLease): number {
    if (!instance.dead) return this.#options.detector.waitMs(instance);
    return (this.#left.get(instance.life)?.until ?? -Infinity) - this.#clock.monotonic();
  }

  #leave({ life }: Instance, waitMs?: number): void {
    const now = this.#clock.monotonic();
    const { retry, since } = this.#left.get(life) ?? { retry: new Backoff(RETRY_MS), since: now };
    this.#left.set(life, { retry, since, until: now + (waitMs ?? retry.next()) });
  }

  /** True if it has been tried for longer than a lease. */
  #isOverdue({ life }: Instance): boolean {
    const { since = Infinity } = this.#left.get(life) ?? {};
    return this.#clock.monotonic() - since > this.#options.leaseMs;
  }

  #lookAgain(): void {
    const look = this.#lookOnce();
    this.#clock.track?.(look);
  }

  async #lookOnce(): Promise<void> {
    try {
      this.observe(await readLeases(this.#options.store.instances));
    } catch (error) {
      if (this.#stop.signal.aborted) return;
      this.#error(error);
      this.#timer?.cancel();
      this.#timer = this.#clock.timer(1_000, () => this.#lookAgain());
    }
  }

  #reclaim(instances: readonly InstanceLease[]): void {
    if (this.#working !== undefined) return;
    this.#working = this.#reclaimAll(instances)
      .catch((error: unknown) => this.#error(error))
      .finally(() => (this.#working = undefined));
    this.#clock.track?.(this.#working);
  }

  async #reclaimAll(instances: readonly InstanceLease[]): Promise<void> {
    const { store, host, leaseMs } = this.#options;
    for (const instance of instances) {
      if (this.#stop.signal.aborted) return;
      const fenced = await store.instances.fence(instance);
      if (fenced === undefined) continue;
      const isEmpty = await this.#emptied(instance, fenced.policies);
      if (this.#isStopping()) return;
      // What is left may still run, so it counts against limits; if the database keeps refusing it, for one more lease.
      if (isEmpty || this.#isOverdue(instance)) await host.drop(instance);
      if (isEmpty && (await host.mayBury(instance))) await store.instances.bury(instance);
      // Once per lease if it is empty: a claim of the dead instance may land late. Instances that run its tasks do the rest.
      else this.#leave(instance, isEmpty ? leaseMs : undefined);
    }
  }

  #isStopping(): boolean {
    return this.#stop.signal.aborted;
  }

  async #emptied(instance: Instance, policies: Policies): Promise<boolean> {
    let all = true;
    for (const handover of this.#options.host.handovers)
      all = (await handover.emptied(instance, policies, this.#stop.signal)) && all;
    return all;
  }

  async #lookForStrays(): Promise<void> {
    while (await pause(this.#clock, this.#options.leaseMs, this.#stop.signal)) {
      const look = this.#handOnStrays().catch((error: unknown) => this.#error(error));
      this.#clock.track?.(look);
      await look;
    }
  }

  async #handOnStrays(): Promise<void> {
    const { store, leaseMs, host, detector } = this.#options;
    if (detector.graceMs > 0) return;
    const lives = async (): Promise<readonly Instance[]> => (await readLeases(store.instances)).instances;
    for (const handover of host.handovers) {
      await handover.strays({ lives, olderThanMs: leaseMs, legacyAfterMs: Math.max(leaseMs, LEGACY_MS) });
      await handover.handBackUnknown(host.self, leaseMs);
    }
    await host.dropUnregistered();
  }

  #error(error: unknown): void {
    this.#options.host.error(error, 'reclaim');
  }
}
