import type { Clock } from '../../core/clock.js';
import { reasonOf } from '../../core/errors.js';
import type { Logger } from '../../core/logger.js';
import { show } from '../../core/options.js';

/** After a line about a name, further failures of that name are only counted for this long. */
const QUIET_MS = 10_000;
/** Characters of an error's message in a line. */
const MOST_CHARACTERS = 500;

/** A failed attempt of a job or a reactive task. */
export interface FailedAttempt {
  readonly kind: 'job' | 'task';
  readonly name: string;
  readonly id: string;
  readonly attempt: number;
  readonly error: Error;
  /** When it is tried again; undefined if it failed for good. */
  readonly retryAt: Date | undefined;
  /** What an operator can do about a failure for good: a full sentence. */
  readonly advice: () => string;
}

interface Quiet {
  readonly kind: FailedAttempt['kind'];
  readonly until: number;
  leftOut: number;
}

/**
 * Logs failed attempts, for every kind of work: one line for work that failed for good, at level `error`, and one at
 * level `debug` for an attempt that is retried. A name has at most one line in ten seconds at level `error`; the next
 * one, or the last at a stop, says how many were left out.
 */
export class FailureLog {
  readonly #log: Logger;
  readonly #clock: Clock;
  readonly #quiet = new Map<string, Quiet>();

  constructor(log: Logger, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  failed({ kind, name, id, attempt, error, retryAt, advice }: FailedAttempt): void {
    const reason = shortened(reasonOf(error));
    const what = `${kind} ${show(name)} ${id}`;
    if (retryAt !== undefined) {
      const message = `${what} failed at attempt ${String(attempt)} and is tried again at ${retryAt.toISOString()}: ${reason}`;
      this.#log.debug({ [kind]: id, name, attempt, error }, message);
      return;
    }
    const now = this.#clock.monotonic();
    const key = `${kind} ${name}`;
    const quiet = this.#quiet.get(key);
    if (quiet !== undefined && now < quiet.until) {
      quiet.leftOut += 1;
      return;
    }
    const leftOut = quiet?.leftOut ?? 0;
    this.#quiet.set(key, { kind, until: now + QUIET_MS, leftOut: 0 });
    const more = leftOut === 0 ? '' : ` (${String(leftOut)} more of this name failed since the last line)`;
    this.#log.error(
      { [kind]: id, name, attempt, error, leftOut },
      `${what} failed for good at attempt ${String(attempt)}: ${reason} ${advice()}${more}`,
    );
  }

  /** Reports the failures that were only counted. */
  stop(): void {
    for (const [key, { kind, leftOut }] of this.#quiet) {
      const name = key.slice(kind.length + 1);
      if (leftOut > 0)
        this.#log.error(
          { name, leftOut },
          `${String(leftOut)} more of the ${kind} ${show(name)} failed for good`,
        );
    }
    this.#quiet.clear();
  }
}

/** One line, as a sentence. */
function shortened(reason: string): string {
  const line = reason.replaceAll(/\s+/gu, ' ').trim();
  const text = line.length > MOST_CHARACTERS ? `${line.slice(0, MOST_CHARACTERS)} …` : line;
  return /[.!?…]$/u.test(text) ? text : `${text}.`;
}
