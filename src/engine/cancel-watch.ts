import type { Clock, Timer } from '../core/clock.js';
import type { Lease } from '../store/port.js';

export interface CancelWatchOptions {
  readonly clock: Clock;
  /** Returns which of these are to be cancelled; undefined if this kind of work cannot be cancelled. */
  readonly requests: ((leases: readonly Lease[]) => Promise<readonly Lease[]>) | undefined;
  /** The leases of the work that runs, or waits in a buffer, here. */
  readonly leases: () => readonly Lease[];
  readonly cancel: (ids: ReadonlySet<string>) => void;
  /** True while a handler runs. */
  readonly needed: () => boolean;
  readonly error: (error: unknown) => void;
}

/** The interval between checks: half of the one second that is promised. */
const CANCEL_CHECK_MS = 500;

/** Checks running and buffered work for cancel requests: every half second while a handler runs, and when notified. */
export class CancelWatch {
  readonly #options: CancelWatchOptions;
  #timer: Timer | undefined;
  #checking = false;

  constructor(options: CancelWatchOptions) {
    this.#options = options;
  }

  /** Starts the interval when a handler starts. */
  start(): void {
    this.#timer ??= this.#options.clock.timer(CANCEL_CHECK_MS, () => void this.check());
  }

  stop(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
  }

  async check(): Promise<void> {
    const { requests, leases, cancel, needed, error } = this.#options;
    this.stop();
    if (this.#checking || requests === undefined) return;
    this.#checking = true;
    try {
      const asked = leases();
      if (asked.length > 0) cancel(new Set((await requests(asked)).map((lease) => lease.id)));
    } catch (problem) {
      error(problem);
    } finally {
      this.#checking = false;
      if (needed()) this.start();
    }
  }
}
