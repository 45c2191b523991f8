import type { ObjectId } from 'mongodb';
import { LockTakenError } from '../../index.js';
import { opening } from './connection.js';

export type LockKey = string | number | ObjectId;
export type LockCallback<T> = () => Promise<T>;

export interface WithLockOptions {
  /** Milliseconds to wait for a lock that is taken. Default: 3,000. */
  maxWaitForLock?: number;
  /** Has no effect: waiting begins with 25 ms and ends with 250. */
  startingDelay?: number;
  /** Milliseconds that the lock outlives a dead process, at least 500. Default: 15,000. */
  expireIn?: number;
}

const LEAST_LEASE_MS = 500;

export class LockAlreadyAcquiredError extends Error {
  readonly key: LockKey;

  constructor(key: LockKey, options?: ErrorOptions) {
    super(`The lock ${JSON.stringify(String(key))} is taken.`, options);
    this.name = 'LockAlreadyAcquiredError';
    this.key = key;
  }
}

export const isLockAlreadyAcquiredError = (error: unknown, key?: LockKey): boolean =>
  error instanceof LockAlreadyAcquiredError && (key === undefined || error.key === key);

/** Runs `callback` under a lock that one call in the cluster holds at a time. */
export async function withLock<T>(
  key: LockKey,
  callback: LockCallback<T>,
  { maxWaitForLock, expireIn }: WithLockOptions = {},
): Promise<T> {
  const { base } = opening();
  const options = {
    ...(maxWaitForLock === undefined ? {} : { wait: maxWaitForLock }),
    ...(expireIn === undefined ? {} : { lease: Math.max(LEAST_LEASE_MS, expireIn) }),
  };
  // The callback may take another lock, and fail to.
  type Held = { readonly value: T } | { readonly error: unknown };
  const work = (): Promise<Held> =>
    Promise.resolve()
      .then(callback)
      .then(
        (value) => ({ value }),
        (error: unknown) => ({ error }),
      );
  const held = await base.withLock(String(key), work, options).catch((error: unknown) => {
    throw error instanceof LockTakenError ? new LockAlreadyAcquiredError(key, { cause: error }) : error;
  });
  if ('error' in held) throw held.error;
  return held.value;
}
