/** Results that viewers share: a hundred open pages query the store as often as one. */

/** How long a result stays fresh if the caller does not say. */
const FRESH_MS = 1_000;
const MOST = 500;

interface Kept {
  readonly answer: Promise<unknown>;
  /** Infinity until `make` has settled. */
  until: number;
}

export class ResponseCache {
  readonly #kept = new Map<string, Kept>();

  /** Returns the result of `make`, or a recent one under the same key. Failures are not kept. */
  get<T>(key: string, make: () => Promise<T>, freshMs: number = FRESH_MS): Promise<T> {
    const now = performance.now();
    const kept = this.#kept.get(key);
    if (kept !== undefined && kept.until > now) return kept.answer as Promise<T>;
    this.#tidy(now);
    const answer = make();
    const fresh: Kept = { answer, until: Infinity };
    this.#kept.set(key, fresh);
    answer.then(
      () => (fresh.until = performance.now() + freshMs),
      () => {
        if (this.#kept.get(key) === fresh) this.#kept.delete(key);
      },
    );
    return answer;
  }

  /** Forgets everything, because something changed. */
  clear(): void {
    this.#kept.clear();
  }

  #tidy(now: number): void {
    for (const [key, { until }] of this.#kept) if (until <= now) this.#kept.delete(key);
    if (this.#kept.size >= MOST) this.#kept.clear();
  }
}
