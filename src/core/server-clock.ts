import { realTimer, type Clock, type Timer } from './clock.js';

/** A reading is trusted over newer ones with a longer round trip for this long. */
const KEEP_MS = 300_000;

/**
 * The server's clock, estimated. It runs on the process's monotonic clock, so that a jump of the machine's wall clock
 * changes nothing, and is corrected by readings; the one with the shortest round trip wins.
 */
export class ServerClock implements Clock {
  #base = Date.now() - performance.now();
  #error = Infinity;
  /** When the reading that is trusted was taken. */
  #readAt = -Infinity;
  #heardAt = -Infinity;

  now(): number {
    return Math.round(this.#base + performance.now());
  }

  monotonic(): number {
    return performance.now();
  }

  timer(delayMs: number, callback: () => void): Timer {
    return realTimer(delayMs, callback);
  }

  /** Milliseconds since the server's time was last heard. */
  get age(): number {
    return performance.now() - this.#heardAt;
  }

  /** Takes a server's time that arrived between two monotonic instants. */
  learn(serverTime: Date, sentAt: number, receivedAt: number): void {
    const roundTrip = receivedAt - sentAt;
    this.#heardAt = receivedAt;
    // A reading that contradicts the estimate by more than both could be wrong means that the clock was set.
    const estimate = this.#base + sentAt + roundTrip / 2;
    const agrees = Math.abs(serverTime.getTime() - estimate) <= (roundTrip + this.#error) / 2 + 1;
    if (agrees && roundTrip > this.#error && receivedAt - this.#readAt < KEEP_MS) return;
    this.#base = serverTime.getTime() - (sentAt + roundTrip / 2);
    this.#error = roundTrip;
    this.#readAt = receivedAt;
  }
}
