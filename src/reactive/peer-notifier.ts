import { pause, type Clock } from '../core/clock.js';
import type { Instance, Leases } from '../store/port.js';

export interface PeerNotifierOptions {
  readonly clock: Clock;
  readonly stop: AbortSignal;
  readonly send: () => Promise<void>;
  readonly error: (error: unknown) => void;
}

/** The shortest time between two notifications. */
const EVERY_MS = 20;

/**
 * Notifies other instances. Calls that come before a notification is sent share it. A later call needs a notification
 * of its own, because an instance that received the first may have polled before this work was there.
 */
export class PeerNotifier {
  readonly #options: PeerNotifierOptions;
  #sentAt = -Infinity;
  #wanted = false;
  #sending: Promise<void> | undefined;

  constructor(options: PeerNotifierOptions) {
    this.#options = options;
  }

  notify(): void {
    this.#wanted = true;
    this.#sending ??= this.#sendWhileWanted();
  }

  /** Resolves when the notification in progress has been sent. */
  async quiet(): Promise<void> {
    await this.#sending;
  }

  async #sendWhileWanted(): Promise<void> {
    const { clock, stop, send, error } = this.#options;
    try {
      while (this.#wanted) {
        const waitMs = this.#sentAt + EVERY_MS - clock.monotonic();
        if (waitMs > 0) await pause(clock, waitMs, stop);
        this.#sentAt = clock.monotonic();
        this.#wanted = false;
        await send().catch(error);
      }
    } finally {
      // In the same turn of the event loop as the last check of `#wanted`, so that a later call starts a new loop.
      this.#sending = undefined;
    }
  }
}

/** A cluster snapshot that arrives this long after another one was not requested before it. */
const LONGEST_LOOK_MS = 10_000;

/** How many other instances there are, according to the newest cluster snapshot. One is assumed before the first. */
export class Peers {
  readonly #clock: Clock;
  #count = 1;
  /** The newest snapshot: its time by the store's clock, and when it arrived. */
  #newest = { now: -Infinity, at: -Infinity };

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get none(): boolean {
    return this.#count === 0;
  }

  /** Returns true if there are other instances again after there were none. */
  observe({ instances, now }: Pick<Leases, 'instances' | 'now'>, { life }: Pick<Instance, 'life'>): boolean {
    const look = { now: now.getTime(), at: this.#clock.monotonic() };
    // Two snapshots may be requested at once and arrive in any order. A store's clock that was set back must not make
    // all later ones seem old.
    if (look.now < this.#newest.now && look.at - this.#newest.at < LONGEST_LOOK_MS) return false;
    this.#newest = look;
    const wasNone = this.none;
    this.#count = instances.filter((one) => one.life !== life && !one.dead).length;
    return wasNone && !this.none;
  }
}
