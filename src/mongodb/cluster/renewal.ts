import { systemClock, within } from '../../core/clock.js';
import { StoreError } from '../../core/errors.js';

const SHORTEST_MS = 1_000;
const LONGEST_MS = 10_000;

/**
 * The answer to a renewal, within a third of the lease: a connection that does not answer must leave time for another one. The
 * driver would wait for ever, and keeps that connection, so the next renewal goes to another.
 */
export async function renewal<T>(leaseMs: number, answer: Promise<T>): Promise<T> {
  const limitMs = Math.min(Math.max(leaseMs / 3, SHORTEST_MS), LONGEST_MS);
  if (await within(systemClock, limitMs, answer)) return answer;
  throw new StoreError(`renew: MongoDB did not answer within ${String(limitMs / 1_000)} s.`, {
    transient: true,
    outcomeUnknown: true,
  });
}
