/**
 * Statements that write, in a limited time. The server's limit also covers the wait until a majority has the write, so a
 * statement that took too long may have been written, and may stand behind nobody. For `$merge`, only a statement that asks for
 * no majority tells; other writes tell by the error's write concern part, with what they came to.
 */
import type { WriteConcernSettings } from 'mongodb';
import { StoreError } from '../core/errors.js';
import { isTimeLimit } from './errors.js';

interface Limit {
  readonly maxTimeMS: number;
  readonly writeConcern?: WriteConcernSettings;
}

/** Repeatable: it may be run three times. */
type Statement = (limit: Limit) => Promise<unknown>;

/**
 * Runs a statement that fails by the server's time limit only if it takes longer than `limitMs` by itself. `made` reads from
 * the error what a statement came to that was written and not confirmed in that time. Then it is run again, without a limit:
 * its precondition holds no more, so it changes nothing, and waits for the majority as other writes do.
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

/** A majority that is this fast again does not lag. */
const PROMPT_MS = 1_000;

const lagging = (cause: unknown, waitedMs: number): StoreError =>
  new StoreError(
    `plan: a majority of the replica set has not confirmed a write within ${String(waitedMs)} ms; its secondaries lag.`,
    { cause, transient: true },
  );

/** One per store: whether the majority lags is learnt from one statement for the next. */
export class Majority {
  #lags = false;

  /**
   * Fails by the server's time limit only where the statement itself takes longer than `limitMs`. The write counts only
   * once a majority has it, which is waited for up to `longestMs`: a resume point must not pass what a failover may undo.
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

  /** What is written already is not written again, and a majority is waited for all the same. */
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
