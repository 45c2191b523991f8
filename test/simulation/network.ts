import { StoreError } from '../../src/core/errors.js';
import type { SimulatedProcess } from './process.js';
import type { Random } from './random.js';
import type { Scheduler } from './scheduler.js';

/** How bad the network of a run is: how often each fault happens to a call. */
export interface Weather {
  /** The request never arrives. */
  readonly dropped: number;
  /** It is carried out, and its response never arrives. */
  readonly unanswered: number;
  /** The caller gives up, and it is carried out afterwards. */
  readonly late: number;
  /** It takes long, but arrives in time. */
  readonly slow: number;
}

export const CALM: Weather = { dropped: 0, unanswered: 0, late: 0, slow: 0 };

type Fate = 'ok' | 'dropped' | 'unanswered' | 'late';

const QUICK_MS = 4;
const SLOW_MS = 900;
/** After this long a caller gives up. */
const PATIENCE_MS = 1_500;
const LATE_MS = 8_000;
/** What a leader calls when it goes through a whole collection. */
const CHORES: ReadonlySet<string> = new Set(
  ['documents', 'size', 'known', 'clean', 'unmatch', 'reprocess'].map((chore) => `planning.${chore}`),
);
const CHORE_MS = 1_400;

/** Carries calls between processes and the store, and loses some. */
export class Network {
  readonly #scheduler: Scheduler;
  readonly #random: Random;
  weather: Weather = CALM;
  /** The store is unreachable for all processes until then. */
  downUntil = -Infinity;
  /** Each step of a chore takes long until then. */
  choresSlowUntil = -Infinity;
  /** The caller of the call that arrives at this moment has given up on it. */
  isLate = false;

  constructor(scheduler: Scheduler, random: Random) {
    this.#scheduler = scheduler;
    this.#random = random;
  }

  call<T>(from: SimulatedProcess, what: string, work: () => Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      const fate = this.#fate();
      const give = (callback: () => void, outcome: string) => (): void =>
        from.deliver(() => {
          this.#scheduler.trace.add(`${String(this.#scheduler.now)} ${from.name} ${what} ${outcome}`);
          callback();
        });
      const fail = (outcomeUnknown: boolean): void => {
        const error = new StoreError(`${what}: no answer.`, { transient: true, outcomeUnknown });
        this.#scheduler.after(
          PATIENCE_MS,
          give(() => reject(error), 'failed'),
        );
      };
      const arrive = (): void => {
        if (fate === 'dropped' || !this.#reaches(from)) {
          if (fate !== 'late') fail(true);
          return;
        }
        this.#scheduler.trace.add(`${String(this.#scheduler.now)} ${from.name} ${what} arrives`);
        const answer = (callback: () => void): void => {
          if (fate === 'late') return;
          this.#scheduler.after(this.#delay(what), () => {
            if (fate === 'unanswered' || !this.#reaches(from)) fail(true);
            else give(callback, 'answered')();
          });
        };
        this.isLate = fate === 'late';
        work().then(
          (value) => answer(() => resolve(value)),
          (error: unknown) => answer(() => reject(asError(error))),
        );
      };
      if (fate === 'late') fail(true);
      this.#scheduler.after(
        fate === 'late' ? this.#random.between(PATIENCE_MS, LATE_MS) : this.#delay(),
        arrive,
      );
    });
  }

  /** A notification of the store; it may be lost. */
  tell(to: SimulatedProcess, callback: () => void): void {
    if (this.#fate() === 'dropped' || !this.#reaches(to)) return;
    this.#scheduler.after(this.#delay(), () => {
      if (this.#reaches(to)) to.deliver(callback);
    });
  }

  /** The last call of a dead process may still be under way. */
  #reaches(process: SimulatedProcess): boolean {
    const { now } = this.#scheduler;
    return now >= this.downUntil && now >= process.cutUntil && (!process.isDead || this.#random.chance(0.5));
  }

  #fate(): Fate {
    const { dropped, unanswered, late } = this.weather;
    const roll = this.#random.next();
    if (roll < dropped) return 'dropped';
    if (roll < dropped + unanswered) return 'unanswered';
    return roll < dropped + unanswered + late ? 'late' : 'ok';
  }

  #delay(what?: string): number {
    if (what !== undefined && CHORES.has(what) && this.#scheduler.now < this.choresSlowUntil)
      return this.#random.between(CHORE_MS / 4, CHORE_MS);
    return this.#random.between(1, this.#random.chance(this.weather.slow) ? SLOW_MS : QUICK_MS);
  }
}

const asError = (error: unknown): Error => (error instanceof Error ? error : new Error(String(error)));
