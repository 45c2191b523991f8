import { Backoff } from '../../core/backoff.js';
import { pause, type Clock } from '../../core/clock.js';
import type { Work } from '../../core/records/work.js';
import type { ClaimAnswer, ClaimRequest, Cluster, DueSummary, Hint, WorkStore } from '../../store/port.js';
import type { LeaseKeeper } from '../lease/lease-keeper.js';
import type { Lanes, LaneRequest } from './lanes.js';
import type { WakeSubscription } from './listener.js';
import type { Reason, Wake } from './wake.js';

/** The engine, as its claim loop sees it. */
export interface ClaimHost<W extends Work> {
  /** False while nothing may be claimed: no lease, too many abandoned handlers, or too many unrecorded outcomes. */
  readonly mayClaim: boolean;
  /** Shortest and longest wait between two polls. The wait doubles while nothing is found. */
  readonly pollMs: { readonly min: number; readonly max: number };
  /** Applies and returns the names that are run here now. */
  defineNames(): readonly string[];
  /** Starts what the lanes have accepted, as slots allow. */
  startWaiting(): void;
  /** Hands back work that was claimed but may no longer run. */
  release(works: readonly W[]): void;
  /** Takes note of the cluster that came with a peek or a claim. */
  observe(cluster: Cluster, summary?: DueSummary): void;
}

export interface ClaimLoopOptions<W extends Work> {
  readonly host: ClaimHost<W>;
  readonly store: Pick<WorkStore<W, unknown>, 'peek' | 'claim' | 'claimedUnder'>;
  readonly clock: Clock;
  readonly lanes: Lanes<W>;
  readonly wake: Wake;
  readonly keeper: Pick<LeaseKeeper, 'self' | 'mint'>;
  readonly subscription: WakeSubscription;
  readonly heartbeatMs: number;
  /** Peek even if no name is run here now: the peek may show that a definition has come into force. */
  readonly peeksWithoutNames: boolean;
  readonly error: (error: unknown) => void;
}

export interface ClaimCounters {
  claims: number;
  /** Claims that lost everything they tried to take to other instances. */
  empty: number;
  /** Claims that lost part of it. */
  short: number;
}

/** The wait before the next step while nothing may be claimed. */
const BARRED_MS = 2_000;
const STEP_RETRY_MS = { min: 200, max: 2_000 };
const ASK_RETRY_MS = { min: 100, max: 2_000 };
/** The longest wait before claiming again when other instances were faster. */
const CONTENDED_MS = 10;
/** Hints kept for the next claim. Beyond this many, a wake-up only means that there is work. */
const MOST_HINTS = 4;

/**
 * The claim loop: claim what there is room for, start it, and wait. An engine runs one claim at a time. A wake-up
 * shortens the wait; polling finds all work even if every wake-up is lost.
 */
export class ClaimLoop<W extends Work = Work> {
  readonly counters: ClaimCounters = { claims: 0, empty: 0, short: 0 };
  readonly #options: ClaimLoopOptions<W>;
  #cluster: Cluster | undefined;
  #lastContactAt = -Infinity;
  #peekedAt = -Infinity;
  #stepAt: number | undefined;
  /** Names with work due at the last peek. */
  #due: ReadonlySet<string> = new Set();
  /** More may be due than was claimed, so a free slot is a reason to claim. */
  #mayBeMore = true;
  readonly #idlePoll: Backoff;
  #hints: Hint[] = [];
  /** The token of the claim in progress, until it is known what it took. */
  #claiming: string | undefined;
  /** Monotonic time of the last claim, or reserved insert, whose response was lost; -Infinity if there is none. */
  suspectAt: number = -Infinity;

  constructor(options: ClaimLoopOptions<W>) {
    this.#options = options;
    this.#idlePoll = new Backoff(() => options.host.pollMs);
  }

  /** Monotonic time of the last response to a peek or a claim. */
  get lastContactAt(): number {
    return this.#lastContactAt;
  }

  /** True if no due work is left over and the name is not paused, as of the last peek. New work need not queue then. */
  quiet(name: string): boolean {
    return !this.#mayBeMore && !this.#due.has(name) && this.#cluster?.paused.has(name) === false;
  }

  /** Records the job that a wake-up named, for the next claim. */
  hint(hint: Hint): void {
    if (this.#hints.length < MOST_HINTS) this.#hints.push(hint);
  }

  /** Slots became free. Wakes the loop only if more was due than could be claimed. */
  slotsFreed(): void {
    if (this.#mayBeMore) this.#options.wake.notify();
  }

  get claiming(): string | undefined {
    return this.#claiming;
  }

  get cluster(): Cluster | undefined {
    return this.#cluster;
  }

  /** Milliseconds since the current step began; 0 while the loop waits. */
  get stepMs(): number {
    return this.#stepAt === undefined ? 0 : this.#options.clock.monotonic() - this.#stepAt;
  }

  async run(stop: AbortSignal): Promise<void> {
    const { clock, wake, error } = this.#options;
    const retry = new Backoff(STEP_RETRY_MS);
    let reason: Reason = 'timer';
    while (!stop.aborted) {
      this.#stepAt = clock.monotonic();
      const step = this.#step(reason, stop);
      clock.track?.(step);
      try {
        const waitMs = await step;
        this.#stepAt = undefined;
        retry.reset();
        reason = waitMs > 0 ? await wake.wait(waitMs, stop) : 'notified';
      } catch (problem) {
        this.#stepAt = undefined;
        error(problem);
        await pause(clock, retry.next(), stop);
      }
    }
  }

  /** Claims if there is reason to expect work, otherwise peeks. Returns how long to wait afterwards. */
  async #step(reason: Reason, stop: AbortSignal): Promise<number> {
    const { host, clock, lanes, keeper, subscription, peeksWithoutNames } = this.#options;
    if (!host.mayClaim) return BARRED_MS;
    // No handlers here: `notify` wakes the loop when one is added.
    if (!peeksWithoutNames && host.defineNames().length === 0) return host.pollMs.max;
    // Peek even under a standing backlog: only a peek finds hand-written work and dead instances.
    if (reason === 'timer' || clock.monotonic() - this.#peekedAt > host.pollMs.max) {
      // Listen before peeking, so that nothing due in between is missed.
      if (reason === 'timer') await subscription.idle();
      const waitMs = await this.#untilDue();
      if (waitMs > 0) return waitMs;
    }
    const request = lanes.request(this.#cluster, keeper.self, this.#due);
    if (request === null) {
      // Only a peek tells which definitions are in force and, if there is no polling, which names are paused.
      if (host.pollMs.max === Infinity || host.defineNames().length === 0) await this.#untilDue();
      this.#mayBeMore = true;
      return host.pollMs.max;
    }
    const answer = await this.#claim(request, stop);
    this.#mayBeMore = answer.more;
    if (answer.jobs.length > 0) this.#idlePoll.reset();
    if (answer.more) {
      await subscription.busy();
      return answer.jobs.length > 0 ? 0 : Math.ceil(Math.random() * CONTENDED_MS);
    }
    await subscription.idle();
    const waitMs = await this.#untilDue();
    // Work is due, but the claim got none: other instances are claiming it.
    return waitMs === 0 && answer.jobs.length === 0 ? CONTENDED_MS : waitMs;
  }

  async #claim(request: LaneRequest, stop: AbortSignal): Promise<ClaimAnswer<W>> {
    const { host, keeper, lanes, heartbeatMs, clock } = this.#options;
    const instance = keeper.self;
    const token = keeper.mint();
    const hints = this.#hints.splice(0).filter(({ name }) => this.#cluster?.paused.has(name) !== true);
    this.#claiming = token;
    try {
      const answer = await this.#send({ instance, token, heartbeatMs, hints, ...request }, stop);
      this.#count(answer);
      this.#saw(answer.cluster);
      // The lease may have been lost, or the engine stopped, during the claim.
      const over = stop.aborted || !host.mayClaim || keeper.self.life !== instance.life;
      const mayRun = ({ name }: Work): boolean => !over && !answer.cluster.paused.has(name);
      host.release(answer.jobs.filter((job) => !mayRun(job)));
      lanes.accept(answer.jobs.filter(mayRun), clock.monotonic());
      if (!over) host.startWaiting();
      return answer;
    } finally {
      this.#claiming = undefined;
    }
  }

  /** A claim whose response was lost may have taken work. Asks what its token holds until the store answers. */
  async #send(request: ClaimRequest, stop: AbortSignal): Promise<ClaimAnswer<W>> {
    const { host, store, clock, error } = this.#options;
    try {
      return await store.claim(request);
    } catch (problem) {
      this.suspectAt = clock.monotonic();
      error(problem);
    }
    for (const retry = new Backoff(ASK_RETRY_MS); ;) {
      await pause(clock, retry.next());
      try {
        const jobs = await store.claimedUnder(request.instance, request.token);
        const { cluster } = await store.peek([...request.limits.keys()]);
        return { jobs, asked: jobs.length, more: true, cluster };
      } catch (problem) {
        error(problem);
        if (stop.aborted || !host.mayClaim) throw problem;
      }
    }
  }

  #count({ jobs, asked }: ClaimAnswer<W>): void {
    this.counters.claims += 1;
    if (jobs.length < asked) this.counters[jobs.length === 0 ? 'empty' : 'short'] += 1;
  }

  /** Peeks, and returns how long to wait for the next due time or poll; 0 if work is due and there is room for it. */
  async #untilDue(): Promise<number> {
    const { host, store, clock, lanes } = this.#options;
    const summary = await store.peek(host.defineNames());
    this.#peekedAt = clock.monotonic();
    this.#saw(summary.cluster, summary);
    const now = summary.cluster.now.getTime();
    const pending = [...summary.nextDue].filter(([name]) => !summary.cluster.paused.has(name));
    const isDue = ([, at]: readonly [string, Date]): boolean => at.getTime() <= now;
    this.#due = new Set(pending.filter(isDue).map(([name]) => name));
    // A freed slot matters to work that is due, and to work that may become due while its name has no room.
    this.#mayBeMore = pending.some((entry) => isDue(entry) || !lanes.hasRoom(entry[0]));
    const waits = pending.filter(([name]) => lanes.hasRoom(name)).map(([, at]) => at.getTime() - now);
    const resumesIn = (summary.cluster.resumeAt?.getTime() ?? Infinity) - now;
    const next = Math.min(...waits, Math.max(1, resumesIn));
    if (next <= 0) return 0;
    return Math.min(this.#idlePoll.next(), next);
  }

  #saw(cluster: Cluster, summary?: DueSummary): void {
    this.#cluster = cluster;
    this.#lastContactAt = this.#options.clock.monotonic();
    this.#options.host.observe(cluster, summary);
  }
}
