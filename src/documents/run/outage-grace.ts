import type { Clock } from '../../core/clock.js';

/** Locks are renewed every third of their duration: an outage that is shorter than this share of it ends none. */
const GAP_SHARE = 1 / 2;
/** How long holders get to come back at most: more than drivers take to connect again. */
const MOST_GRACE_MS = 30_000;
/** A process that wakes up this much later than it meant to was stopped, unless its locks are longer. */
const LATE_MS = 2_000;

/**
 * How long a scheduler leaves documents alone after an outage. That ends the locks of live processes, too, and an ended
 * lock looks like any due time. So a scheduler that was cut off for long enough locks nothing for one lock duration, 30 s
 * at most, in which holders renew. In normal operation it never waits.
 */
export class OutageGrace {
  readonly #clock: Clock;
  readonly #lockMs: number;
  /** Monotonic, as the others: when the store last answered, and last made a write. */
  #answeredAt: number;
  #wroteAt: number;
  #failed: 'nothing' | 'a read' | 'a write' = 'nothing';
  #endsAt = -Infinity;

  constructor(clock: Clock, lockMs: number) {
    this.#clock = clock;
    this.#lockMs = lockMs;
    this.#answeredAt = this.#wroteAt = clock.monotonic();
  }

  /** True if the store has to answer a look before anything is locked. */
  get isInDoubt(): boolean {
    return this.#lockMs > 0 && (this.#failed !== 'nothing' || this.leftMs > 0);
  }

  get leftMs(): number {
    return Math.max(0, this.#endsAt - this.#clock.monotonic());
  }

  failed(what: 'a read' | 'a write'): void {
    if (this.#failed !== 'a write') this.#failed = what;
  }

  /** The store has answered; a grace that it did not answer throughout begins anew. */
  answered(what: 'a read' | 'a write'): void {
    const now = this.#clock.monotonic();
    const gapMs = now - (this.#failed === 'a write' ? this.#wroteAt : this.#answeredAt);
    const isLong = gapMs >= this.#lockMs * GAP_SHARE || this.#answeredAt < this.#endsAt;
    if (this.#failed !== 'nothing' && isLong) this.#begin(now);
    this.#failed = 'nothing';
    this.#answeredAt = now;
    if (what === 'a write') this.#wroteAt = now;
  }

  /** The process stood still, or the store's clock was set: others may have, too. */
  wasLate(lateMs: number): void {
    if (lateMs > Math.max(LATE_MS, this.#lockMs * GAP_SHARE)) this.#begin(this.#clock.monotonic());
  }

  #begin(now: number): void {
    this.#endsAt = now + Math.min(this.#lockMs, MOST_GRACE_MS);
  }
}
