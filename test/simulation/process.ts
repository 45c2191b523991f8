import type { Clock, Timer } from '../../src/core/clock.js';
import type { Scheduler } from './scheduler.js';

/**
 * A simulated process: its clock may be wrong, it may be suspended for a while, and it may die between any two of its
 * steps. Everything that reaches it goes through `deliver`.
 */
export class SimulatedProcess {
  readonly name: string;
  readonly clock: Clock;
  readonly #scheduler: Scheduler;
  #withheld: (() => void)[] | undefined;
  #isDead = false;
  #skewMs = 0;
  #isSkewed = false;
  /** Cut off from the store until then. */
  cutUntil = -Infinity;
  #troubledUntil = -Infinity;

  constructor(name: string, scheduler: Scheduler) {
    this.name = name;
    this.#scheduler = scheduler;
    this.clock = {
      now: () => Math.round(scheduler.now + this.skewMs),
      monotonic: () => scheduler.now,
      timer: (delayMs, callback) => this.#timer(delayMs, callback),
    };
  }

  /** How far its clock is off. */
  get skewMs(): number {
    return this.#skewMs;
  }

  set skewMs(skewMs: number) {
    this.#skewMs = skewMs;
    this.#isSkewed ||= skewMs !== 0;
  }

  /** Its clock was wrong at some time. */
  get wasSkewed(): boolean {
    return this.#isSkewed;
  }

  get isDead(): boolean {
    return this.#isDead;
  }

  /** It is suspended, or woke this very moment and has not run the timers that came due meanwhile. */
  get isPaused(): boolean {
    return this.#withheld !== undefined || this.#troubledUntil === this.#scheduler.now;
  }

  /** It was suspended, or cut off by itself. */
  wasTroubledSince(time: number): boolean {
    return this.isPaused || Math.max(this.#troubledUntil, this.cutUntil) >= time;
  }

  /** Its code runs: at once, when it wakes, or never. */
  deliver(callback: () => void): void {
    if (this.#isDead) return;
    if (this.#withheld === undefined) callback();
    else this.#withheld.push(callback);
  }

  /** It never does anything again. */
  kill(): void {
    this.#isDead = true;
    this.#withheld = undefined;
  }

  pause(): void {
    if (!this.#isDead) this.#withheld ??= [];
  }

  /** Everything that arrived meanwhile is delivered at once, in order. */
  wake(): void {
    if (this.#withheld === undefined) return;
    const withheld = this.#withheld;
    this.#withheld = undefined;
    this.#troubledUntil = this.#scheduler.now;
    for (const callback of withheld) this.#scheduler.after(0, () => this.deliver(callback));
  }

  #timer(delayMs: number, callback: () => void): Timer {
    let isCancelled = false;
    const cancel = this.#scheduler.after(delayMs, () =>
      this.deliver(() => {
        if (!isCancelled) callback();
      }),
    );
    return {
      cancel: () => {
        isCancelled = true;
        cancel();
      },
    };
  }
}
