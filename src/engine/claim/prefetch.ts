/** Work is taken ahead only where handlers are shorter than this. */
const SHORT_MS = 50;
/** Buffered work should be done within about this time. */
export const HORIZON_MS = 250;
/** The most that is taken ahead. */
export const MOST_AHEAD = 500;
/** How fast the average follows: the last ten or so runs decide. */
const WEIGHT = 0.1;

/** How much to take ahead of the free slots, learned from how long handlers take. */
export class Prefetch {
  #averageMs: number | undefined;

  learn(durationMs: number): void {
    this.#averageMs =
      this.#averageMs === undefined ? durationMs : this.#averageMs + WEIGHT * (durationMs - this.#averageMs);
  }

  /** What was taken ahead did not get its turn in time, so the average was wrong: short runs have to restore it. */
  turnedOutLong(): void {
    this.#averageMs = Math.max(this.#averageMs ?? 0, 2 * SHORT_MS);
  }

  /** Nothing until the first run: a process that dies at once takes only what it was running with it. */
  ahead(concurrency: number): number {
    const average = this.#averageMs;
    if (average === undefined || average > SHORT_MS) return 0;
    return Math.min(MOST_AHEAD, Math.ceil((concurrency * HORIZON_MS) / Math.max(average, 0.1)));
  }
}
