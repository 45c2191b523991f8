import type { Clock, Timer } from '../core/clock.js';
import type { Lease } from '../store/port.js';

export interface CancelWatchOptions {
  readonly clock: Clock;
  /** Which of these are to be cancelled; undefined where the kind of work knows no cancelling. */
  readonly requests: ((leases: readonly Lease[]) => Promise<readonly Lease[]>) | undefined;
  /** What runs or waits here now. */
  readonly leases: () => readonly Lease[];
  readonly cancel: (ids: ReadonlySet<string>) => void;
  /** True while something runs. */
  readonly needed: () => boolean;
  readonly error: (error: unknown) => void;
}

/** How often running work is asked after cancel requests; half of the second that is promised. */
const CANCEL_CHECK_MS = 500;

/** Asks which running or waiting work is to be cancelled: once in a while as long as something runs, and when told to. */
export class CancelWatch {
  readonly #options: CancelWatchOptions;
  #timer: Timer | undefined;
  #checking = false;

  constructor(options: CancelWatchOptions) {
    this.#options = options;
  }

  /** Something runs from now on. */
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
