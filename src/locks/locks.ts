import { within } from '../core/clock.js';
import { TidemillError } from '../core/errors.js';
import { checkFunction, checkKeys, checkName, show } from '../core/options.js';
import type { Holding } from './holding.js';
import type { LockContext } from './lock-hold.js';
import { loadHolding } from './parts.js';
import type { Store } from '../store/port.js';
import { toMs, type Duration } from '../time/duration.js';

export interface LockOptions {
  /** How long to wait for a lock that is taken; 0 = do not wait. Default: '3s'. */
  readonly wait?: Duration;
  /** How long the lock outlives a dead process; at least 500 ms. Renewed while the function runs. Default: '15s'. */
  readonly lease?: Duration;
}

interface LockSettings {
  readonly waitMs: number;
  readonly leaseMs: number;
}

const LEAST_LEASE_MS = 500;
/** How long functions have to react to their signal at the end of a stop. */
const LAST_GRACE_MS = 500;

function checkLock(key: unknown, work: unknown, options: LockOptions = {}): LockSettings {
  const where = `withLock(${show(key)})`;
  checkName(where, 'key', key);
  checkFunction(where, 'the second argument', work);
  checkKeys(where, options, ['wait', 'lease']);
  const { wait = '3s', lease = '15s' } = options;
  return {
    waitMs: toMs(where, 'wait', wait),
    leaseMs: toMs(where, 'lease', lease, LEAST_LEASE_MS),
  };
}

/** One call of `withLock`: first it waits for the lock, then it holds it. */
interface Call extends Holding {
  ended: Promise<unknown>;
}

/** The `withLock` calls of this mill, so that `stop` can wait for them. */
export class Locks {
  readonly #store: () => Promise<Store>;
  readonly #instanceId: string;
  readonly #fault: (error: unknown, where: string) => void;
  readonly #calls = new Set<Call>();

  constructor(
    store: () => Promise<Store>,
    instanceId: string,
    fault: (error: unknown, where: string) => void,
  ) {
    this.#store = store;
    this.#instanceId = instanceId;
    this.#fault = fault;
  }

  async with<T>(key: string, work: (lock: LockContext) => T | Promise<T>, options?: LockOptions): Promise<T> {
    const settings = checkLock(key, work, options);
    const call: Call = { waiting: new AbortController(), ended: Promise.resolve() };
    const running = this.#run(call, key, work, settings).finally(() => this.#calls.delete(call));
    call.ended = running;
    this.#calls.add(call);
    return running;
  }

  /**
   * Gives all calls `timeoutMs` to end. Then rejects the calls that still wait and aborts the signals of the others.
   * New calls are accepted meanwhile, since handlers may need them in order to end.
   */
  async stop(timeoutMs: number): Promise<void> {
    if (!(await this.#idle(timeoutMs))) {
      for (const call of this.#calls) this.#refuse(call);
      for (const call of this.#calls) call.hold?.stop();
      await this.#idle(LAST_GRACE_MS);
    }
  }

  /** Ends the calls that are left after a stop: those that wait are rejected, and held locks are no longer renewed. */
  abandon(): void {
    for (const call of this.#calls) this.#refuse(call);
    for (const call of this.#calls) call.hold?.abandon();
  }

  #refuse(call: Call): void {
    call.waiting.abort(new TidemillError('STOPPED', 'The mill was stopped while waiting for a lock.'));
  }

  async #run<T>(
    call: Call,
    key: string,
    work: (lock: LockContext) => T | Promise<T>,
    settings: LockSettings,
  ): Promise<T> {
    const [store, { holdLock }] = await Promise.all([this.#store(), loadHolding()]);
    return holdLock(store, call, {
      key,
      work,
      ...settings,
      instanceId: this.#instanceId,
      error: this.#fault,
    });
  }

  /** Resolves to true when no call is left, or to false after `limitMs`. */
  async #idle(limitMs: number): Promise<boolean> {
    if (this.#calls.size === 0) return true;
    // The open calls have opened the store, or are about to.
    const store = await this.#store().catch(() => undefined);
    return store !== undefined && within(store.clock, limitMs, this.#allEnded());
  }

  async #allEnded(): Promise<void> {
    while (this.#calls.size > 0) await Promise.allSettled([...this.#calls].map(({ ended }) => ended));
  }
}
