import { pause, type Clock } from '../core/clock.js';
import type { Store } from '../store/port.js';

const EVERY_MS = 60_000;

/**
 * Deletes finished jobs and audit entries whose retention has passed, on stores whose database does not expire them
 * itself. Runs once a minute, on one instance of the cluster.
 */
export class Cleaner {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #turn: (periodMs: number) => Promise<boolean>;
  readonly #error: (error: unknown) => void;
  readonly #stop = new AbortController();

  /** `turn` returns true if this instance is to clean up in this period. */
  constructor(store: Store, turn: (periodMs: number) => Promise<boolean>, error: (error: unknown) => void) {
    this.#store = store;
    this.#clock = store.clock;
    this.#turn = turn;
    this.#error = error;
  }

  start(): void {
    void this.#run();
  }

  stop(): void {
    this.#stop.abort();
  }

  async #run(): Promise<void> {
    while (await pause(this.#clock, EVERY_MS, this.#stop.signal, { housekeeping: true })) {
      const sweep = this.#sweep().catch(this.#error);
      this.#clock.track?.(sweep);
      await sweep;
    }
  }

  async #sweep(): Promise<void> {
    if (!(await this.#turn(EVERY_MS))) return;
    await this.#store.jobs.sweep?.(new Date(this.#clock.now())).catch(this.#error);
    await this.#store.audit.sweep?.();
  }
}
