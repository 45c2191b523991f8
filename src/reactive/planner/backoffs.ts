import { Backoff } from '../../core/backoff.js';
import type { Clock } from '../../core/clock.js';

/** For planning that the store's transient errors interrupt. */
export const RETRY_MS = { min: 100, max: 5_000 };
/** For a task that fails for a reason of its own. */
const REST_MS = { min: 2_000, max: 60_000 };

interface Rest {
  readonly backoff: Backoff;
  readonly until: number;
  isOver: boolean;
}

/** Backoff by name after an error: 2 s at first, twice as long each time, 60 s at most. */
export class Backoffs {
  readonly #clock: Clock;
  readonly #rests = new Map<string, Rest>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  begin(name: string): void {
    const { backoff } = this.#rests.get(name) ?? { backoff: new Backoff(REST_MS) };
    this.#rests.set(name, { backoff, until: this.#clock.monotonic() + backoff.next(), isOver: false });
  }

  /** Called after a success: the next backoff is short again. */
  end(name: string): void {
    this.#rests.delete(name);
  }

  /** Ends the backoffs whose time is over. Until this is called, a name keeps resting. */
  wake(): void {
    const now = this.#clock.monotonic();
    for (const rest of this.#rests.values()) rest.isOver ||= rest.until <= now;
  }

  isResting(name: string): boolean {
    return this.#rests.get(name)?.isOver === false;
  }

  /** Milliseconds until the first backoff of these names may end; Infinity if there is none. */
  nextIn(names: Iterable<string>): number {
    const now = this.#clock.monotonic();
    const open = [...names].flatMap((name) => this.#rests.get(name) ?? []).filter(({ isOver }) => !isOver);
    return Math.min(Infinity, ...open.map(({ until }) => Math.max(0, until - now)));
  }
}
