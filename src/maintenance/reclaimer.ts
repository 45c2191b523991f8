import { pause, type Clock, type Timer } from '../core/clock.js';
import type { FailureKind, JobRecord } from '../core/job.js';
import type { Finished } from '../core/outcome.js';
import {
  leaseOf,
  type Cluster,
  type FailedRun,
  type Instance,
  type Settlement,
  type Store,
} from '../store/port.js';

export interface ReclaimerOptions {
  readonly store: Store;
  readonly leaseMs: number;
  readonly self: () => Instance;
  /** What a crashed attempt comes to, by the policies of whoever ran it. */
  readonly conclude: (
    work: JobRecord,
    finished: Finished,
    policies: Readonly<Record<string, unknown>>,
  ) => { readonly settlement: Settlement; readonly failedRun?: FailedRun; readonly retryAt?: Date };
  /** Work of this instance's own life that it does not know of, if there is reason to look: a claim's answer was lost. */
  readonly unknown?: () => ((work: JobRecord) => boolean) | undefined;
  readonly recovered: (works: readonly Recovered[]) => void;
  readonly error: (error: unknown) => void;
}

/** Work that was handed on, and what it came to. */
export interface Recovered {
  readonly work: JobRecord;
  readonly finished: Finished;
  readonly settlement: Settlement;
  readonly retryAt?: Date;
}

const BATCH = 500;
/** A lease that ends is looked at this much later, so that the server agrees that it has ended. */
const SLACK_MS = 50;
/** Work of older programs is left alone for at least this long. */
const LEGACY_MS = 90_000;

const CRASHED: FailureKind = 'crashed';

/**
 * Hands on the work of dead instances. Any instance may do it, several at once: each step has its precondition in
 * the write. First the dead one is fenced, so that it can never renew again; then what it held goes back or fails.
 */
export class Reclaimer {
  readonly #options: ReclaimerOptions;
  readonly #clock: Clock;
  readonly #stop = new AbortController();
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
    if (gone.length > 0) this.#reclaim(gone);
    const next = Math.min(...others.filter((one) => !gone.includes(one)).map((one) => one.leftMs));
    if (next !== Infinity) this.#timer = this.#clock.timer(next + SLACK_MS, () => this.#lookAgain());
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

  #reclaim(instances: readonly Instance[]): void {
    if (this.#working !== undefined) return;
    this.#working = this.#reclaimAll(instances)
      .catch((error: unknown) => this.#options.error(error))
      .finally(() => (this.#working = undefined));
    this.#clock.track?.(this.#working);
  }

  async #reclaimAll(instances: readonly Instance[]): Promise<void> {
    const { store } = this.#options;
    for (const instance of instances) {
      if (this.#stop.signal.aborted) return;
      const fenced = await store.instances.fence(instance);
      if (fenced !== undefined && (await this.#emptied(instance, fenced.policies)))
        await store.instances.bury(instance);
    }
  }

  /** Hands on everything that a fenced instance held; false where something is left for the next time. */
  async #emptied(instance: Instance, policies: Readonly<Record<string, unknown>>): Promise<boolean> {
    for (;;) {
      const works = await this.#options.store.jobs.heldBy(instance, BATCH);
      if (works.length === 0) return true;
      if (this.#stop.signal.aborted || (await this.#handOn(works, policies)) === 0) return false;
    }
  }

  /** Answers how many of them were written by this call. */
  async #handOn(works: readonly JobRecord[], policies: Readonly<Record<string, unknown>>): Promise<number> {
    const { store, conclude, recovered } = this.#options;
    const finishedAt = this.#clock.now();
    const conclusions = works.map((work) => {
      const finished = { outcome: outcomeOf(work), finishedAt };
      return { work, finished, ...conclude(work, finished, policies) };
    });
    for (const { work, failedRun } of conclusions) {
      if (failedRun !== undefined) await store.jobs.insertFailedRun(work, failedRun);
    }
    const answers = await store.jobs.settle(
      conclusions.map(({ settlement }) => ({ ...settlement, by: 'reclaimer' })),
    );
    const written = conclusions.filter((_conclusion, index) => answers[index] === 'settled');
    if (written.length > 0) recovered(written);
    return written.length;
  }

  async #lookForStrays(): Promise<void> {
    while (await pause(this.#clock, this.#options.leaseMs, this.#stop.signal)) {
      const look = this.#handOnStrays().catch(this.#options.error);
      this.#clock.track?.(look);
      await look;
    }
  }

  async #handOnStrays(): Promise<void> {
    const { store, leaseMs } = this.#options;
    // Asked now: a process that comes back from a pause remembers a cluster that is long gone.
    const { instances } = await store.instances.list();
    const works = await store.jobs.strays({
      lives: instances.map((instance) => instance.life),
      olderThanMs: leaseMs,
      legacyAfterMs: Math.max(leaseMs, LEGACY_MS),
      limit: BATCH,
    });
    if (works.length > 0) await this.#handOn(works, {});
    await this.#handBackUnknown();
  }

  /** A claim that took effect after its answer had been given up: nobody runs it, so it goes back uncounted. */
  async #handBackUnknown(): Promise<void> {
    const { store, unknown, self, leaseMs, conclude } = this.#options;
    const isUnknown = unknown?.();
    if (isUnknown === undefined) return;
    const finishedAt = this.#clock.now();
    const works = (await store.jobs.heldBy(self(), BATCH)).filter(
      (work) => isUnknown(work) && (work.lockedAt?.getTime() ?? 0) < finishedAt - leaseMs,
    );
    const settlements = works.map(
      (work) => conclude(work, { outcome: { kind: 'released' }, finishedAt }, {}).settlement,
    );
    if (settlements.length > 0) await store.jobs.settle(settlements);
  }
}

/**
 * A crash counts as a failed attempt. Work that crashed before is marked when it really starts (`begin`): if its
 * process dies while it was only waiting its turn, it is handed back uncounted, and does not pay for its neighbours.
 */
function outcomeOf(work: JobRecord): Finished['outcome'] {
  const lease = leaseOf(work);
  if (work.failKind === CRASHED && lease.token !== null && work.startedToken !== lease.token)
    return { kind: 'released' };
  const holder = work.claimedBy ?? 'an unknown process';
  return {
    kind: 'crashed',
    error: new Error(`The process that ran this attempt (${holder}) died or lost its lease.`),
  };
}
