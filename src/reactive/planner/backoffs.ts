import type { Clock } from '../../core/clock.js';

const FIRST_MS = 2_000;
const LONGEST_MS = 60_000;

interface Rest {
  readonly until: number;
  readonly lastsMs: number;
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
    const lastsMs = Math.min((this.#rests.get(name)?.lastsMs ?? FIRST_MS / 2) * 2, LONGEST_MS);
    this.#rests.set(name, { lastsMs, until: this.#clock.monotonic() + lastsMs, isOver: false });
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
