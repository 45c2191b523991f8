import type { Clock } from '../../core/clock.js';
import type { Work } from '../../core/records/work.js';
import type { Claimant, Instance } from '../../store/port.js';
import type { LeaseKeeper } from '../lease/lease-keeper.js';

/** A slot for work that is about to be stored as claimed already. Either end of it gives the slot back. */
export interface Reservation<W extends Work> {
  readonly claim: Claimant;
  /** It was stored: it runs, unless its name is paused or the instance is ending; then it goes back. */
  fulfil(work: W): void;
  /** It was not stored, or nobody knows. */
  cancel(stored: 'not' | 'unknown'): void;
}

export interface ReservationsOptions<W extends Work> {
  readonly clock: Clock;
  readonly keeper: LeaseKeeper;
  readonly heartbeatMs: number;
  readonly stop: AbortSignal;
  readonly paused: (name: string) => Promise<boolean>;
  readonly run: (work: W) => void;
  readonly release: (work: W) => void;
  readonly giveSlotBack: (name: string) => void;
  /** The store may hold work for this instance of which nobody here knows. */
  readonly suspect: () => void;
  readonly error: (error: unknown) => void;
}

/** Work that is being stored for a slot of this instance, from the promise of the slot until it runs or goes back. */
export class Reservations<W extends Work> {
  readonly #options: ReservationsOptions<W>;
  readonly #open = new Map<string, Promise<void>>();

  constructor(options: ReservationsOptions<W>) {
    this.#options = options;
  }

  ids(): Iterable<string> {
    return this.#open.keys();
  }

  /** Until everything that is being stored now runs or has gone back. */
  async ended(): Promise<void> {
    await Promise.all(this.#open.values());
  }

  /** For a slot that the caller has taken. */
  open(name: string, id: string): Reservation<W> {
    const { clock, keeper, heartbeatMs, giveSlotBack, suspect } = this.#options;
    const claim = { instance: keeper.self, token: keeper.mint(), heartbeatMs };
    // Asked beside the insert, so it costs no time: a pause that was made before this call is seen.
    const paused = this.#isPaused(name);
    let resolve = (): void => undefined;
    this.#open.set(id, new Promise<void>((ended) => (resolve = ended)));
    const end = (): void => {
      this.#open.delete(id);
      resolve();
    };
    return {
      claim,
      fulfil: (work) => {
        const starting = this.#start(work, claim.instance, paused).finally(end);
        clock.track?.(starting);
      },
      cancel: (stored) => {
        if (stored === 'unknown') suspect();
        giveSlotBack(name);
        end();
      },
    };
  }

  async #isPaused(name: string): Promise<boolean> {
    try {
      return await this.#options.paused(name);
    } catch (error) {
      this.#options.error(error);
      return true;
    }
  }

  async #start(work: W, instance: Instance, paused: Promise<boolean>): Promise<void> {
    const { keeper, stop, run, release, giveSlotBack } = this.#options;
    const mayNot = await paused;
    // Whoever asked for it has the answer before the handler begins.
    await new Promise((resolve) => setImmediate(resolve));
    if (mayNot || stop.aborted || !keeper.held || keeper.self.life !== instance.life) {
      release(work);
      giveSlotBack(work.name);
      return;
    }
    run(work);
  }
}
