import type { Clock, Timer } from '../../core/clock.js';

/** Why a wait ended. */
export type Reason = 'notified' | 'timer' | 'stopped';

/**
 * Wakes one waiter; any number of callers may notify it. A notification without a waiter is kept for the next wait, so
 * none is lost. There is no debounce, so a steady stream of notifications postpones nothing.
 */
export class Wake {
  readonly #clock: Clock;
  #pending = false;
  #end: ((reason: Reason) => void) | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  notify(): void {
    if (this.#end === undefined) this.#pending = true;
    else this.#end('notified');
  }

  /** Drops a kept notification, for a caller that is about to check for work anyway. */
  clear(): void {
    this.#pending = false;
  }

  wait(delayMs: number, stop: AbortSignal): Promise<Reason> {
    if (stop.aborted) return Promise.resolve('stopped');
    if (this.#pending) {
      this.#pending = false;
      return Promise.resolve('notified');
    }
    return new Promise((resolve) => {
      const timers: Timer[] = [];
      const onStop = (): void => this.#end?.('stopped');
      this.#end = (reason) => {
        this.#end = undefined;
        timers[0]?.cancel();
        stop.removeEventListener('abort', onStop);
        resolve(reason);
      };
      stop.addEventListener('abort', onStop, { once: true });
      if (delayMs !== Infinity) timers.push(this.#clock.timer(delayMs, () => this.#end?.('timer')));
    });
  }
}
