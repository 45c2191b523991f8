/** The range of a backoff, in milliseconds. */
export interface BackoffMs {
  /** The first wait. */
  readonly min: number;
  /** The longest wait. */
  readonly max: number;
  /** How much longer each wait is than the one before. Default: 2. */
  readonly factor?: number;
  /** Shortens each wait by up to a half, so that callers that started together do not retry in step. Default: false. */
  readonly jitter?: boolean;
}

/** Growing waits between retries, or between polls that find nothing. */
export class Backoff {
  readonly #range: () => BackoffMs;
  #waitMs = 0;

  /** The range is a function if it may change between waits. */
  constructor(range: BackoffMs | (() => BackoffMs)) {
    this.#range = typeof range === 'function' ? range : () => range;
  }

  /** Returns how long to wait this time. */
  next(): number {
    const { min, max, factor = 2, jitter = false } = this.#range();
    this.#waitMs = Math.min(max, Math.max(min, this.#waitMs * factor));
    return jitter ? this.#waitMs * (0.5 + Math.random() / 2) : this.#waitMs;
  }

  /** Called after a success: the next wait is the first one again. */
  reset(): void {
    this.#waitMs = 0;
  }
}
