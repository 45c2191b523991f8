import type { Clock } from '../../core/clock.js';
import { reasonOf } from '../../core/errors.js';

interface Trouble {
  readonly since: number;
  readonly reason: string;
}

/** Current planning problems, by the task or the database that they concern. */
export class Troubles {
  readonly #clock: Clock;
  readonly #open = new Map<string, Trouble>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  begin(about: string, problem: unknown): void {
    const since = this.#open.get(about)?.since ?? this.#clock.monotonic();
    this.#open.set(about, { since, reason: reasonOf(problem) });
  }

  end(about: string): void {
    this.#open.delete(about);
  }

  /** Describes the problems that have lasted at least this long. */
  olderThan(ms: number): readonly string[] {
    const latest = this.#clock.monotonic() - ms;
    return [...this.#open]
      .filter(([, { since }]) => since <= latest)
      .map(([about, { reason }]) => `${about}: ${reason}`);
  }
}
