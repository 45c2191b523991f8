import { pause, type Clock } from '../../core/clock.js';
import type { Work } from '../../core/records/work.js';
import type {
  ClaimAnswer,
  ClaimRequest,
  Cluster,
  DueSummary,
  Hint,
  Instance,
  WorkStore,
} from '../../store/port.js';
import type { Lanes, LaneRequest } from './lanes.js';
import type { Reason, Wake } from './wake.js';

export interface ClaimLoopOptions<W extends Work> {
  readonly store: Pick<WorkStore<W, unknown>, 'peek' | 'claim' | 'claimedUnder'>;
  readonly clock: Clock;
  readonly lanes: Lanes<W>;
  readonly wake: Wake;
  readonly heartbeatMs: number;
  readonly self: () => Instance;
  readonly mint: () => string;
  /** False while nothing may be claimed: no lease, too many abandoned handlers, outcomes piling up. */
  readonly mayClaim: () => boolean;
  readonly names: () => readonly string[];
  /** Look also where no name is run here just now: the look itself may say that one is to be run. */
  readonly looksAnyway: boolean;
  /** Shortest and longest wait between two looks; adaptive in between. */
  readonly pollMs: () => { readonly min: number; readonly max: number };
  readonly start: () => void;
  /** Claimed, but not to be run any more. */
  readonly release: (works: readonly W[]) => void;
  readonly observed: (cluster: Cluster, summary?: DueSummary) => void;
  /** `busy`: claims come back full. `idle`: about to wait; resolves when wake-ups are being listened to. */
  readonly mood: (mood: 'busy' | 'idle') => Promise<void>;
  readonly error: (error: unknown) => void;
}

export interface ClaimCounters {
  claims: number;
  /** Claims that lost everything they tried to take to others. */
  empty: number;
  /** Claims that lost some of it. */
  short: number;
}

const FIRST_WAIT_MS = 100;
const LONGEST_WAIT_MS = 2_000;
/** Wait before asking again for work that others got first. */
const CONTENDED_MS = 10;
/** More wake-ups than this at once say no more than that there is work. */
const MOST_HINTS = 4;

/**
 * The loop: claim what there is room for, start it, and wait. Only one claim is ever under way in an instance.
 * A wake-up shortens the wait; the poll finds everything, wake-up or not.
 */
export class ClaimLoop<W extends Work = Work> {
  readonly counters: ClaimCounters = { claims: 0, empty: 0, short: 0 };
  readonly #options: ClaimLoopOptions<W>;
  #cluster: Cluster | undefined;
  #lastContactAt = -Infinity;
  #lookedAt = -Infinity;
  #stepAt: number | undefined;
  /** Names that were due at the last look. */
  #due: ReadonlySet<string> = new Set();
  /** More may be due than was taken. */
  #hungry = true;
  #idlePollMs = 0;
  #hints: Hint[] = [];
  /** The token of the claim under way, until it is known what it took. */
  #claiming: string | undefined;
  /** Monotonic time of the last claim whose answer was lost. */
  suspectAt: number = -Infinity;

  constructor(options: ClaimLoopOptions<W>) {
    this.#options = options;
  }

  /** Monotonic time of the last answer from the store. */
  get lastContactAt(): number {
    return this.#lastContactAt;
  }

  /** True where the last look found nothing of this name to be due or paused: new work of it need not queue. */
  quiet(name: string): boolean {
    return !this.#hungry && !this.#due.has(name) && this.#cluster?.paused.has(name) === false;
  }

  /** A wake-up that names its job. */
  hint(hint: Hint): void {
    if (this.#hints.length < MOST_HINTS) this.#hints.push(hint);
  }

  /** There is slots' room: a reason to claim only where more was due than could be taken. */
  room(): void {
    if (this.#hungry) this.#options.wake.notify();
  }

  get claiming(): string | undefined {
    return this.#claiming;
  }

  get cluster(): Cluster | undefined {
    return this.#cluster;
  }

  /** Milliseconds since the step under way was begun; 0 while the loop waits. */
  get stepMs(): number {
    return this.#stepAt === undefined ? 0 : this.#options.clock.monotonic() - this.#stepAt;
  }

  async run(stop: AbortSignal): Promise<void> {
    const { clock, wake, error } = this.#options;
    let failures = 0;
    let reason: Reason = 'timer';
    while (!stop.aborted) {
      this.#stepAt = clock.monotonic();
      const step = this.#step(reason, stop);
      clock.track?.(step);
      try {
        const waitMs = await step;
        this.#stepAt = undefined;
        failures = 0;
        reason = waitMs > 0 ? await wake.wait(waitMs, stop) : 'notified';
      } catch (problem) {
        this.#stepAt = undefined;
        error(problem);
        failures += 1;
        await pause(clock, Math.min(FIRST_WAIT_MS * 2 ** failures, LONGEST_WAIT_MS), stop);
      }
    }
  }

  /** A claim where there is reason to expect work, a look where there is none; answers how long to wait afterwards. */
  async #step(reason: Reason, stop: AbortSignal): Promise<number> {
    const { clock, lanes, mayClaim, self, mood, names, looksAnyway, pollMs } = this.#options;
    if (!mayClaim()) return LONGEST_WAIT_MS;
    // Nothing is run here: whoever gives a name its handler says so.
    if (!looksAnyway && names().length === 0) return pollMs().max;
    // Even under a standing backlog: what only a look finds (work written by hand, dead instances) must not wait.
    if (reason === 'timer' || clock.monotonic() - this.#lookedAt > pollMs().max) {
      // Listen first, then look: what comes in between is heard.
      if (reason === 'timer') await mood('idle');
      const waitMs = await this.#untilDue();
      if (waitMs > 0) return waitMs;
    }
    const request = lanes.request(this.#cluster, self(), this.#due);
    if (request === null) {
      // Only a look tells which definitions are in force now, and, without a poll, which names were paused.
      if (pollMs().max === Infinity || names().length === 0) await this.#untilDue();
      this.#hungry = true;
      return pollMs().max;
    }
    const answer = await this.#claim(request, stop);
    this.#hungry = answer.more;
    if (answer.jobs.length > 0) this.#idlePollMs = 0;
    if (answer.more) {
      await mood('busy');
      return answer.jobs.length > 0 ? 0 : Math.ceil(Math.random() * CONTENDED_MS);
    }
    await mood('idle');
    const waitMs = await this.#untilDue();
    // Due, yet not to be had a moment ago: somebody else is at it.
    return waitMs === 0 && answer.jobs.length === 0 ? CONTENDED_MS : waitMs;
  }

  async #claim(request: LaneRequest, stop: AbortSignal): Promise<ClaimAnswer<W>> {
    const { self, mint, lanes, heartbeatMs, mayClaim, start, release, clock } = this.#options;
    const instance = self();
    const token = mint();
    const hints = this.#hints.splice(0).filter(({ name }) => this.#cluster?.paused.has(name) !== true);
    this.#claiming = token;
    try {
      const answer = await this.#send({ instance, token, heartbeatMs, hints, ...request }, stop);
      this.#count(answer);
      this.#saw(answer.cluster);
      // The lease may have been lost, or the end have come, while the claim was under way.
      const over = stop.aborted || !mayClaim() || self().life !== instance.life;
      const mayRun = ({ name }: Work): boolean => !over && !answer.cluster.paused.has(name);
      release(answer.jobs.filter((job) => !mayRun(job)));
      lanes.accept(answer.jobs.filter(mayRun), clock.monotonic());
      if (!over) start();
      return answer;
    } finally {
      this.#claiming = undefined;
    }
  }

  /** A claim whose answer was lost may have taken work: what its token holds is asked for until that is known. */
  async #send(request: ClaimRequest, stop: AbortSignal): Promise<ClaimAnswer<W>> {
    const { store, clock, error } = this.#options;
    try {
      return await store.claim(request);
    } catch (problem) {
      this.suspectAt = clock.monotonic();
      error(problem);
    }
    for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS)) {
      await pause(clock, waitMs);
      try {
        const jobs = await store.claimedUnder(request.instance, request.token);
        const { cluster } = await store.peek([...request.limits.keys()]);
        return { jobs, asked: jobs.length, more: true, cluster };
      } catch (problem) {
        error(problem);
        if (stop.aborted || !this.#options.mayClaim()) throw problem;
      }
    }
  }

  #count({ jobs, asked }: ClaimAnswer<W>): void {
    this.counters.claims += 1;
    if (jobs.length < asked) this.counters[jobs.length === 0 ? 'empty' : 'short'] += 1;
  }

  /** Asks what is due next, and answers how long that is away; 0 where something is due and there is room for it. */
  async #untilDue(): Promise<number> {
    const { store, clock, names, pollMs, lanes } = this.#options;
    const summary = await store.peek(names());
    this.#lookedAt = clock.monotonic();
    this.#saw(summary.cluster, summary);
    const now = summary.cluster.now.getTime();
    const pending = [...summary.nextDue].filter(([name]) => !summary.cluster.paused.has(name));
    const isDue = ([, at]: readonly [string, Date]): boolean => at.getTime() <= now;
    this.#due = new Set(pending.filter(isDue).map(([name]) => name));
    // A slot that becomes free matters to what is due, and to what may fall due while its name has no room.
    this.#hungry = pending.some((entry) => isDue(entry) || !lanes.hasRoom(entry[0]));
    const waits = pending.filter(([name]) => lanes.hasRoom(name)).map(([, at]) => at.getTime() - now);
    const resumesIn = (summary.cluster.resumeAt?.getTime() ?? Infinity) - now;
    const next = Math.min(...waits, Math.max(1, resumesIn));
    if (next <= 0) return 0;
    const { min, max } = pollMs();
    this.#idlePollMs = Math.min(max, Math.max(min, this.#idlePollMs * 2));
    return Math.min(this.#idlePollMs, next);
  }

  #saw(cluster: Cluster, summary?: DueSummary): void {
    this.#cluster = cluster;
    this.#lastContactAt = this.#options.clock.monotonic();
    this.#options.observed(cluster, summary);
  }
}
