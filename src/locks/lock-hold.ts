import { pause, within, type Timer } from '../core/clock.js';
import { LeaseLostError, StoppingError } from '../core/errors.js';
import { show } from '../core/options.js';
import type { AcquiredLock, LockRequest } from './lock-wait.js';

/** What a function gets that runs under a lock. */
export interface LockContext {
  /** Aborts when the lock was lost, with a `LeaseLostError`, or when the mill stops and cannot wait any longer. */
  readonly signal: AbortSignal;
  /** Greater than that of every earlier holder of this key: a system outside can refuse whoever comes with a lower one. */
  readonly fence: number;
}

export interface LockHoldOptions extends Omit<LockRequest, 'waitMs'> {
  /** An error that no caller sees. */
  readonly error: (problem: unknown, where: string) => void;
}

/** How soon a renewal that failed is tried again, at the latest. */
const RETRY_MS = 500;
const LATE = 'it could not be renewed in time';
const TAKEN_OVER = 'somebody else has taken it over';

/**
 * One lock while its function runs. Duties: renew the lease on a timer of its own, abort the signal when the lock is
 * lost, give it back at the end.
 *
 * States: `held`, `lost`, `ended`. held -> lost: the store says that somebody else has it, no renewal succeeded for a
 * whole lease, or the mill was stopped. held, lost -> ended: the function ended, however.
 *
 * A lock that could not be renewed in time is renewed all the same as soon as the store answers, if nobody has taken it: a
 * function that ignores its signal then still runs alone.
 */
export class LockHold {
  readonly #options: LockHoldOptions;
  readonly #fence: number;
  readonly #signal = new AbortController();
  /** Aborts when there is nothing left to renew. */
  readonly #over = new AbortController();
  #leaseEnd: number;
  #deadline: Timer | undefined;
  #lost: LeaseLostError | undefined;

  constructor(options: LockHoldOptions, { fence, sentAt }: AcquiredLock) {
    this.#options = options;
    this.#fence = fence;
    this.#leaseEnd = sentAt + options.leaseMs;
  }

  /** What the function throws comes through; a lock that was lost meanwhile is an error only where it threw nothing. */
  async run<T>(work: (lock: LockContext) => T | Promise<T>): Promise<T> {
    this.#arm();
    void this.#keep();
    let answer: T;
    try {
      answer = await work({ signal: this.#signal.signal, fence: this.#fence });
    } finally {
      await this.#end();
    }
    if (this.#lost !== undefined) throw this.#lost;
    return answer;
  }

  /** Asks the function to end; the lock is kept until it has. */
  stop(): void {
    this.#signal.abort(new StoppingError('The mill is stopping and could not wait any longer.'));
  }

  /** Leaves the lock to the end of its lease. */
  abandon(): void {
    this.#lose('the mill was stopped before its function had ended');
  }

  #arm(): void {
    const { clock } = this.#options;
    this.#deadline?.cancel();
    this.#deadline = clock.timer(this.#leaseEnd - clock.monotonic(), () => this.#tell(LATE));
  }

  /** Lost for good: there is nothing left to renew. */
  #lose(reason: string): void {
    this.#letGo();
    this.#tell(reason);
  }

  #tell(reason: string): void {
    if (this.#lost !== undefined) return;
    this.#lost = new LeaseLostError(`The lock ${show(this.#options.key)} was lost: ${reason}.`);
    this.#signal.abort(this.#lost);
  }

  #letGo(): void {
    this.#over.abort();
    this.#deadline?.cancel();
  }

  async #keep(): Promise<void> {
    const { clock, leaseMs } = this.#options;
    // Short enough that two renewals may fail before the lease ends.
    const everyMs = leaseMs / 3;
    let waitMs = everyMs;
    while (await pause(clock, waitMs, this.#over.signal)) {
      const renewal = this.#renew();
      clock.track?.(renewal);
      waitMs = (await renewal) ? everyMs : Math.min(RETRY_MS, everyMs);
    }
  }

  async #renew(): Promise<boolean> {
    const { store, clock, key, owner, leaseMs, error } = this.#options;
    const sentAt = clock.monotonic();
    try {
      const answer = await store.renew(key, owner, leaseMs);
      // The function may have ended meanwhile, and given back what this renewal then did not find.
      if (this.#over.signal.aborted) return true;
      if (answer === 'lost') {
        this.#lose(TAKEN_OVER);
        return true;
      }
      this.#leaseEnd = sentAt + leaseMs;
      this.#arm();
      return true;
    } catch (problem) {
      if (!this.#over.signal.aborted) error(problem, 'renew a lock');
      return false;
    }
  }

  async #end(): Promise<void> {
    const { clock } = this.#options;
    const leftMs = this.#leaseEnd - clock.monotonic();
    // A function that never let the event loop turn gave the deadline's timer no chance.
    if (leftMs <= 0) this.#tell(LATE);
    this.#letGo();
    const release = this.#release();
    clock.track?.(release);
    // No longer than the lease: after that the lock is free anyway.
    await within(clock, leftMs, release);
  }

  async #release(): Promise<void> {
    const { store, key, owner, error } = this.#options;
    const wasLost = this.#lost !== undefined;
    try {
      if ((await store.release(key, owner)) === 'lost') this.#lose(TAKEN_OVER);
    } catch (problem) {
      // The function has done its work, and the lease ends by itself: the caller is not to be blamed.
      if (!wasLost) error(problem, 'release a lock');
    }
  }
}
