import type { Clock, Timer, TimerOptions } from '../core/clock.js';
import { untilLoaded } from '../core/lazily.js';
import { checkDate } from '../core/options.js';
import { toMs, type Duration } from '../time/duration.js';
import { refuseFakeTimers } from './fake-timers.js';

interface Entry {
  readonly at: number;
  readonly serial: number;
  readonly callback: () => void;
  readonly housekeeping: boolean;
}

/** How long, in real time, to wait for work that waits for something outside this clock. */
const PATIENCE_MS = 25;
const BRIEF_TICKS = 30;
/** After so many turns of the event loop without progress, the next ones come a millisecond apart. */
const BUSY_TURNS = 20;

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const restingTurn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 1));

async function brieflyIdle(): Promise<void> {
  for (let tick = 0; tick < BRIEF_TICKS; tick += 1) await Promise.resolve();
}

export interface VirtualClock extends Clock {
  /**
   * Moves time forward. Timers that come due on the way fire in order, each at its own time. Resolves when the work
   * that they started has settled, or waits for something that this clock does not drive.
   */
  advance(duration: Duration): Promise<void>;
}

class Virtual implements VirtualClock {
  #now: number;
  #serial = 0;
  readonly #timers = new Set<Entry>();
  readonly #tracked = new Set<Promise<unknown>>();
  /** Tracked work that made no progress: it waits for the test itself, or for real time. */
  readonly #parked = new WeakSet<Promise<unknown>>();

  constructor(start: number) {
    this.#now = start;
  }

  now(): number {
    return this.#now;
  }

  monotonic(): number {
    return this.#now;
  }

  timer(delayMs: number, callback: () => void, { housekeeping = false }: TimerOptions = {}): Timer {
    const at = this.#now + Math.max(0, delayMs);
    const entry = { at, serial: (this.#serial += 1), callback, housekeeping };
    if (delayMs !== Infinity) this.#timers.add(entry);
    return { cancel: () => void this.#timers.delete(entry) };
  }

  track(work: Promise<unknown>): void {
    this.#tracked.add(work);
    const done = (): void => void this.#tracked.delete(work);
    work.then(done, done);
  }

  async advance(duration: Duration): Promise<void> {
    const target = this.#now + toMs('clock.advance', 'duration', duration);
    refuseFakeTimers('clock.advance');
    await this.#settle();
    do {
      const next = this.#first(target, false);
      this.#now = Math.max(this.#now, next?.at ?? target);
      await this.#keepHouse();
      // Housekeeping may have cancelled it.
      if (next === undefined || !this.#timers.delete(next)) continue;
      next.callback();
      await this.#settle();
    } while (this.#now < target || this.#first(target, false) !== undefined);
  }

  /** Fires the housekeeping timers whose time has come on the way to now. */
  async #keepHouse(): Promise<void> {
    for (let next = this.#first(this.#now, true); next !== undefined; next = this.#first(this.#now, true)) {
      this.#timers.delete(next);
      next.callback();
      await this.#settle();
    }
  }

  #first(until: number, housekeeping: boolean): Entry | undefined {
    let first: Entry | undefined;
    for (const entry of this.#timers) {
      if (entry.at > until || entry.housekeeping !== housekeeping) continue;
      if (
        first === undefined ||
        entry.at < first.at ||
        (entry.at === first.at && entry.serial < first.serial)
      )
        first = entry;
    }
    return first;
  }

  async #settle(): Promise<void> {
    // Most timers start no lasting work, and a month has very many of them: those settle within a few microtasks.
    await brieflyIdle();
    // Code that is loaded on first use is part of the work that asked for it, however long that takes.
    for (let loads = untilLoaded(); loads !== undefined; loads = untilLoaded()) {
      await loads;
      await brieflyIdle();
    }
    if (this.#tracked.size === 0) return;
    let giveUpAt = 0;
    let known = new Set<Promise<unknown>>();
    let idleTurns = 0;
    for (let quiet = 0; quiet < 2;) {
      await (idleTurns < BUSY_TURNS ? turn() : restingTurn());
      idleTurns += 1;
      const moving = [...this.#tracked].filter((work) => !this.#parked.has(work));
      // New work is progress, so the wait starts over.
      if (moving.some((work) => !known.has(work))) {
        giveUpAt = performance.now() + PATIENCE_MS;
        idleTurns = 0;
      }
      known = new Set(moving);
      quiet = moving.length === 0 ? quiet + 1 : 0;
      if (moving.length > 0 && performance.now() > giveUpAt) {
        for (const work of moving) this.#parked.add(work);
      }
    }
  }
}

/**
 * Creates a clock that stands still until `advance` is called; pass it to `memory({ clock })`. `start` defaults to
 * 1970.
 */
export function virtualClock(start: Date | string | number = 0): VirtualClock {
  return new Virtual(checkDate('virtualClock', 'start', new Date(start)).getTime());
}
