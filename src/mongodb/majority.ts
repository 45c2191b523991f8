/**
 * Writes with a time limit. The server's limit also covers the wait for a majority, so a statement that ran into it may
 * have been written, and need not have been blocked by another transaction. For `$merge`, only running the statement
 * without a majority tells the two apart. Other writes report it in the write concern part of their error, along with
 * their result.
 */
import type { WriteConcernSettings } from 'mongodb';
import { StoreError } from '../core/errors.js';
import { isTimeLimit } from './errors.js';

interface Limit {
  readonly maxTimeMS: number;
  readonly writeConcern?: WriteConcernSettings;
}

/** Must be repeatable: it may run three times. */
type Statement = (limit: Limit) => Promise<unknown>;

/**
 * Runs a statement that fails with the server's time limit only if the statement itself takes longer than `limitMs`. If
 * it was written but not confirmed in that time, `made` reads its result from the error. The statement then runs again
 * without a limit: its precondition no longer holds, so it changes nothing and waits for the majority like any other
 * write.
 */
export async function writeOnce<T>(
  limitMs: number,
  statement: (limit: { readonly maxTimeMS?: number }) => Promise<T>,
  made: (error: unknown) => T | undefined,
): Promise<T> {
  try {
    return await statement({ maxTimeMS: limitMs });
  } catch (error) {
    const result = made(error);
    if (result === undefined) throw error;
    await statement({});
    return result;
  }
}

/** A confirmation faster than this means that the majority no longer lags. */
const PROMPT_MS = 1_000;

const lagging = (cause: unknown, waitedMs: number): StoreError =>
  new StoreError(
    `plan: a majority of the replica set has not confirmed a write within ${String(waitedMs)} ms; its secondaries lag.`,
    { cause, transient: true },
  );

/** One per store. Remembers from one statement to the next whether the majority lags. */
export class Majority {
  #lags = false;

  /**
   * Fails with the server's time limit only if the statement itself takes longer than `limitMs`. Then waits up to
   * `longestMs` for a majority: a resume point must not move past a write that a failover may undo.
   */
  async write(limitMs: number, longestMs: number, statement: Statement): Promise<void> {
    if (!this.#lags) {
      try {
        await statement({ maxTimeMS: limitMs });
        return;
      } catch (error) {
        if (!isTimeLimit(error)) throw error;
      }
    }
    await statement({ maxTimeMS: limitMs, writeConcern: { w: 1 } });
    await this.#confirm(longestMs, statement);
  }

  /** Runs the statement again. It does not repeat what is already written, but waits for a majority all the same. */
  async #confirm(longestMs: number, statement: Statement): Promise<void> {
    const began = performance.now();
    this.#lags = true;
    try {
      await statement({ maxTimeMS: longestMs });
    } catch (error) {
      throw isTimeLimit(error) ? lagging(error, longestMs) : error;
    }
    this.#lags = performance.now() - began >= PROMPT_MS;
  }
}
