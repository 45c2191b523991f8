import type { Clock } from '../../core/clock.js';
import type { DocumentJob } from '../../store/documents.js';
import type { Lock } from './locked-document.js';
import { asked, type Opened } from './writes.js';

export interface DocumentLocksOptions<Doc> {
  readonly opened: Opened<Doc>;
  readonly clock: Clock;
  readonly lockMs: number;
  /** Reads the store's time again if the estimate is too old. */
  readonly refresh: () => Promise<void>;
  readonly stop: AbortSignal;
}

/** Takes the documents that were locked. */
export interface LockReceiver<Doc> {
  /** Called for each document before the next is locked. */
  start(job: DocumentJob<Doc>, lock: Lock): void;
  /** Called with all documents of one lock call, before any of them starts. */
  locked?(jobs: readonly DocumentJob<Doc>[]): void;
}

export interface LockOptions {
  readonly limit: number;
  /** Lock nothing after this, by the store's clock. Absent: no end. */
  readonly notAfter?: Date;
}

/** A lock is longer than requested by a random amount: at most this many milliseconds, and at most this share of it. */
const MOST_MORE_MS = 1_000;
const MORE = 0.05;

/**
 * Calls `work` for every item even if a call throws, then rethrows the first error: all items are locked already, and
 * no other scheduler would run them.
 */
function inTurn<T>(items: readonly T[], work: (item: T) => void): void {
  const problems = items.flatMap((item) => {
    try {
      work(item);
      return [];
    } catch (problem) {
      return [problem];
    }
  });
  if (problems.length > 0) throw problems[0];
}

/** Makes the `sleepUntil` values that identify locks, and locks documents with them. */
export class DocumentLocks<Doc> {
  readonly #options: DocumentLocksOptions<Doc>;
  #last = -Infinity;

  constructor(options: DocumentLocksOptions<Doc>) {
    this.#options = options;
  }

  /**
   * Returns a value that this scheduler has not used before and that another one is unlikely to use at the same time.
   */
  mint(): Lock {
    const { clock, lockMs } = this.#options;
    if (lockMs === 0) return { until: new Date(clock.now()), endsAt: Infinity, fenced: false };
    const more = Math.floor(Math.random() * Math.min(MOST_MORE_MS, lockMs * MORE));
    this.#last = Math.max(clock.now() + lockMs + more, this.#last + 1);
    return { until: new Date(this.#last), endsAt: clock.monotonic() + lockMs, fenced: true };
  }

  /** Locks up to `limit` documents and hands them to the receiver; returns how many it locked. */
  async lock({ limit, ...end }: LockOptions, receiver: LockReceiver<Doc>): Promise<number> {
    const { opened, refresh, stop } = this.#options;
    const { store, signal, marks } = opened;
    const call = { signal, marks, ...end };
    await asked('read the clock', refresh);
    if (limit > 1 && store.lockMany !== undefined) {
      const lock = this.mint();
      const jobs = await asked(
        'lock documents',
        async () => (await store.lockMany?.(lock.until, { limit, ...call })) ?? [],
      );
      receiver.locked?.(jobs);
      inTurn(jobs, (job) => receiver.start(job, lock));
      return jobs.length;
    }
    for (let count = 0; count < limit; count += 1) {
      const lock = this.mint();
      const job = stop.aborted
        ? null
        : await asked('lock a document', () => store.lockNext(lock.until, call));
      if (job === null || job === undefined) return count;
      receiver.locked?.([job]);
      receiver.start(job, lock);
    }
    return limit;
  }
}
