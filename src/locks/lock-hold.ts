import { within, type Timer } from '../core/clock.js';
import { LeaseLostError, StoppingError } from '../core/errors.js';
import { show } from '../core/options.js';
import { keepRenewed } from '../core/renewal.js';
import type { AcquiredLock, LockRequest } from './lock-wait.js';

/** Passed to the function that runs under the lock. */
export interface LockContext {
  /** Aborts with a `LeaseLostError` when the lock is lost, or a `StoppingError` when the stop timeout has passed. */
  readonly signal: AbortSignal;
  /** Greater than the number of every earlier holder of this key: external systems can reject a lower one. */
  readonly fence: number;
}

export interface LockHoldOptions extends Omit<LockRequest, 'waitMs'> {
  /** Reports an error that the caller does not see. */
  readonly error: (problem: unknown, where: string) => void;
}

const LATE = 'it could not be renewed in time';
const TAKEN_OVER = 'another holder has taken it over';

/**
 * One lock while its function runs. Duties: renew the lease on its own timer, abort the signal when the lock is lost,
 * release the lock at the end.
 *
 * States: `held`, `lost`, `ended`. held -> lost: the store reports another holder, no renewal succeeded for a whole
 * lease, or the mill was stopped. held, lost -> ended: the function returned or threw.
 *
 * A lock that was not renewed in time is still renewed as soon as the store answers, unless another call has taken it.
 * A function that ignores its signal then still runs alone.
 */
export class LockHold {
  readonly #options: LockHoldOptions;
  readonly #fence: number;
  readonly #signal = new AbortController();
  /** Aborts when renewals end: the function has ended, or the lock is lost for good. */
  readonly #over = new AbortController();
  #leaseEnd: number;
  #deadline: Timer | undefined;
  #lost: LeaseLostError | undefined;

  constructor(options: LockHoldOptions, { fence, sentAt }: AcquiredLock) {
    this.#options = options;
    this.#fence = fence;
    this.#leaseEnd = sentAt + options.leaseMs;
  }

  /** Rethrows what the function throws. If it returns although the lock was lost meanwhile, throws `LeaseLostError`. */
  async run<T>(work: (lock: LockContext) => T | Promise<T>): Promise<T> {
    this.#arm();
    const { clock, leaseMs } = this.#options;
    void keepRenewed({ clock, leaseMs, renew: () => this.#renew() }, this.#over.signal);
    let answer: T;
    try {
      answer = await work({ signal: this.#signal.signal, fence: this.#fence });
    } finally {
      await this.#end();
    }
    if (this.#lost !== undefined) throw this.#lost;
    return answer;
  }

  /** Aborts the function's signal. The lock is held until the function ends. */
  stop(): void {
    this.#signal.abort(new StoppingError('The mill is stopping and no longer waits for this function.'));
  }

  /** Stops renewing. The lock stays taken until its lease ends. */
  abandon(): void {
    this.#lose('the mill was stopped before its function finished');
  }

  #arm(): void {
    const { clock } = this.#options;
    this.#deadline?.cancel();
    this.#deadline = clock.timer(this.#leaseEnd - clock.monotonic(), () => this.#tell(LATE));
  }

  /** The lock is lost for good: ends the renewals, too. */
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

  async #renew(): Promise<boolean> {
    const { store, clock, key, owner, leaseMs, error } = this.#options;
    const sentAt = clock.monotonic();
    try {
      const answer = await store.renew(key, owner, leaseMs);
      // The function may have ended and released the lock meanwhile; then 'lost' means nothing.
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
    // If the function blocked the event loop, the timer of the deadline has not fired.
    if (leftMs <= 0) this.#tell(LATE);
    this.#letGo();
    const release = this.#release();
    clock.track?.(release);
    // Wait no longer than the lease lasts: after that the lock is free anyway.
    await within(clock, leftMs, release);
  }

  async #release(): Promise<void> {
    const { store, key, owner, error } = this.#options;
    const wasLost = this.#lost !== undefined;
    try {
      if ((await store.release(key, owner)) === 'lost') this.#lose(TAKEN_OVER);
    } catch (problem) {
      // The function has done its work and the lease ends by itself, so the call does not fail.
      if (!wasLost) error(problem, 'release a lock');
    }
  }
}
