import type { Clock } from '../../core/clock.js';

/** Locks are renewed every third of their duration, so an outage shorter than this share of it ends none. */
const GAP_SHARE = 1 / 2;
/** The longest grace for holders to come back: more than drivers take to reconnect. */
const MOST_GRACE_MS = 30_000;
/**
 * A process that wakes up later than planned by more than this, or by half a lock duration if that is longer, was
 * suspended.
 */
const LATE_MS = 2_000;

/**
 * Decides how long a scheduler leaves documents alone after an outage. An outage also ends the locks of live processes,
 * and an ended lock looks like any due time. A scheduler that was cut off for half a lock duration or more therefore
 * locks nothing for one lock duration, 30 s at most, so that holders can renew. In normal operation it never waits.
 */
export class OutageGrace {
  readonly #clock: Clock;
  readonly #lockMs: number;
  /** Monotonic, like the other times here: when the store last answered, and when it last made a write. */
  #answeredAt: number;
  #wroteAt: number;
  #failed: 'nothing' | 'a read' | 'a write' = 'nothing';
  #endsAt = -Infinity;

  constructor(clock: Clock, lockMs: number) {
    this.#clock = clock;
    this.#lockMs = lockMs;
    this.#answeredAt = this.#wroteAt = clock.monotonic();
  }

  /** True if the store must answer a `look` before anything is locked. */
  get isInDoubt(): boolean {
    return this.#lockMs > 0 && (this.#failed !== 'nothing' || this.leftMs > 0);
  }

  get leftMs(): number {
    return Math.max(0, this.#endsAt - this.#clock.monotonic());
  }

  failed(what: 'a read' | 'a write'): void {
    if (this.#failed !== 'a write') this.#failed = what;
  }

  /** Called when the store has answered. A grace during which it failed starts over. */
  answered(what: 'a read' | 'a write'): void {
    const now = this.#clock.monotonic();
    const gapMs = now - (this.#failed === 'a write' ? this.#wroteAt : this.#answeredAt);
    const isLong = gapMs >= this.#lockMs * GAP_SHARE || this.#answeredAt < this.#endsAt;
    if (this.#failed !== 'nothing' && isLong) this.#begin(now);
    this.#failed = 'nothing';
    this.#answeredAt = now;
    if (what === 'a write') this.#wroteAt = now;
  }

  /**
   * Called when the loop woke up late: the process was suspended or the store's clock was set, and other processes may
   * have been affected, too.
   */
  wasLate(lateMs: number): void {
    if (lateMs > Math.max(LATE_MS, this.#lockMs * GAP_SHARE)) this.#begin(this.#clock.monotonic());
  }

  #begin(now: number): void {
    this.#endsAt = now + Math.min(this.#lockMs, MOST_GRACE_MS);
  }
}
