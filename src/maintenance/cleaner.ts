import { pause } from '../core/clock.js';
import type { Store } from '../store/port.js';

const EVERY_MS = 60_000;

export interface CleanerOptions {
  readonly store: Store;
  /** Returns true if this instance is to clean up in this period. */
  readonly turn: (periodMs: number) => Promise<boolean>;
  /** Repairs what the store offers of keys; absent if it has nothing to repair. */
  readonly repairKeys?: (() => Promise<void>) | undefined;
  readonly error: (error: unknown) => void;
}

/**
 * Deletes finished jobs and audit entries whose retention has passed, on stores whose database does not expire them
 * itself, releases successors that a crash has left waiting, and repairs keys. Runs once a minute, on one instance of the
 * cluster.
 */
export class Cleaner {
  readonly #options: CleanerOptions;
  readonly #stop = new AbortController();

  constructor(options: CleanerOptions) {
    this.#options = options;
  }

  start(): void {
    void this.#run();
  }

  stop(): void {
    this.#stop.abort();
  }

  async #run(): Promise<void> {
    const { store, error } = this.#options;
    while (await pause(store.clock, EVERY_MS, this.#stop.signal, { housekeeping: true })) {
      const sweep = this.#sweep().catch(error);
      store.clock.track?.(sweep);
      await sweep;
    }
  }

  async #sweep(): Promise<void> {
    const { store, turn, repairKeys, error } = this.#options;
    if (!(await turn(EVERY_MS))) return;
    await store.jobs.sweep?.(new Date(store.clock.now())).catch(error);
    await store.jobs.releaseSuccessors?.().catch(error);
    await store.audit.sweep?.().catch(error);
    await repairKeys?.();
  }
}
