/** Transactions that met another one were rolled back by the server, for certain, and are run again. */
import { pause, systemClock } from '../../core/clock.js';
import type { Driver, Queryable } from './driver.js';
import { isConflict } from './errors.js';

/** A transaction that meets another one, this often in a row, is up against more than bad luck. */
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
    // At random, so that two that met do not meet again.
    await pause(systemClock, Math.random() * LONGEST_PAUSE_MS);
  }
}

const retried = (on: Queryable): Queryable => ({
  query: (text, values) => again(() => on.query(text, values)),
});

/** A driver whose statements and transactions are run again after a conflict. Each statement is a transaction by itself. */
export const withRetries = (driver: Driver): Driver => ({
  ...driver,
  ...retried(driver),
  prepared: retried(driver.prepared),
  unhurried: retried(driver.unhurried),
  vital: (limitMs) => retried(driver.vital(limitMs)),
  transaction: (work, pace) => again(() => driver.transaction(work, pace)),
  lend: (work) => again(() => driver.lend(work)),
});
