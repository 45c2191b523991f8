import { systemClock, within } from '../../core/clock.js';
import { StoreError } from '../../core/errors.js';
import { secondsText } from '../../core/text/seconds.js';

const SHORTEST_MS = 1_000;
const LONGEST_MS = 10_000;

/**
 * Waits a third of the lease for the response to a renewal, at least 1 s and at most 10 s: a dead connection must leave
 * time for a try on another one. The driver would wait forever, and keeps the dead connection busy, so the next renewal
 * goes to another.
 */
export async function renewal<T>(leaseMs: number, answer: Promise<T>): Promise<T> {
  const limitMs = Math.min(Math.max(leaseMs / 3, SHORTEST_MS), LONGEST_MS);
  if (await within(systemClock, limitMs, answer)) return answer;
  throw new StoreError(`renew: MongoDB did not answer within ${secondsText(limitMs)}.`, {
    transient: true,
    outcomeUnknown: true,
  });
}
