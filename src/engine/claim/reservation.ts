import type { Clock } from '../../core/clock.js';
import type { Work } from '../../core/records/work.js';
import type { Claimant, Instance } from '../../store/port.js';
import type { LeaseKeeper } from '../lease/lease-keeper.js';

/** A slot for work that is about to be inserted as already claimed. Call either `fulfil` or `cancel`. */
export interface Reservation<W extends Work> {
  readonly claim: Claimant;
  /** The work was stored. Runs it, or hands it back if its name is paused or limited, the lease is lost or the engine stops. */
  fulfil(work: W): void;
  /** The work was not stored, or the outcome of the insert is unknown. */
  cancel(stored: 'not' | 'unknown'): void;
}

/** The engine, as its reservations see it. */
export interface ReservationHost<W extends Work> {
  launch(works: readonly W[]): void;
  /** Hands back work without using an attempt. */
  release(works: readonly W[]): void;
  giveSlotBack(name: string): void;
  /** The store may hold work for this instance that it does not know of. */
  suspect(): void;
}

export interface ReservationsOptions<W extends Work> {
  readonly host: ReservationHost<W>;
  readonly clock: Clock;
  readonly keeper: LeaseKeeper;
  readonly heartbeatMs: number;
  readonly stop: AbortSignal;
  readonly heldUp: (name: string) => Promise<boolean>;
  readonly error: (error: unknown) => void;
}

/** Work that is being inserted for a reserved slot, until it runs or is handed back. */
export class Reservations<W extends Work> {
  readonly #options: ReservationsOptions<W>;
  readonly #open = new Map<string, Promise<void>>();

  constructor(options: ReservationsOptions<W>) {
    this.#options = options;
  }

  ids(): Iterable<string> {
    return this.#open.keys();
  }

  /** Resolves once everything being inserted now runs or has been handed back. */
  async ended(): Promise<void> {
    await Promise.all(this.#open.values());
  }

  /** The caller must have taken a slot for the work. */
  open(name: string, id: string): Reservation<W> {
    const { host, clock, keeper, heartbeatMs } = this.#options;
    const claim = { instance: keeper.self, token: keeper.mint(), heartbeatMs };
    // Read in parallel to the insert, so it adds no latency. It sees any pause made before this call.
    const heldUp = this.#isHeldUp(name);
    let resolve = (): void => undefined;
    this.#open.set(id, new Promise<void>((ended) => (resolve = ended)));
    const end = (): void => {
      this.#open.delete(id);
      resolve();
    };
    return {
      claim,
      fulfil: (work) => {
        const starting = this.#start(work, claim.instance, heldUp).finally(end);
        clock.track?.(starting);
      },
      cancel: (stored) => {
        if (stored === 'unknown') host.suspect();
        host.giveSlotBack(name);
        end();
      },
    };
  }

  async #isHeldUp(name: string): Promise<boolean> {
    try {
      return await this.#options.heldUp(name);
    } catch (error) {
      this.#options.error(error);
      return true;
    }
  }

  async #start(work: W, instance: Instance, heldUp: Promise<boolean>): Promise<void> {
    const { host, keeper, stop } = this.#options;
    const mayNot = await heldUp;
    // Let the call that enqueued it return before the handler starts.
    await new Promise((resolve) => setImmediate(resolve));
    if (mayNot || stop.aborted || !keeper.held || keeper.self.life !== instance.life) {
      host.release([work]);
      host.giveSlotBack(work.name);
      return;
    }
    host.launch([work]);
  }
}
