/** What a call of `withLock` needs, and a process that takes no locks does without. */
import { randomBytes } from 'node:crypto';
import { LockTakenError } from '../core/errors.js';
import type { Store } from '../store/port.js';
import { LockHold, type LockContext, type LockHoldOptions } from './lock-hold.js';
import { waitForLock, type LockRequest } from './lock-wait.js';

/** A call as `stop` sees it. */
export interface Holding {
  /** Aborted to end the wait. */
  readonly waiting: AbortController;
  /** There once the call has the lock. */
  hold?: LockHold;
}

interface HoldOptions<T>
  extends Pick<LockRequest, 'key' | 'waitMs' | 'leaseMs'>, Pick<LockHoldOptions, 'error'> {
  readonly instanceId: string;
  readonly work: (lock: LockContext) => T | Promise<T>;
}

/** Waits for the lock, then holds it while `work` runs. */
export async function holdLock<T>(
  { locks, clock }: Store,
  call: Holding,
  { key, work, waitMs, leaseMs, instanceId, error: report }: HoldOptions<T>,
): Promise<T> {
  const owner = { instanceId, token: randomBytes(12).toString('hex') };
  const request = { store: locks, clock, key, owner, leaseMs };
  const { signal } = call.waiting;
  try {
    const acquired = await waitForLock({ ...request, waitMs }, signal);
    // A stop that aborts at this moment saw a waiting call, so the call must not go on to hold the lock.
    signal.throwIfAborted();
    call.hold = new LockHold({ ...request, error: report }, acquired);
  } catch (error) {
    // A request without a response may have taken the lock; release it.
    if (!(error instanceof LockTakenError)) {
      const released = locks.release(key, owner).catch(() => undefined);
      // During a stop, wait for it: the store closes afterwards, and the lock would stay taken until its lease ends.
      if (signal.aborted) await released;
    }
    throw error;
  }
  const running = call.hold.run(work);
  clock.track?.(running);
  return running;
}
