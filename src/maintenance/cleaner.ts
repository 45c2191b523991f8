import { pause, type Clock } from '../core/clock.js';
import type { Store } from '../store/port.js';

const EVERY_MS = 60_000;

/** Deletes finished jobs and audit entries whose retention has passed, where the database does not do that by itself. */
export class Cleaner {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #error: (error: unknown) => void;
  readonly #stop = new AbortController();

  constructor(store: Store, error: (error: unknown) => void) {
    this.#store = store;
    this.#clock = store.clock;
    this.#error = error;
  }

  start(): void {
    void this.#run();
  }

  stop(): void {
    this.#stop.abort();
  }

  async #run(): Promise<void> {
    while (await pause(this.#clock, EVERY_MS, this.#stop.signal)) {
      await this.#store.jobs.sweep?.(new Date(this.#clock.now())).catch(this.#error);
      await this.#store.audit.sweep?.().catch(this.#error);
    }
  }
}
