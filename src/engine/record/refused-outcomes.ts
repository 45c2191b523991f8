import { Backoff } from '../../core/backoff.js';
import type { Clock } from '../../core/clock.js';
import { reasonOf, TidemillError } from '../../core/errors.js';
import { secondsText } from '../../core/text/seconds.js';

const RETRY_MS = { min: 2_000, max: 60_000 };

/** An outcome on its way to the store. It is replaced if it is decided again, or made smaller. */
export interface Entry<T> {
  outcome: T;
}

/** An outcome that the database refuses, as `health()` reports it. */
export interface RefusedOutcome {
  readonly name: string;
  readonly id: string;
  readonly reason: string;
}

interface Refused<T> extends RefusedOutcome {
  readonly entry: Entry<T>;
  readonly dueAt: number;
}

/**
 * Outcomes that the database refuses because of a validator, a constraint or a missing privilege. Each is retried with
 * backoff, after 2 s at first and every minute at last. Meanwhile this instance keeps holding the work, so it neither
 * runs again nor gets lost.
 */
export class RefusedOutcomes<T> {
  readonly #clock: Clock;
  readonly #nameOf: (outcome: T) => { readonly name: string; readonly id: string };
  readonly #refused: Refused<T>[] = [];
  readonly #retries = new WeakMap<Entry<T>, Backoff>();
  /** The outcomes being retried now. */
  #trying: readonly Refused<T>[] = [];

  constructor(clock: Clock, nameOf: (outcome: T) => { readonly name: string; readonly id: string }) {
    this.#clock = clock;
    this.#nameOf = nameOf;
  }

  get list(): readonly RefusedOutcome[] {
    const kept = new Set(this.waiting);
    return [...this.#refused, ...this.#trying.filter(({ entry }) => !kept.has(entry))].map(
      ({ name, id, reason }) => ({ name, id, reason }),
    );
  }

  get waiting(): readonly Entry<T>[] {
    return this.#refused.map(({ entry }) => entry);
  }

  /** Milliseconds until the next retry. */
  get waitMs(): number {
    const first = Math.min(...this.#refused.map(({ dueAt }) => dueAt));
    return Math.max(0, first - this.#clock.monotonic());
  }

  /** Keeps an outcome, and returns the error to report. */
  add(entry: Entry<T>, problem: unknown): TidemillError {
    const { name, id } = this.#nameOf(entry.outcome);
    const retry = this.#retries.get(entry) ?? new Backoff(RETRY_MS);
    this.#retries.set(entry, retry);
    const waitMs = retry.next();
    const reason = reasonOf(problem);
    this.#refused.push({ name, id, reason, entry, dueAt: this.#clock.monotonic() + waitMs });
    const message =
      `The database refuses the outcome of ${name} ${id}: ${reason} ` +
      `The outcome is kept and retried in ${secondsText(waitMs)}; other work continues. Correct the rule or the document that causes this.`;
    return new TidemillError('OUTCOME_REFUSED', message, { cause: problem });
  }

  /** Retries the outcomes that are due, or `all`. `write` adds those that are refused again. */
  async retry(write: (batch: readonly Entry<T>[]) => Promise<void>, all = false): Promise<void> {
    const now = this.#clock.monotonic();
    this.#trying = this.#refused.filter(({ dueAt }) => all || dueAt <= now);
    for (const one of this.#trying) this.#refused.splice(this.#refused.indexOf(one), 1);
    if (this.#trying.length > 0) await write(this.#trying.map(({ entry }) => entry));
    this.#trying = [];
  }
}
