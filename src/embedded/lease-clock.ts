import type { Timer } from '../core/clock.js';
import { realTimer } from '../core/clock.js';

const TICK_MS = 100;
/** More than this between two ticks means that the process was blocked. */
const MOST_MS = 1_000;

/**
 * The clock by which leases are given and judged in one process. A gap between two ticks counts as a second at most: a
 * query runs inside the process and may block it for longer than a lease, and no instance can renew meanwhile.
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

  /** Milliseconds; compare only with other values of the same clock. */
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
