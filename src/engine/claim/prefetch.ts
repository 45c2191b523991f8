/** Work is prefetched only if handlers take no longer than this on average. */
const SHORT_MS = 50;
/** Prefetched work should be done within about this time. */
export const HORIZON_MS = 250;
/** The most work of one name to prefetch. */
export const MOST_AHEAD = 500;
/** The most that prefetched work may weigh, in bytes as the database sends them; in memory it is a few times that. */
export const MOST_BYTES_AHEAD: number = 4 * 1024 * 1024;
/**
 * A claim may prefetch this many of a name, or `GROWTH` times what was claimed of it lately if that is more. Large work
 * is noticed after the first few, rather than after a claim of hundreds.
 */
export const FIRST_AHEAD = 16;
const GROWTH = 4;
/** What was claimed longer ago does not tell how large the work is that is due now. */
export const LATELY_MS = 1_000;
/** The weight of the latest run: the average covers about the last ten runs. */
const WEIGHT = 0.1;

/** Decides how much to claim beyond the free slots, from the average duration of handlers and the size of their work. */
export class Prefetch {
  #averageMs: number | undefined;
  /** Rises at once and falls slowly: work that turns out large must not be claimed by the hundred. */
  #bytesEach = 0;
  /** How much was claimed lately, as of the last claim. */
  #lately = 0;
  #claimedAt = -Infinity;

  learn(durationMs: number): void {
    this.#averageMs =
      this.#averageMs === undefined ? durationMs : this.#averageMs + WEIGHT * (durationMs - this.#averageMs);
  }

  /** Learns from work that was claimed. `now` is monotonic time. */
  weigh(bytes: number, now: number): void {
    this.#lately = this.#isFresh(now) ? this.#lately + 1 : 1;
    this.#claimedAt = now;
    this.#bytesEach = Math.max(bytes, this.#bytesEach + WEIGHT * (bytes - this.#bytesEach));
  }

  /** Prefetched work was not started in time, so the average was wrong. Prefetching resumes after enough short runs. */
  turnedOutLong(): void {
    this.#averageMs = Math.max(this.#averageMs ?? 0, 2 * SHORT_MS);
  }

  /** The most that the next claim may prefetch. */
  mostNext(now: number): number {
    return this.#isFresh(now) ? Math.max(FIRST_AHEAD, GROWTH * this.#lately) : FIRST_AHEAD;
  }

  #isFresh(now: number): boolean {
    return now - this.#claimedAt < LATELY_MS;
  }

  /** How much of `count` may be held at once by its bytes; one piece of work always. */
  within(count: number): number {
    return Math.max(1, Math.min(count, this.#mostByBytes));
  }

  /**
   * Returns 0 until the first run has ended, so that a process that dies at once holds only the work it runs. `each` is
   * the work of one run: a second batch may wait beside the one that runs, whatever its size.
   */
  ahead(concurrency: number, each = 1): number {
    if (!this.#isShort) return 0;
    const inTime = this.callsWithin(concurrency, HORIZON_MS) * each;
    return Math.min(Math.max(MOST_AHEAD, each), inTime, this.#mostByBytes);
  }

  /** How many calls are worth prefetching work for, whatever the size of each. */
  callsAhead(concurrency: number): number {
    return this.#isShort ? Math.min(MOST_AHEAD, this.callsWithin(concurrency, HORIZON_MS)) : 0;
  }

  /** How many calls so many slots make in this time; without end until the first run has ended. */
  callsWithin(concurrency: number, limitMs: number): number {
    if (this.#averageMs === undefined) return Infinity;
    return Math.ceil((concurrency * limitMs) / Math.max(this.#averageMs, 0.1));
  }

  get #isShort(): boolean {
    return this.#averageMs !== undefined && this.#averageMs <= SHORT_MS;
  }

  get #mostByBytes(): number {
    return Math.floor(MOST_BYTES_AHEAD / Math.max(1, this.#bytesEach));
  }
}
