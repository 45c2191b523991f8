import { pause, type Clock } from '../core/clock.js';
import type { Cluster, Instance } from '../store/port.js';

export interface PeerNotifierOptions {
  readonly clock: Clock;
  readonly stop: AbortSignal;
  readonly ring: () => Promise<void>;
  readonly error: (error: unknown) => void;
}

/** Instances elsewhere are woken this often at most. */
const EVERY_MS = 20;

/**
 * Wakes instances elsewhere. A ring that comes before the notification is sent goes with it; one that comes later needs
 * a notification of its own, because whoever heard the first may have looked before this work was there.
 */
export class PeerNotifier {
  readonly #options: PeerNotifierOptions;
  #rangAt = -Infinity;
  #wanted = false;
  #ringing: Promise<void> | undefined;

  constructor(options: PeerNotifierOptions) {
    this.#options = options;
  }

  notify(): void {
    this.#wanted = true;
    this.#ringing ??= this.#ringWhileWanted();
  }

  /** Until the ring under way has ended. */
  async quiet(): Promise<void> {
    await this.#ringing;
  }

  async #ringWhileWanted(): Promise<void> {
    const { clock, stop, ring, error } = this.#options;
    try {
      while (this.#wanted) {
        const waitMs = this.#rangAt + EVERY_MS - clock.monotonic();
        if (waitMs > 0) await pause(clock, waitMs, stop);
        this.#rangAt = clock.monotonic();
        this.#wanted = false;
        await ring().catch(error);
      }
    } finally {
      // In the same turn as the last look at the flag: a ring that comes now begins anew.
      this.#ringing = undefined;
    }
  }
}

/** A look that is answered later than this after another one was not asked before it. */
const LONGEST_LOOK_MS = 10_000;

/** How many other instances there are, as far as the newest look knows. */
export class Peers {
  readonly #clock: Clock;
  #count = 1;
  /** The newest look: its time by the store's clock, and when it was answered. */
  #newest = { now: -Infinity, at: -Infinity };

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get none(): boolean {
    return this.#count === 0;
  }

  /** Returns true if there is somebody again. */
  observe({ instances, now }: Pick<Cluster, 'instances' | 'now'>, { life }: Pick<Instance, 'life'>): boolean {
    const look = { now: now.getTime(), at: this.#clock.monotonic() };
    // Two looks may be under way at once, and be answered in any order. A clock that was set back is no reason to pass over all.
    if (look.now < this.#newest.now && look.at - this.#newest.at < LONGEST_LOOK_MS) return false;
    this.#newest = look;
    const wasNone = this.none;
    this.#count = instances.filter((one) => one.life !== life && !one.dead).length;
    return wasNone && !this.none;
  }
}
