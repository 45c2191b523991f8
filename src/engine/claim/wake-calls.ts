import type { Clock, Timer } from '../../core/clock.js';
import type { DueNames, Hint } from '../../store/port.js';
import type { Place } from '../lease/lease-watch.js';

/** The claim loop, as wake-ups see it. */
interface CalledLoop {
  /** Monotonic time at which the last peek was sent. */
  readonly peekedAt: number;
  hint(hint: Hint): void;
  /** More may be due than there is room for. */
  remember(): void;
  /** Ends the wait: peek before the next claim. */
  peekNext(): void;
}

export interface WakeCallsOptions {
  readonly lanes: { has(name: string): boolean; roomFor(): (name: string) => boolean };
  readonly loop: CalledLoop;
  readonly notify: () => void;
  readonly clock: Clock;
  readonly place: () => Place;
  /** True if the store never loses a wake-up, so that nothing is polled. */
  readonly isDirect: () => boolean;
}

/** In a cluster of up to this many instances, all that are idle claim at once. */
const FEW = 4;
/** How many more than there are jobs claim at once: one of those whose turn it is may be busy. */
const SPARE = 1;
/** How many further instances peek a little later: all those that claimed may be busy, or dead. */
const BACKUP = 3;
const LATER_MS = { min: 50, max: 150 };
/** The shortest time between two such peeks. */
const BACKUP_EVERY_MS = 1_000;

/**
 * Decides what a wake-up means for this instance. It does nothing if it runs none of the names. If it has no free slot
 * for them, it claims as soon as one is free. Otherwise, about as many instances claim as there are jobs: those whose
 * turn it is, by the id of the job and by their place among the instances that run the same names. The poll finds what
 * all of them left.
 */
export class WakeCalls {
  readonly #options: WakeCallsOptions;
  #later: Timer | undefined;
  #backupAt = -Infinity;

  constructor(options: WakeCallsOptions) {
    this.#options = options;
  }

  /** A wake-up from the store. Without `due`, anything may be due. */
  heard(hint?: Hint, due?: DueNames): void {
    const open = due === undefined ? undefined : this.#open(due.keys());
    if (due === undefined || open === undefined) this.#now(hint);
    else if (open.length > 0) this.#answer(hint, due, open);
  }

  /** This process has stored work of these names. */
  stored(names: Iterable<string>): void {
    if (this.#open(names).length > 0) this.#options.notify();
  }

  stop(): void {
    this.#later?.cancel();
  }

  /** The names among these for which there is room. If this instance runs some and has room for none, remembers that. */
  #open(names: Iterable<string>): readonly string[] {
    const { lanes, loop } = this.#options;
    const own = [...names].filter((name) => lanes.has(name));
    if (own.length === 0) return own;
    const hasRoom = lanes.roomFor();
    const open = own.filter(hasRoom);
    if (open.length === 0) loop.remember();
    return open;
  }

  #answer(hint: Hint | undefined, due: DueNames, open: readonly string[]): void {
    const place = this.#options.place();
    const turns = open.map((name) => turnOf(place, `${String(hint?.key)} ${name}`) - (due.get(name) ?? 1));
    const turn = Math.min(...turns);
    if (this.#options.isDirect() || place.of <= FEW || turn < SPARE) this.#now(hint);
    else if (turn < SPARE + BACKUP) this.#peekLater();
  }

  #now(hint: Hint | undefined): void {
    const { loop, notify } = this.#options;
    if (hint !== undefined) loop.hint(hint);
    notify();
  }

  #peekLater(): void {
    const { clock, loop } = this.#options;
    const calledAt = clock.monotonic();
    if (this.#later !== undefined || calledAt - this.#backupAt < BACKUP_EVERY_MS) return;
    const waitMs = LATER_MS.min + Math.round(Math.random() * (LATER_MS.max - LATER_MS.min));
    this.#later = clock.timer(waitMs, () => {
      this.#later = undefined;
      if (loop.peekedAt > calledAt) return;
      this.#backupAt = clock.monotonic();
      loop.peekNext();
    });
  }
}

/** This instance's turn, from 0, for a job. Each job begins with another instance. */
function turnOf({ rank, of }: Place, job: string): number {
  let hash = 0;
  for (let at = 0; at < job.length; at += 1) hash = (Math.imul(hash, 31) + job.charCodeAt(at)) >>> 0;
  return (rank + hash) % of;
}
