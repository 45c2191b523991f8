import type { Clock, Timer } from '../../core/clock.js';

/** Why a wait ended. */
export type Reason = 'notified' | 'timer' | 'stopped';

/**
 * One waiter, any number of callers. A notification that comes while nobody waits is kept, so none is lost; there is
 * no debounce, so a steady trickle can postpone nothing.
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

  /** Forgets what came while nobody waited: whoever is about to look needs no reason to. */
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
