import type { Clock } from '../../core/clock.js';
import type { Cluster, InstanceState } from '../../store/port.js';

/** Renewals come every third of a lease: a longer gap than this means that one of them failed or was late. */
const GAP_SHARE = 1 / 2;
/** Of a lease that is only seconds long, a machine that is busy uses up more than that. */
const SHORT_GAP_MS = 2_000;
const longestGapMs = (leaseMs: number): number =>
  Math.max(leaseMs * GAP_SHARE, Math.min(leaseMs, SHORT_GAP_MS));
/** How long a lease has to be seen expired: a process that was cut off for a moment tries again in less. */
const CONFIRM_MS = 1_500;
const CONFIRM_SHARE = 1 / 4;

/** How long others get to come back: more than drivers take to connect again, and more than from one renewal to the next. */
const MOST_GRACE_MS = 30_000;
const wholeGraceMs = (leaseMs: number): number =>
  Math.min(leaseMs, Math.max(MOST_GRACE_MS, leaseMs * GAP_SHARE));

type Silent = Pick<InstanceState, 'life' | 'leftMs'>;

/**
 * Decides when an instance whose lease has ended may be declared dead. An outage of the database ends all leases alike,
 * and a live process renews its own as soon as it can. So a lease that has ended counts only
 * - after this instance has renewed its own lease without a gap for a whole lease, 30 s or half a lease at most, and
 * - after it has seen the other lease expired, by the store's clock, for a moment.
 * An instance that has just started, or was cut off itself, gives the others that much time to come back.
 */
export class FailureDetector {
  readonly #clock: Clock;
  readonly #leaseMs: number;
  /** Monotonic time from which on this instance has been in contact without a gap. */
  #contactSince = -Infinity;
  #renewedAt: { readonly monotonic: number; readonly store: number } | undefined;
  /** By life: when its lease was first seen expired in this stretch of contact. */
  readonly #expired = new Map<string, number>();

  constructor(clock: Clock, leaseMs: number) {
    this.#clock = clock;
    this.#leaseMs = leaseMs;
  }

  /** The store has taken a renewal of this instance: it can be reached, and it takes writes. */
  renewed(): void {
    const now = { monotonic: this.#clock.monotonic(), store: this.#clock.now() };
    const last = this.#renewedAt;
    this.#renewedAt = now;
    // By both clocks: a machine that was suspended, or a server's clock that was set, ends all leases at once, too.
    const gapMs =
      last === undefined ? Infinity : Math.max(now.monotonic - last.monotonic, now.store - last.store);
    if (gapMs > longestGapMs(this.#leaseMs)) this.#startOver();
  }

  /** Takes note of whose leases have ended. */
  observe({ instances, now }: Pick<Cluster, 'instances' | 'now'>): void {
    // A server's clock that was set forward shows here before the next renewal.
    const gapMs = now.getTime() - (this.#renewedAt?.store ?? Infinity);
    if (gapMs > longestGapMs(this.#leaseMs)) this.#startOver();
    const expired = new Set(instances.filter(({ leftMs }) => leftMs <= 0).map(({ life }) => life));
    for (const life of this.#expired.keys()) if (!expired.has(life)) this.#expired.delete(life);
    for (const life of expired) {
      if (!this.#expired.has(life)) this.#expired.set(life, this.#clock.monotonic());
    }
  }

  #startOver(): void {
    this.#contactSince = this.#clock.monotonic();
    this.#expired.clear();
  }

  /** Milliseconds until an instance may be declared dead, as far as is known now; 0: it may be. */
  waitMs({ life, leftMs }: Silent): number {
    if (leftMs > 0) return leftMs;
    const confirmMs = Math.min(CONFIRM_MS, this.#leaseMs * CONFIRM_SHARE);
    const seenMs = this.#clock.monotonic() - (this.#expired.get(life) ?? this.#clock.monotonic());
    return Math.max(this.graceMs, confirmMs - seenMs, 0);
  }

  /** How long others still get to come back after an outage; 0 in normal operation. */
  get graceMs(): number {
    const now = this.#clock.monotonic();
    const silentMs = now - (this.#renewedAt?.monotonic ?? -Infinity);
    const wholeMs = wholeGraceMs(this.#leaseMs);
    if (silentMs > longestGapMs(this.#leaseMs)) return wholeMs;
    return Math.max(0, this.#contactSince + wholeMs - now);
  }
}
