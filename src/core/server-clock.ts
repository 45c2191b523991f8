import { realTimer, type Clock, type Timer } from './clock.js';

/** For this long, a reading is preferred to newer ones that had a longer round trip. */
const KEEP_MS = 300_000;

/**
 * An estimate of the server's clock. It runs on the process's monotonic clock, so a jump of the machine's wall clock
 * does not affect it. Readings of the server's time correct it; the reading with the shortest round trip wins.
 */
export class ServerClock implements Clock {
  #base = Date.now() - performance.now();
  #error = Infinity;
  /** Monotonic time of the reading in use. */
  #readAt = -Infinity;
  #heardAt = -Infinity;

  now(): number {
    return Math.round(this.#base + performance.now());
  }

  /** The server may have read its clock at any moment of the round trip. */
  uncertainty(): number {
    return Number.isFinite(this.#error) ? this.#error / 2 : 0;
  }

  monotonic(): number {
    return performance.now();
  }

  timer(delayMs: number, callback: () => void): Timer {
    return realTimer(delayMs, callback);
  }

  /** Milliseconds since the last reading, whether it was used or not. */
  get age(): number {
    return performance.now() - this.#heardAt;
  }

  /** Adds a reading: the server reported `serverTime` between two instants of the monotonic clock. */
  learn(serverTime: Date, sentAt: number, receivedAt: number): void {
    const roundTrip = receivedAt - sentAt;
    this.#heardAt = receivedAt;
    // If the reading and the estimate differ by more than their combined error, the server's clock was set.
    const estimate = this.#base + sentAt + roundTrip / 2;
    const agrees = Math.abs(serverTime.getTime() - estimate) <= (roundTrip + this.#error) / 2 + 1;
    if (agrees && roundTrip > this.#error && receivedAt - this.#readAt < KEEP_MS) return;
    this.#base = serverTime.getTime() - (sentAt + roundTrip / 2);
    this.#error = roundTrip;
    this.#readAt = receivedAt;
  }
}
