import type { Timer } from '../core/clock.js';
import { realTimer } from '../core/clock.js';

const TICK_MS = 100;
/** More than this between two ticks means that the process stood still. */
const MOST_MS = 1_000;

/**
 * The time by which leases are given and judged in one process. It stands still while the process does: a query runs
 * inside the process and may block it for longer than a lease, and then nobody could have renewed.
 */
export class LeaseClock {
  #now = Date.now();
  #tickedAt = performance.now();
  #timer: Timer | undefined;

  start(): void {
    this.#timer = realTimer(TICK_MS, () => this.#tick());
  }

  stop(): void {
    this.#timer?.cancel();
  }

  /** Milliseconds; only to be compared with others of the same clock. */
  now(): number {
    const at = performance.now();
    this.#now += Math.min(MOST_MS, at - this.#tickedAt);
    this.#tickedAt = at;
    return Math.round(this.#now);
  }

  #tick(): void {
    this.now();
    this.start();
  }
}
