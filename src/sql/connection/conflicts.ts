/**
 * The server has certainly rolled back a transaction that deadlocked or failed to serialize, so it is safe to run it
 * again.
 */
import { pause, systemClock } from '../../core/clock.js';
import type { Driver, Queryable } from './driver.js';
import { isConflict } from './errors.js';

/** Conflicts this many times in a row are more than bad luck. */
const TRIES = 10;
const LONGEST_PAUSE_MS = 20;

/** Runs a whole transaction again after a deadlock or a serialization failure. */
async function again<T>(transaction: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries += 1) {
    try {
      return await transaction();
    } catch (error) {
      if (tries === TRIES || !isConflict(error)) throw error;
    }
    // A random pause, so that the two transactions do not collide again.
    await pause(systemClock, Math.random() * LONGEST_PAUSE_MS);
  }
}

const retried = (on: Queryable): Queryable => ({
  query: (text, values) => again(() => on.query(text, values)),
});

/**
 * Wraps a driver so that its statements and transactions are retried after a conflict. Each statement is a transaction
 * of its own.
 */
export const withRetries = (driver: Driver): Driver => ({
  ...driver,
  ...retried(driver),
  prepared: retried(driver.prepared),
  unhurried: retried(driver.unhurried),
  vital: (limitMs) => retried(driver.vital(limitMs)),
  transaction: (work, pace) => again(() => driver.transaction(work, pace)),
  lend: (work) => again(() => driver.lend(work)),
});
