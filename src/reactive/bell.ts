import { pause, type Clock } from '../core/clock.js';

export interface BellOptions {
  readonly clock: Clock;
  readonly stop: AbortSignal;
  readonly ring: () => Promise<void>;
  readonly error: (error: unknown) => void;
}

/** Instances elsewhere are woken this often at most. */
const EVERY_MS = 20;

/** Wakes instances elsewhere. A ring that comes while another is on its way goes with it. */
export class Bell {
  readonly #options: BellOptions;
  #rangAt = -Infinity;
  #ringing: Promise<void> | undefined;

  constructor(options: BellOptions) {
    this.#options = options;
  }

  ring(): void {
    this.#ringing ??= this.#ring()
      .catch(this.#options.error)
      .finally(() => (this.#ringing = undefined));
  }

  /** Until the ring under way has ended. */
  async quiet(): Promise<void> {
    await this.#ringing;
  }

  async #ring(): Promise<void> {
    const { clock, stop, ring } = this.#options;
    const waitMs = this.#rangAt + EVERY_MS - clock.monotonic();
    if (waitMs > 0) await pause(clock, waitMs, stop);
    this.#rangAt = clock.monotonic();
    await ring();
  }
}
