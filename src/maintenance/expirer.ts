import type { JobRecord } from '../core/records/job.js';
import type { DueSummary, RetentionMs, Store } from '../store/port.js';

export interface ExpirerOptions {
  readonly store: Store;
  readonly retention: (name: string) => RetentionMs;
  /** Called with the jobs that this instance has cancelled. */
  readonly expired: (jobs: readonly JobRecord[]) => void;
  /** Called once nothing is left that should have started: what was in the way of other work is gone. */
  readonly done: () => void;
  readonly error: (error: unknown) => void;
}

/**
 * Cancels jobs that did not start in time. Every peek tells when the next one expires, so this costs nothing until then,
 * and any instance may do it.
 */
export class Expirer {
  readonly #options: ExpirerOptions;
  #isRunning = false;

  constructor(options: ExpirerOptions) {
    this.#options = options;
  }

  saw({ cluster, expiresAt }: DueSummary): void {
    if (this.#isRunning || expiresAt === undefined || expiresAt > cluster.now) return;
    this.#isRunning = true;
    const { store, error } = this.#options;
    const expiring = this.#expire()
      .catch(error)
      .finally(() => (this.#isRunning = false));
    store.clock.track?.(expiring);
  }

  async #expire(): Promise<void> {
    const { store, retention, expired, done } = this.#options;
    for (;;) {
      const jobs = (await store.jobs.expire?.(retention)) ?? [];
      if (jobs.length === 0) break;
      expired(jobs);
    }
    done();
  }
}
