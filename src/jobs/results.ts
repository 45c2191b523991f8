import type { Clock, Timer } from '../core/clock.js';
import { TidemillError } from '../core/errors.js';
import { FINISHED, type JobRecord } from '../core/job.js';
import type { Store } from '../store/port.js';

const FIRST_MS = 20;
const LONGEST_MS = 1_000;

interface Waiter {
  readonly resolve: (job: JobRecord) => void;
  readonly reject: (error: Error) => void;
}

/** Waits for jobs to end: by word of mouth inside this process, by asking for all awaited ones at once otherwise. */
export class Results {
  readonly #store: () => Promise<Store>;
  readonly #waiting = new Map<string, Set<Waiter>>();
  #timer: Timer | undefined;
  #delayMs = FIRST_MS;
  #asking = false;

  constructor(store: () => Promise<Store>) {
    this.#store = store;
  }

  /** Called for every job that ends in this process. */
  ended(id: string, job: () => JobRecord): void {
    for (const waiter of [...(this.#waiting.get(id) ?? [])]) waiter.resolve(job());
  }

  async wait(id: string, signal?: AbortSignal): Promise<JobRecord> {
    const store = await this.#store();
    store.checkOutside?.();
    signal?.throwIfAborted();
    return new Promise((resolve, reject) => {
      const waiters = this.#waiting.get(id) ?? new Set();
      const leave = (): void => {
        signal?.removeEventListener('abort', onAbort);
        waiters.delete(waiter);
        if (waiters.size === 0) this.#waiting.delete(id);
      };
      const waiter: Waiter = {
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
      this.#waiting.set(id, waiters.add(waiter));
      this.#delayMs = FIRST_MS;
      // One round asks for all that wait; whoever comes while it is under way is in the next one.
      if (!this.#asking) {
        this.#timer?.cancel();
        this.#timer = undefined;
        this.#ask(store.clock);
      }
    });
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    const error = new TidemillError('STOPPED', 'The mill was stopped while waiting for a result.');
    for (const waiter of [...this.#waiting.values()].flatMap((waiters) => [...waiters])) waiter.reject(error);
  }

  #ask(clock: Clock): void {
    this.#asking = true;
    const round = this.#round().finally(() => {
      this.#asking = false;
      if (this.#waiting.size === 0) return;
      this.#delayMs = Math.min(LONGEST_MS, this.#delayMs * 1.5);
      this.#timer ??= clock.timer(this.#delayMs, () => {
        this.#timer = undefined;
        this.#ask(clock);
      });
    });
    clock.track?.(round);
  }

  async #round(): Promise<void> {
    await Promise.resolve();
    const ids = [...this.#waiting.keys()];
    if (ids.length === 0) return;
    try {
      const store = await this.#store();
      const jobs = new Map((await store.jobs.getMany(ids)).map((job) => [job.id, job]));
      for (const id of ids) {
        const job = jobs.get(id);
        if (job === undefined) this.#missing(id);
        else if (FINISHED.includes(job.status)) this.ended(id, () => job);
      }
    } catch {
      // The store does not answer just now; the next round asks again.
    }
  }

  #missing(id: string): void {
    const error = new TidemillError(
      'JOB_MISSING',
      `There is no job ${id}; finished jobs are deleted after their retention.`,
    );
    for (const waiter of [...(this.#waiting.get(id) ?? [])]) waiter.reject(error);
  }
}
