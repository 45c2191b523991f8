import { Backoff } from '../core/backoff.js';
import { pause, type Clock } from '../core/clock.js';
import { LockTakenError, StoreError } from '../core/errors.js';
import { show } from '../core/options.js';
import type { LockOwner, LockStore } from '../store/port.js';

export interface LockRequest {
  readonly store: LockStore;
  readonly clock: Clock;
  readonly key: string;
  readonly owner: LockOwner;
  readonly leaseMs: number;
  readonly waitMs: number;
}

export interface AcquiredLock {
  readonly fence: number;
  /** Monotonic time of the request. The lease counts from here, so it ends here before it ends in the store. */
  readonly sentAt: number;
}

/** A lock is taken over this long after its lease was seen expired. A live holder that was cut off renews it sooner. */
const TAKE_OVER_MS = 1_000;
const RETRY_MS = { min: 25, max: 250, jitter: true };

/**
 * Tries to acquire the lock until it succeeds or `waitMs` has passed. If a response is lost, the request is repeated
 * with the same owner, which finds a lock that the first one took. Rejects with the reason of `stop` once it aborts.
 *
 * A database outage ends the leases of live holders, too. So an expired lock is taken over only after it has been seen
 * expired for `TAKE_OVER_MS`, even if that takes longer than `waitMs`.
 */
export async function waitForLock(request: LockRequest, stop: AbortSignal): Promise<AcquiredLock> {
  const { clock, waitMs } = request;
  const endAt = clock.monotonic() + waitMs;
  let expiredAt: number | undefined;
  for (const retry = new Backoff(RETRY_MS); ;) {
    const patient = expiredAt === undefined || clock.monotonic() - expiredAt < TAKE_OVER_MS;
    const attempt = ask(request, patient);
    clock.track?.(attempt);
    const answer = await attempt;
    stop.throwIfAborted();
    if ('fence' in answer) return answer;
    expiredAt = answer.expired ? (expiredAt ?? clock.monotonic()) : undefined;
    const leftMs = Math.max(endAt, (expiredAt ?? -Infinity) + TAKE_OVER_MS) - clock.monotonic();
    if (leftMs <= 0 && expiredAt === undefined) throw answer.error;
    await pause(clock, Math.min(Math.max(0, leftMs), retry.next()), stop);
    stop.throwIfAborted();
  }
}

/** Why the lock was not acquired, if a retry may succeed. */
interface Refusal {
  readonly error: LockTakenError | StoreError;
  /** The lease of its holder has ended. */
  readonly expired: boolean;
}

async function ask(request: LockRequest, patient: boolean): Promise<AcquiredLock | Refusal> {
  const { store, clock, key, owner, leaseMs } = request;
  const sentAt = clock.monotonic();
  try {
    const answer = await store.acquire(key, owner, leaseMs, { patient });
    if ('heldBy' in answer) return { error: taken(request, answer.heldBy), expired: answer.expired === true };
    if (clock.monotonic() - sentAt < leaseMs) return { fence: answer.fence, sentAt };
    const message = `The lock ${show(key)} was acquired, but its lease of ${leaseMs} ms ended before the store answered. Set a longer \`lease\`.`;
    return { error: new StoreError(message, { transient: true }), expired: false };
  } catch (error) {
    if (error instanceof StoreError && error.transient) return { error, expired: false };
    throw error;
  }
}

function taken({ key, owner, waitMs }: LockRequest, heldBy: string): LockTakenError {
  const waited = waitMs > 0 ? ` and did not release it within ${waitMs} ms` : '';
  const fix =
    heldBy === owner.instanceId
      ? 'That is this instance: locks are not re-entrant, and calls of one instance exclude each other, too.'
      : 'Try again later, or set a longer `wait`.';
  return new LockTakenError(`The lock ${show(key)} is taken: ${heldBy} holds it${waited}. ${fix}`, {
    key,
    heldBy,
  });
}
