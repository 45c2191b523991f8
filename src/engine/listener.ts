import type { Clock } from '../core/clock.js';
import type { Hint, Store, WakeUp, Watch } from '../store/port.js';

export interface ListenerOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly wake: (hint?: Hint) => void;
  readonly cancel: () => void;
  readonly error: (error: unknown) => void;
  /** Said once: only the poll finds work here, and why. */
  readonly unavailable: (reason: string) => void;
}

/** Listening costs the database something for every write, so a busy instance stops it: it has no use for wake-ups. */
const BUSY_MS = 1_000;
const REOPEN_MS = 1_000;

/** Listens for wake-ups while there is little to do. */
export class Listener {
  readonly #options: ListenerOptions;
  #watch: Watch | undefined;
  #busySince: number | undefined;
  #notBefore = -Infinity;
  #unavailable = false;
  #closed = false;

  constructor(options: ListenerOptions) {
    this.#options = options;
  }

  get wakeUp(): WakeUp {
    return this.#unavailable ? 'poll' : this.#options.store.kind === 'memory' ? 'direct' : 'stream';
  }

  async busy(): Promise<void> {
    const now = this.#options.clock.monotonic();
    this.#busySince ??= now;
    if (this.#watch !== undefined && now - this.#busySince > BUSY_MS) await this.#shut();
  }

  /** Resolves when a wake-up from now on would be heard, or when it is known that none will be. */
  async idle(): Promise<void> {
    const { store, clock, wake, cancel, unavailable, error } = this.#options;
    this.#busySince = undefined;
    if (this.#watch !== undefined || this.#unavailable || this.#closed || clock.monotonic() < this.#notBefore)
      return;
    try {
      const watch = await store.watch({ wake, cancel, broken: (problem) => this.#broken(problem) });
      if ('close' in watch) this.#watch = watch;
      else {
        this.#unavailable = true;
        unavailable(watch.unavailable);
      }
    } catch (problem) {
      this.#notBefore = clock.monotonic() + REOPEN_MS;
      error(problem);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    await this.#shut();
  }

  async #shut(): Promise<void> {
    const watch = this.#watch;
    this.#watch = undefined;
    await watch?.close();
  }

  #broken(problem: unknown): void {
    this.#watch = undefined;
    this.#notBefore = this.#options.clock.monotonic() + REOPEN_MS;
    this.#options.error(problem);
    // What was missed while nobody listened is found by a look, which also opens the next channel.
    this.#options.wake();
  }
}
