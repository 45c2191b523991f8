import { setTimeout as sleep } from 'node:timers/promises';
import { TidemillError } from '../core/errors.js';
import { checkBoolean, checkDate } from '../core/options.js';
import { Tidemill, type EnqueuedJob, type Job, type JobDefinition, type TidemillOptions } from '../index.js';
import { memory, type MemoryStore } from '../memory/index.js';
import { isPausedIn } from '../store/port.js';
import type { Duration } from '../time/duration.js';
import { expectEnqueued, expectNotEnqueued, type Expected } from './expectations.js';
import { refuseFakeTimers } from './fake-timers.js';
import { heldUp } from './held-up.js';
import { LOOK_EVERY_MS, tallied, timeoutOf, untilIdle, type Drained, type DrainOptions } from './idle.js';
import { virtualClock, type VirtualClock } from './virtual-clock.js';

export interface TestMillOptions extends Omit<TidemillOptions<MemoryStore>, 'store'> {
  /** How long this instance may be silent. Default: '365d', so that the clock need not stop for its renewals. */
  readonly leaseDuration?: Duration;
  /** The initial time of the clock, which stands still until it is moved. Default: the current time. */
  readonly now?: Date | string | number;
  /**
   * `enqueue` runs a due job before it resolves, returns the job as it is afterwards, and rejects with what its handler
   * threw. Default: false.
   */
  readonly inline?: boolean;
}

export interface TestDrainOptions extends DrainOptions {
  /**
   * Also move the clock to jobs and reactive tasks that are due later, retries included, until none is left. Recurring
   * jobs do not count. Default: false.
   */
  readonly scheduled?: boolean;
}

/** After this many moves of the clock, jobs that enqueue each other count as an endless chain. */
const STEPS = 10_000;
/** No other instance shares the store, so nobody would take over; each renewal would be a stop of the clock. */
const LEASE = '365d';

/**
 * A mill in memory, on a clock that stands still. Nothing runs by itself: `runDue`, `drain` and `advance` run work and
 * resolve when it has ended. After `start` it works like any other mill.
 */
export class TestMill extends Tidemill<MemoryStore> {
  /** The clock of the mill. `advance` of the mill moves it and waits for the work that comes due. */
  readonly clock: VirtualClock;
  /** `store.collection(name)` holds the documents of `mill.documents`, and those that reactive tasks watch. */
  readonly store: MemoryStore;
  readonly #inline: boolean;
  readonly #errors = new Map<string, Error>();
  /** Decides which work may run: one entry for each call of `#turn` in progress. */
  readonly #admitted = new Set<(id: string) => boolean>();
  #startedByUser = false;

  constructor(options: TestMillOptions = {}) {
    const { now = Date.now(), inline = false, ...others } = options;
    checkDate('testMill', 'now', new Date(now));
    const clock = virtualClock(now);
    const store = memory({ clock });
    super({ logger: false, leaseDuration: LEASE, ...others, store });
    this.clock = clock;
    this.store = store;
    this.#inline = checkBoolean('testMill', 'inline', inline);
    store.admission.let((id) => this.#startedByUser || [...this.#admitted].some((admits) => admits(id)));
    this.on('job:fail', ({ job, error }) => this.#errors.set(job.id, error));
  }

  override async start(options?: Parameters<Tidemill['start']>[0]): Promise<void> {
    refuseFakeTimers('start');
    this.#startedByUser = true;
    await super.start(options);
  }

  override async stop(options?: Parameters<Tidemill['stop']>[0]): Promise<void> {
    if (this.started) refuseFakeTimers('stop');
    this.#startedByUser = false;
    await super.stop(options);
  }

  /** Runs the work that is due now, but not what its handlers enqueue. */
  async runDue(options: DrainOptions = {}): Promise<Drained> {
    const timeoutMs = timeoutOf('runDue', options);
    refuseFakeTimers('runDue');
    const to = new Date(this.clock.now());
    const tasks = await this.tasks.find({ status: 'pending', scheduledAt: { to } }, { limit: 1_000 });
    const due = new Set([...(await this.#waiting({ to })), ...tasks.items].map(({ id }) => id));
    return tallied(this, () => this.#turn((id) => due.has(id), timeoutMs));
  }

  /**
   * Runs the work that is due, and what its handlers enqueue, until nothing more is due. If due work waits for a rate or
   * a breaker, the clock moves as far as that takes.
   */
  async drain(options: TestDrainOptions = {}): Promise<Drained> {
    const timeoutMs = timeoutOf('drain', options, ['scheduled']);
    refuseFakeTimers('drain');
    const scheduled = checkBoolean('drain', 'scheduled', options.scheduled ?? false);
    return tallied(this, async () => {
      await this.#turn(everything, timeoutMs);
      for (let step = 0; ; step += 1) {
        const waitMs = await this.#untilNext(scheduled);
        if (waitMs === undefined) return;
        if (step === STEPS) throw endless();
        await this.#turn(everything, timeoutMs, waitMs);
      }
    });
  }

  /** Moves the clock forward. Work that comes due on the way runs in order, each at its own due time. */
  async advance(duration: Duration, options: DrainOptions = {}): Promise<Drained> {
    const timeoutMs = timeoutOf('advance', options);
    refuseFakeTimers('advance');
    return tallied(this, () => this.#turn(everything, timeoutMs, duration));
  }

  /** The same as the function `expectEnqueued`. */
  expectEnqueued<T = unknown>(
    target: string | JobDefinition<T>,
    data?: Partial<NoInfer<T>>,
    expected?: Expected,
  ): Promise<readonly Job<T>[]> {
    return expectEnqueued(this, target, data, expected);
  }

  /** The same as the function `expectNotEnqueued`. */
  expectNotEnqueued<T = unknown>(
    target: string | JobDefinition<T>,
    data?: Partial<NoInfer<T>>,
    expected?: Omit<Expected, 'times'>,
  ): Promise<void> {
    return expectNotEnqueued(this, target, data, expected);
  }

  protected override async stored(jobs: readonly EnqueuedJob[]): Promise<readonly EnqueuedJob[]> {
    if (!this.#inline) return jobs;
    const ready = jobs.filter(
      ({ name, status, nextRunAt, outcome }) =>
        outcome !== 'existing' &&
        status === 'pending' &&
        nextRunAt.getTime() <= this.clock.now() &&
        this.names.includes(name),
    );
    const due = new Set(ready.map(({ id }) => id));
    if (due.size > 0) {
      refuseFakeTimers('enqueue');
      await this.#turn((id) => due.has(id), timeoutOf('enqueue', {}));
    }
    const error = [...due].map((id) => this.#errors.get(id)).find((one) => one !== undefined);
    if (error !== undefined) throw error;
    return Promise.all(
      jobs.map(async (job) => ({ ...((await this.jobs.get(job.id)) ?? job), outcome: job.outcome })),
    );
  }

  /**
   * Moves the clock and runs admitted work to its end. Starts the mill for that time, unless the test has started it.
   */
  async #turn(admits: (id: string) => boolean, timeoutMs: number, by: Duration = 0): Promise<void> {
    this.#admitted.add(admits);
    try {
      await super.start();
      this.store.admission.changed();
      await this.clock.advance(by);
      await untilIdle(this, timeoutMs, {
        admits,
        now: () => this.clock.now(),
        tasks: () => this.store.reactive.unfinished(),
        resting: async () => {
          const { paused } = await this.store.instances.list();
          const held = await heldUp(this.store.limits);
          return (job) => isPausedIn(paused, job.name) || held(job) !== undefined;
        },
        pass: async () => {
          // Nothing more comes for them while the clock stands still.
          this.startBatches();
          await this.clock.advance(0);
          await sleep(LOOK_EVERY_MS);
        },
      });
    } finally {
      this.#admitted.delete(admits);
      if (this.#admitted.size === 0 && !this.#startedByUser) await super.stop();
    }
  }

  /** Returns the pending jobs that have a handler here and whose name is not paused, by due time. */
  async #waiting(nextRunAt: { readonly from?: Date; readonly to?: Date }): Promise<readonly Job[]> {
    const { paused } = await this.store.instances.list();
    const name = this.names.filter((one) => !isPausedIn(paused, one));
    const jobs: Job[] = [];
    for (let cursor: string | null | undefined; name.length > 0 && cursor !== null;) {
      const page = await this.jobs.find(
        { name, status: 'pending', nextRunAt },
        { limit: 1_000, sort: { nextRunAt: 1 }, ...(cursor === undefined ? {} : { cursor }) },
      );
      jobs.push(...page.items);
      cursor = page.next;
    }
    return jobs;
  }

  /**
   * Returns the time until limits let the next due job start or, with `scheduled`, until the next reactive task or
   * one-off job is due; undefined if there is none.
   */
  async #untilNext(scheduled: boolean): Promise<number | undefined> {
    const now = this.clock.now();
    const waiting = await this.#waiting(scheduled ? {} : { to: new Date(now) });
    const held = await heldUp(this.store.limits);
    const times = waiting.flatMap((job) => {
      const dueAt = job.nextRunAt.getTime();
      if (dueAt <= now) return held(job) ?? (scheduled ? dueAt : []);
      return job.repeatInterval === undefined ? dueAt : [];
    });
    const tasks = scheduled ? await this.tasks.stats() : [];
    const first = Math.min(...times, ...tasks.flatMap(({ nextDue }) => nextDue?.getTime() ?? []));
    return Number.isFinite(first) ? Math.max(0, first - now) : undefined;
  }
}

const everything = (): boolean => true;

const endless = (): TidemillError =>
  new TidemillError(
    'TIMEOUT',
    `drain: the clock was moved ${String(STEPS)} times, and there is still work for later. Does a job ask for its own successor?`,
  );

/** Creates a mill for tests: in memory, on a clock that stands still. */
export function testMill(options: TestMillOptions = {}): TestMill {
  return new TestMill(options);
}
