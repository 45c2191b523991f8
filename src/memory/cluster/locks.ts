import type { Clock } from '../../core/clock.js';
import type { LockAnswer, LockManner, LockOwner, LockStore } from '../../store/port.js';

interface Held {
  readonly owner: LockOwner;
  readonly fence: number;
  readonly leaseUntil: number;
}

export class MemoryLocks implements LockStore {
  readonly #clock: Clock;
  readonly #held = new Map<string, Held>();
  /** One counter for all keys: it grows for each of them, so that free keys need not be remembered. */
  #fence = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  acquire(
    key: string,
    owner: LockOwner,
    leaseMs: number,
    { patient = false }: LockManner = {},
  ): Promise<LockAnswer> {
    const now = this.#clock.now();
    const held = this.#held.get(key);
    const mine = held?.owner.token === owner.token;
    const expired = held !== undefined && held.leaseUntil <= now;
    if (held !== undefined && !mine && (patient || !expired))
      return Promise.resolve({ heldBy: held.owner.instanceId, ...(patient ? { expired } : {}) });
    const fence = mine ? held.fence : (this.#fence += 1);
    this.#held.set(key, { owner, fence, leaseUntil: now + leaseMs });
    return Promise.resolve({ fence });
  }

  renew(key: string, owner: LockOwner, leaseMs: number): Promise<'renewed' | 'lost'> {
    const held = this.#held.get(key);
    if (held?.owner.token !== owner.token) return Promise.resolve('lost');
    this.#held.set(key, { ...held, leaseUntil: this.#clock.now() + leaseMs });
    return Promise.resolve('renewed');
  }

  release(key: string, owner: LockOwner): Promise<'released' | 'lost'> {
    if (this.#held.get(key)?.owner.token !== owner.token) return Promise.resolve('lost');
    this.#held.delete(key);
    return Promise.resolve('released');
  }
}
