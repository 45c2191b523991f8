import type { Clock } from '../../core/clock.js';
import type { InstanceLease, Leases } from '../../store/port.js';

/** Renewals come every third of a lease. A gap longer than this share means that one failed or was late. */
const GAP_SHARE = 1 / 2;
/** Minimum for short leases: on a busy machine a renewal may be late by more than half of a few seconds. */
const SHORT_GAP_MS = 2_000;
const longestGapMs = (leaseMs: number): number =>
  Math.max(leaseMs * GAP_SHARE, Math.min(leaseMs, SHORT_GAP_MS));
/** How long a lease must have been seen expired. A process that was cut off for a moment retries sooner. */
const CONFIRM_MS = 1_500;
const CONFIRM_SHARE = 1 / 4;

/** How long others have to come back: longer than drivers take to reconnect, and longer than a renewal interval. */
const MOST_GRACE_MS = 30_000;
const wholeGraceMs = (leaseMs: number): number =>
  Math.min(leaseMs, Math.max(MOST_GRACE_MS, leaseMs * GAP_SHARE));

type Silent = Pick<InstanceLease, 'life' | 'leftMs'>;

/**
 * Decides when an instance whose lease has ended may be declared dead. A database outage ends all leases alike, and a
 * live process renews its own as soon as it can. So an instance counts as dead only
 * - after this instance has renewed its own lease without a gap for a whole lease (at most 30 s, or half a lease if
 *   that is longer), and
 * - after it has seen the other lease expired, by the store's clock, for a quarter of a lease (at most 1.5 s).
 * An instance that has just started, or was cut off itself, gives the others that much time to come back.
 */
export class FailureDetector {
  readonly #clock: Clock;
  readonly #leaseMs: number;
  /** Monotonic time since which this instance has been in contact without a gap. */
  #contactSince = -Infinity;
  #renewedAt: { readonly monotonic: number; readonly store: number } | undefined;
  /** By life: when its lease was first seen expired since then. */
  readonly #expired = new Map<string, number>();

  constructor(clock: Clock, leaseMs: number) {
    this.#clock = clock;
    this.#leaseMs = leaseMs;
  }

  /** Call this when the store has accepted a renewal of this instance: it is reachable and takes writes. */
  renewed(): void {
    const now = { monotonic: this.#clock.monotonic(), store: this.#clock.now() };
    const last = this.#renewedAt;
    this.#renewedAt = now;
    // Compare both clocks: a suspended machine, or a server clock that was set, also ends all leases at once.
    const gapMs =
      last === undefined ? Infinity : Math.max(now.monotonic - last.monotonic, now.store - last.store);
    if (gapMs > longestGapMs(this.#leaseMs)) this.#startOver();
  }

  /** Records which leases have ended. */
  observe({ instances, now }: Pick<Leases, 'instances' | 'now'>): void {
    // If the server's clock was set forward, it shows here before the next renewal.
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

  /** Milliseconds until an instance may be declared dead, as far as is known now; 0 if it may be. */
  waitMs({ life, leftMs }: Silent): number {
    if (leftMs > 0) return leftMs;
    const confirmMs = Math.min(CONFIRM_MS, this.#leaseMs * CONFIRM_SHARE);
    const seenMs = this.#clock.monotonic() - (this.#expired.get(life) ?? this.#clock.monotonic());
    return Math.max(this.graceMs, confirmMs - seenMs, 0);
  }

  /** Milliseconds that other instances still have to come back after an outage; 0 in normal operation. */
  get graceMs(): number {
    const now = this.#clock.monotonic();
    const silentMs = now - (this.#renewedAt?.monotonic ?? -Infinity);
    const wholeMs = wholeGraceMs(this.#leaseMs);
    if (silentMs > longestGapMs(this.#leaseMs)) return wholeMs;
    return Math.max(0, this.#contactSince + wholeMs - now);
  }
}
