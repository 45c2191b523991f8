import type { Clock } from '../../core/clock.js';
import { reasonOf, TidemillError } from '../../core/errors.js';
import type { Work } from '../../core/records/work.js';
import type { Settling } from '../work-runner.js';

const FIRST_WAIT_MS = 2_000;
const LONGEST_WAIT_MS = 60_000;

/** An outcome that the database refuses, as `health()` reports it. */
export interface RefusedOutcome {
  readonly name: string;
  readonly id: string;
  readonly reason: string;
}

interface Entry<W extends Work> extends RefusedOutcome {
  readonly settling: Settling<W>;
  readonly dueAt: number;
}

/**
 * Outcomes that the database refuses because of a validator, a constraint or a missing privilege. Each is retried with
 * backoff, after 2 s at first and every minute at last. Meanwhile this instance keeps holding the work, so it neither
 * runs again nor gets lost.
 */
export class RefusedOutcomes<W extends Work> {
  readonly #clock: Clock;
  readonly #entries: Entry<W>[] = [];
  /** The outcomes being retried now. */
  #trying: readonly Entry<W>[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get list(): readonly RefusedOutcome[] {
    return [...this.#entries, ...this.#trying.filter(({ settling }) => !this.#has(settling))].map(
      ({ name, id, reason }) => ({ name, id, reason }),
    );
  }

  get waiting(): readonly Settling<W>[] {
    return this.#entries.map(({ settling }) => settling);
  }

  /** Milliseconds until the next retry. */
  get waitMs(): number {
    const first = Math.min(...this.#entries.map(({ dueAt }) => dueAt));
    return Math.max(0, first - this.#clock.monotonic());
  }

  /** Keeps an outcome, and returns the error to report. */
  add(settling: Settling<W>, problem: unknown): TidemillError {
    const { name, id } = settling.work;
    const tries = (settling.tries ?? 0) + 1;
    const waitMs = Math.min(FIRST_WAIT_MS * 2 ** (tries - 1), LONGEST_WAIT_MS);
    const reason = reasonOf(problem);
    const dueAt = this.#clock.monotonic() + waitMs;
    this.#entries.push({ name, id, reason, dueAt, settling: { ...settling, tries } });
    const message =
      `The database refuses the outcome of ${name} ${id}: ${reason} ` +
      `The outcome is kept and retried in ${String(waitMs / 1_000)} s; other work continues. Correct the rule or the document that causes this.`;
    return new TidemillError('OUTCOME_REFUSED', message, { cause: problem });
  }

  /** Retries the outcomes that are due, or `all`. `write` adds those that are refused again. */
  async retry(write: (batch: readonly Settling<W>[]) => Promise<void>, all = false): Promise<void> {
    const now = this.#clock.monotonic();
    this.#trying = this.#entries.filter(({ dueAt }) => all || dueAt <= now);
    for (const entry of this.#trying) this.#entries.splice(this.#entries.indexOf(entry), 1);
    if (this.#trying.length > 0) await write(this.#trying.map(({ settling }) => settling));
    this.#trying = [];
  }

  #has({ work }: Settling<W>): boolean {
    return this.#entries.some(
      ({ settling }) => settling.work.leaseToken === work.leaseToken && settling.work.id === work.id,
    );
  }
}
