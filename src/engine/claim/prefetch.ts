/** Work is prefetched only if handlers take no longer than this on average. */
const SHORT_MS = 50;
/** Prefetched work should be done within about this time. */
export const HORIZON_MS = 250;
/** The most work of one name to prefetch. */
export const MOST_AHEAD = 500;
/** The weight of the latest run: the average covers about the last ten runs. */
const WEIGHT = 0.1;

/** Decides how much to claim beyond the free slots, from the average duration of handlers. */
export class Prefetch {
  #averageMs: number | undefined;

  learn(durationMs: number): void {
    this.#averageMs =
      this.#averageMs === undefined ? durationMs : this.#averageMs + WEIGHT * (durationMs - this.#averageMs);
  }

  /** Prefetched work was not started in time, so the average was wrong. Prefetching resumes after enough short runs. */
  turnedOutLong(): void {
    this.#averageMs = Math.max(this.#averageMs ?? 0, 2 * SHORT_MS);
  }

  /** Returns 0 until the first run has ended, so that a process that dies at once holds only the work it runs. */
  ahead(concurrency: number): number {
    const average = this.#averageMs;
    if (average === undefined || average > SHORT_MS) return 0;
    return Math.min(MOST_AHEAD, Math.ceil((concurrency * HORIZON_MS) / Math.max(average, 0.1)));
  }
}
