import { pause, type Clock } from '../core/clock.js';

export interface BellOptions {
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
export class Bell {
  readonly #options: BellOptions;
  #rangAt = -Infinity;
  #wanted = false;
  #ringing: Promise<void> | undefined;

  constructor(options: BellOptions) {
    this.#options = options;
  }

  ring(): void {
    this.#wanted = true;
    this.#ringing ??= this.#ringWhileWanted().finally(() => (this.#ringing = undefined));
  }

  /** Until the ring under way has ended. */
  async quiet(): Promise<void> {
    await this.#ringing;
  }

  async #ringWhileWanted(): Promise<void> {
    const { clock, stop, ring, error } = this.#options;
    while (this.#wanted) {
      const waitMs = this.#rangAt + EVERY_MS - clock.monotonic();
      if (waitMs > 0) await pause(clock, waitMs, stop);
      this.#rangAt = clock.monotonic();
      this.#wanted = false;
      await ring().catch(error);
    }
  }
}
