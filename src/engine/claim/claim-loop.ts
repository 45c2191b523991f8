import { Backoff } from '../../core/backoff.js';
import { pause, type Clock, type Timer } from '../../core/clock.js';
import type { Work } from '../../core/records/work.js';
import {
  isPausedIn,
  type ClaimAnswer,
  type ClaimRequest,
  type ClusterBrief,
  type DueSummary,
  type Hint,
  type Instance,
  type WorkStore,
} from '../../store/port.js';
import type { LeaseKeeper } from '../lease/lease-keeper.js';
import type { Place } from '../lease/lease-watch.js';
import type { Admitted, ClaimGate } from '../limits/claim-gate.js';
import type { Ticket } from '../limits/permits.js';
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
  /** Takes note of what came with a peek or a claim. */
  observe(cluster: ClusterBrief, summary?: DueSummary): void;
}

export interface ClaimLoopOptions<W extends Work> {
  readonly host: ClaimHost<W>;
  readonly store: Pick<WorkStore<W, unknown>, 'peek' | 'claim' | 'claimedUnder'>;
  readonly clock: Clock;
  readonly lanes: Lanes<W>;
  readonly wake: Wake;
  readonly keeper: Pick<LeaseKeeper, 'self' | 'mint'>;
  readonly subscription: WakeSubscription;
  /** This instance's place among the live instances that run the same names. */
  readonly place: () => Place;
  readonly heartbeatMs: number;
  /** Peek even if no name is run here now: the peek may show that a definition has come into force. */
  readonly peeksWithoutNames: boolean;
  /** Lets claims of limited names through. Absent if the store has no limits. */
  readonly gate?: ClaimGate | undefined;
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
/** A free slot waits for others for this share of the run that freed it, and at most this long. */
const GATHERING = { share: 0.05, mostMs: 50 };
/** Added to the end of a limit before the instance asks what a lost claim has taken: its clock may be a little off. */
const LANDING_MS = 100;
/** Shortens waits between polls at random, so that instances that started together do not poll together. */
const POLL_JITTER = 0.1;
/** Hints kept for the next claim. Beyond this many, a wake-up only means that there is work. */
const MOST_HINTS = 4;

/**
 * The claim loop: claim what there is room for, start it, and wait. An engine runs one claim at a time. A wake-up
 * shortens the wait; polling finds all work even if every wake-up is lost.
 */
export class ClaimLoop<W extends Work = Work> {
  readonly counters: ClaimCounters = { claims: 0, empty: 0, short: 0 };
  readonly #options: ClaimLoopOptions<W>;
  #cluster: ClusterBrief | undefined;
  #lastContactAt = -Infinity;
  #peekedAt = -Infinity;
  /** Monotonic time at which the wait ends that the last peek found; -Infinity if it found due work and room for it. */
  #waitsUntil = -Infinity;
  #stepAt: number | undefined;
  /** A wake-up came since the last peek or claim was sent. */
  #called = false;
  #peeksNext = false;
  /** The last claim took nothing, but did not come to all that is due. */
  #isCut = false;
  /** Names with work due at the last peek. */
  #due: ReadonlySet<string> = new Set();
  /** More may be due than was claimed, so a free slot is a reason to claim. */
  #mayBeMore = true;
  readonly #idlePoll: Backoff;
  /** When the first job expires, as of the last peek. */
  #expiresAt = Infinity;
  #hints: Hint[] = [];
  /** Runs while free slots wait for others. */
  #gathering: Timer | undefined;
  /** Nothing could be claimed at the last step. */
  #isBarred = false;
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
    const paused = this.#cluster?.paused;
    return !this.#mayBeMore && !this.#due.has(name) && paused !== undefined && !isPausedIn(paused, name);
  }

  /** Records the job that a wake-up named, for the next claim. */
  hint(hint: Hint): void {
    if (this.#hints.length < MOST_HINTS) this.#hints.push(hint);
  }

  /** Monotonic time at which the last peek was sent. */
  get peekedAt(): number {
    return this.#peekedAt;
  }

  remember(): void {
    this.#called = true;
    this.#mayBeMore = true;
  }

  peekNext(): void {
    this.peekFirst();
    this.#options.wake.notify();
  }

  /** The next step peeks before it claims. */
  peekFirst(): void {
    this.#peeksNext = true;
  }

  /**
   * Slots became free. Wakes the loop only if more was due than could be claimed. After a long run, which took `ranMs`,
   * it does so a little later, so that one claim fills the slots of several runs.
   */
  slotsFreed(ranMs = 0): void {
    if (!this.#mayBeMore || this.#gathering !== undefined) return;
    const { clock, wake } = this.#options;
    const waitMs = Math.floor(Math.min(ranMs * GATHERING.share, GATHERING.mostMs));
    if (waitMs === 0) wake.notify();
    else this.#gathering = clock.timer(waitMs, () => wake.notify());
  }

  /** Outcomes were recorded. Wakes the loop if it may claim again. */
  unbarred(): void {
    if (this.#isBarred) this.#options.wake.notify();
  }

  get claiming(): string | undefined {
    return this.#claiming;
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
    this.#stopGathering();
  }

  #stopGathering(): void {
    this.#gathering?.cancel();
    this.#gathering = undefined;
  }

  /** Claims if there is reason to expect work, otherwise peeks. Returns how long to wait afterwards. */
  async #step(reason: Reason, stop: AbortSignal): Promise<number> {
    const { host, clock, lanes, place, subscription, peeksWithoutNames, gate } = this.#options;
    this.#stopGathering();
    this.#isBarred = !host.mayClaim;
    if (this.#isBarred) return BARRED_MS;
    // No handlers here: `notify` wakes the loop when one is added.
    if (!peeksWithoutNames && host.defineNames().length === 0) return host.pollMs.max;
    // Peek even under a standing backlog: only a peek finds hand-written work.
    const isCut = this.#isCut;
    this.#isCut = false;
    const isTime = reason === 'timer' && !isCut;
    if (isTime || this.#peeksNext || clock.monotonic() - this.#peekedAt > host.pollMs.max) {
      // Listen before peeking, so that nothing due in between is missed.
      if (reason === 'timer') await subscription.idle();
      const waitMs = await this.#untilDue();
      if (waitMs > 0) return waitMs;
    }
    const asked = lanes.request(place(), clock.monotonic(), this.#due);
    const { instance, request, ticket } = await this.#admitted(asked);
    if (request === null) return this.#unclaimed(asked !== null || gate?.isHoldingUp === true);
    this.#called = false;
    const answer = await this.#claim(
      instance,
      { request, ...(ticket === undefined ? {} : { ticket }) },
      stop,
    );
    this.#mayBeMore = answer.more || this.#isCalled;
    if (answer.jobs.length > 0) this.#idlePoll.reset();
    // What has expired may be in the way, and a peek has it cancelled.
    if (answer.jobs.length === 0 && answer.cluster.now.getTime() >= this.#expiresAt) this.#peeksNext = true;
    if (answer.more) {
      await subscription.busy();
      // Another claim goes on where this one stopped, as with many keys at their limit; a peek may see nothing due there.
      this.#isCut = answer.jobs.length === 0;
      return this.#isCut ? Math.ceil(Math.random() * CONTENDED_MS) : 0;
    }
    await subscription.idle();
    if (gate?.holdsUp(request.limits.keys()) === true && !this.#peeksNext && this.#restMs > 0) {
      this.#mayBeMore = true;
      return this.#restMs;
    }
    const waitMs = await this.#untilDue();
    // Work is due, but the claim got none: other instances are claiming it.
    return waitMs === 0 && answer.jobs.length === 0 ? CONTENDED_MS : waitMs;
  }

  /** Nothing can be claimed: no name has room or, if `isHeldUp`, limits hold some up. Returns how long to wait. */
  async #unclaimed(isHeldUp: boolean): Promise<number> {
    const { host, gate, subscription } = this.#options;
    // The end of what limits wait for is told on the channel.
    if (gate?.isHoldingUp === true) await subscription.idle();
    // Only a peek tells which definitions are in force and, if there is no polling, which names are paused.
    const mustPeek = host.defineNames().length === 0 || (!isHeldUp && host.pollMs.max === Infinity);
    const waitMs = mustPeek || (isHeldUp && this.#restMs <= 0) ? await this.#untilDue() : this.#restMs;
    this.#mayBeMore = true;
    return isHeldUp ? waitMs : host.pollMs.max;
  }

  /** How much is left of the wait that the last peek found. */
  get #restMs(): number {
    return Math.max(0, Math.ceil(this.#waitsUntil - this.#options.clock.monotonic()));
  }

  /** What the limits let through of a request. */
  async #admitted(request: LaneRequest | null): Promise<Admitted & { readonly instance: Instance }> {
    const { gate, keeper } = this.#options;
    const instance = keeper.self;
    if (request === null || gate === undefined) return { instance, request };
    return { instance, ...(await gate.admit(request, this.#due)) };
  }

  async #claim(
    instance: Instance,
    { request, ticket }: { readonly request: LaneRequest; readonly ticket?: Ticket },
    stop: AbortSignal,
  ): Promise<ClaimAnswer<W>> {
    const { host, keeper, lanes, heartbeatMs, clock, gate } = this.#options;
    const token = keeper.mint();
    const paused = this.#cluster?.paused;
    // A limited name may have been granted fewer than its hints, or other keys than theirs.
    const isOpen = (name: string): boolean =>
      (paused === undefined || !isPausedIn(paused, name)) && gate?.isLimited(name) !== true;
    const hints = this.#hints.splice(0).filter(({ name }) => isOpen(name));
    this.#claiming = token;
    try {
      const answer = await this.#send(
        { instance, token, heartbeatMs, hints, ...request },
        stop,
        ticket !== undefined,
      );
      this.#count(answer);
      this.#saw(this.#completed(answer.cluster, request.limits.keys()));
      // The lease may have been lost, or the engine stopped, during the claim.
      const over = stop.aborted || !host.mayClaim || keeper.self.life !== instance.life;
      const mayRun = ({ name }: Work): boolean => !over && !isPausedIn(answer.cluster.paused, name);
      host.release(answer.jobs.filter((job) => !mayRun(job)));
      const jobs = answer.jobs.filter(mayRun);
      lanes.accept(gate?.inTurns(jobs) ?? jobs, clock.monotonic());
      gate?.claimed(request, answer, ticket);
      if (!over) host.startWaiting();
      return answer;
    } catch (problem) {
      // A stop gives up the search, and the claim may have taken work: its permits stay until others hand that on.
      if (!stop.aborted) gate?.failed(request, ticket);
      throw problem;
    } finally {
      this.#claiming = undefined;
    }
  }

  /**
   * A claim whose response was lost may have taken work. Asks what its token holds until the store answers. What was
   * granted for it counts as in use until then, so the search for a granted claim goes on while nothing may be claimed.
   */
  async #send(request: ClaimRequest, stop: AbortSignal, isGranted: boolean): Promise<ClaimAnswer<W>> {
    const { host, store, clock, error } = this.#options;
    try {
      return await store.claim(request);
    } catch (problem) {
      this.suspectAt = clock.monotonic();
      error(problem);
    }
    await pause(clock, this.#landsFor(request));
    for (const retry = new Backoff(ASK_RETRY_MS); ;) {
      await pause(clock, retry.next());
      try {
        const jobs = await store.claimedUnder(request.instance, request.token);
        const { cluster } = await store.peek([...request.limits.keys()]);
        return { jobs, asked: jobs.length, more: true, cluster };
      } catch (problem) {
        error(problem);
        if (stop.aborted || (!host.mayClaim && !isGranted)) throw problem;
      }
    }
  }

  /**
   * For how long a claim that was not answered may still land: limited work that it takes after `claimedUnder` was asked
   * would run beyond its limit. Only limits end; other claims are found by `heldBy`.
   */
  #landsFor({ limits }: ClaimRequest): number {
    const ends = [...limits.values()].map(({ notAfter }) => notAfter?.getTime() ?? 0);
    const last = Math.max(0, ...ends);
    return last === 0 ? 0 : Math.max(0, last - this.#options.clock.now()) + LANDING_MS;
  }

  #count({ jobs, asked }: ClaimAnswer<W>): void {
    this.counters.claims += 1;
    if (jobs.length < asked) this.counters[jobs.length === 0 ? 'empty' : 'short'] += 1;
  }

  /** Peeks, and returns how long to wait for the next due time or poll; 0 if work is due and there is room for it. */
  async #untilDue(): Promise<number> {
    const { host, store, clock, lanes } = this.#options;
    this.#called = false;
    this.#peeksNext = false;
    this.#peekedAt = clock.monotonic();
    const summary = await store.peek(host.defineNames());
    this.#saw(summary.cluster, summary);
    const now = summary.cluster.now.getTime();
    const pending = [...summary.nextDue].filter(([name]) => !isPausedIn(summary.cluster.paused, name));
    const isDue = ([, at]: readonly [string, Date]): boolean => at.getTime() <= now;
    this.#due = new Set(pending.filter(isDue).map(([name]) => name));
    const hasRoom = lanes.roomFor();
    // A freed slot matters to work that is due, and to work that may become due while its name has no room.
    this.#mayBeMore = this.#isCalled || pending.some((entry) => isDue(entry) || !hasRoom(entry[0]));
    const resumesIn = (summary.cluster.resumeAt?.getTime() ?? Infinity) - now;
    // Whoever observes the summary cancels what has expired; until then this waits.
    this.#expiresAt = summary.expiresAt?.getTime() ?? Infinity;
    const expiresIn = this.#expiresAt - now;
    let next = Math.max(1, Math.min(resumesIn, expiresIn > 0 ? expiresIn : Infinity));
    for (const [name, at] of pending) if (hasRoom(name)) next = Math.min(next, at.getTime() - now);
    this.#waitsUntil = -Infinity;
    if (next <= 0) return 0;
    const pollMs = this.#idlePoll.next() * (1 - POLL_JITTER * Math.random());
    const waitMs = Math.min(Math.round(pollMs), next);
    this.#waitsUntil = clock.monotonic() + waitMs;
    return waitMs;
  }

  /** A wake-up that came while the store was asked may be about work that the answer does not have. */
  get #isCalled(): boolean {
    return this.#called;
  }

  /** A claim tells of the tasks that it asked for which definition is in force; the rest is as known before. */
  #completed(cluster: ClusterBrief, asked: Iterable<string>): ClusterBrief {
    if (cluster.inForce === undefined) return cluster;
    const inForce = new Map(this.#cluster?.inForce);
    for (const task of asked) inForce.delete(task);
    for (const [task, definition] of cluster.inForce) inForce.set(task, definition);
    return { ...cluster, inForce };
  }

  #saw(cluster: ClusterBrief, summary?: DueSummary): void {
    this.#cluster = cluster;
    this.#lastContactAt = this.#options.clock.monotonic();
    this.#options.host.observe(cluster, summary);
  }
}
