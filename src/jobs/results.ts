import { Backoff } from '../core/backoff.js';
import type { Clock, Timer } from '../core/clock.js';
import { TidemillError } from '../core/errors.js';
import type { JobRecord } from '../core/records/job.js';
import type { Store } from '../store/port.js';

const ASK_MS = { min: 20, max: 1_000, factor: 1.5 };
/** A query includes the jobs whose own query is due within this time. */
const TOGETHER_MS = 10;

interface Waiter {
  readonly since: number;
  readonly resolve: (job: JobRecord) => void;
  readonly reject: (error: Error) => void;
}

/** A job that at least one caller waits for. */
interface Awaited {
  readonly waiters: Set<Waiter>;
  readonly delay: Backoff;
  /** When to query the job next, by the monotonic clock. */
  askAt: number;
}

/**
 * Waits for jobs to end. A job that ends in this process resolves its waiters at once. The others are queried in
 * batches, each job at growing intervals, however many callers wait for it.
 */
export class Results {
  readonly #store: () => Promise<Store>;
  readonly #awaited = new Map<string, Awaited>();
  #timer: { readonly at: number; readonly timer: Timer } | undefined;
  #asking = false;

  constructor(store: () => Promise<Store>) {
    this.#store = store;
  }

  /** Called for every job that ends in this process. */
  ended(id: string, job: () => JobRecord): void {
    const waiters = [...(this.#awaited.get(id)?.waiters ?? [])];
    if (waiters.length === 0) return;
    const record = job();
    // If the job ended before the wait began, a retry may have followed: leave that waiter to the next query.
    const endedAt = record.finishedAt?.getTime() ?? Infinity;
    for (const waiter of waiters) if (endedAt >= waiter.since) waiter.resolve(record);
  }

  async wait(id: string, signal?: AbortSignal): Promise<JobRecord> {
    const store = await this.#store();
    store.checkOutside?.();
    signal?.throwIfAborted();
    const { clock } = store;
    return new Promise((resolve, reject) => {
      const awaited = this.#awaited.get(id) ?? { waiters: new Set(), delay: new Backoff(ASK_MS), askAt: 0 };
      const leave = (): void => {
        signal?.removeEventListener('abort', onAbort);
        awaited.waiters.delete(waiter);
        if (awaited.waiters.size === 0 && this.#awaited.get(id) === awaited) this.#awaited.delete(id);
      };
      const waiter: Waiter = {
        since: clock.now(),
        resolve: (job) => {
          leave();
          resolve(job);
        },
        reject: (error) => {
          leave();
          reject(error);
        },
      };
      const onAbort = (): void => waiter.reject(signal?.reason as Error);
      signal?.addEventListener('abort', onAbort, { once: true });
      awaited.waiters.add(waiter);
      // The job may have ended already: query it at once.
      awaited.askAt = clock.monotonic();
      this.#awaited.set(id, awaited);
      this.#arm(clock);
    });
  }

  stop(): void {
    this.#disarm();
    const error = new TidemillError('STOPPED', 'The mill was stopped while waiting for a result.');
    const waiters = [...this.#awaited.values()].flatMap((awaited) => [...awaited.waiters]);
    for (const waiter of waiters) waiter.reject(error);
  }

  #disarm(): void {
    this.#timer?.timer.cancel();
    this.#timer = undefined;
  }

  /** Sets the timer for the job whose query is due first. */
  #arm(clock: Clock): void {
    if (this.#asking || this.#awaited.size === 0) return;
    let at = Infinity;
    for (const { askAt } of this.#awaited.values()) at = Math.min(at, askAt);
    if (this.#timer !== undefined && this.#timer.at <= at) return;
    this.#disarm();
    const waitMs = at - clock.monotonic();
    if (waitMs <= 0) this.#ask(clock);
    else this.#timer = { at, timer: clock.timer(waitMs, () => this.#ask(clock)) };
  }

  #ask(clock: Clock): void {
    this.#timer = undefined;
    this.#asking = true;
    const round = this.#round(clock).finally(() => {
      this.#asking = false;
      this.#arm(clock);
    });
    clock.track?.(round);
  }

  async #round(clock: Clock): Promise<void> {
    // Waits that begin in the same tick share one query.
    await Promise.resolve();
    const due = clock.monotonic() + TOGETHER_MS;
    const asked = new Map<string, readonly Waiter[]>();
    for (const [id, awaited] of this.#awaited) {
      if (awaited.askAt > due) continue;
      // A caller that begins to wait during the query must not get its result, which may be older than the wait.
      asked.set(id, [...awaited.waiters]);
      awaited.askAt = clock.monotonic() + awaited.delay.next();
    }
    if (asked.size === 0) return;
    try {
      const store = await this.#store();
      const { ended, live } = await store.jobs.ends([...asked.keys()]);
      const records = new Map(ended.map((job) => [job.id, job]));
      const alive = new Set(live);
      for (const [id, waiters] of asked) {
        const job = records.get(id);
        if (job !== undefined) for (const waiter of waiters) waiter.resolve(job);
        else if (!alive.has(id)) for (const waiter of waiters) waiter.reject(missing(id));
      }
    } catch {
      // The store failed; the next round asks again.
    }
  }
}

const missing = (id: string): TidemillError =>
  new TidemillError('JOB_MISSING', `There is no job ${id}; finished jobs are deleted after their retention.`);
