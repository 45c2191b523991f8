import type { Clock } from '../../core/clock.js';
import { reasonOf } from '../../core/errors.js';

interface Trouble {
  readonly since: number;
  readonly reason: string;
}

/** What goes wrong with planning, for as long as it does: by the task or the database that it is about. */
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

  /** Those that are older than this, in words. */
  olderThan(ms: number): readonly string[] {
    const latest = this.#clock.monotonic() - ms;
    return [...this.#open]
      .filter(([, { since }]) => since <= latest)
      .map(([about, { reason }]) => `${about}: ${reason}`);
  }
}
