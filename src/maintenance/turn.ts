import { randomBytes } from 'node:crypto';
import type { LockStore } from '../store/port.js';

/** The lock is held for this share of the period, so that it is free when the next turn begins on time. */
const SHARE = 0.9;

/**
 * Coordinates work to be done about once per period in the whole cluster. The first instance to ask takes the turn,
 * with a lock that is never released but expires. If that process dies, another one takes the next turn.
 */
export function clusterTurn(
  locks: Pick<LockStore, 'acquire'>,
  instanceId: string,
  what: string,
): (periodMs: number) => Promise<boolean> {
  return async (periodMs) => {
    const owner = { instanceId, token: randomBytes(12).toString('hex') };
    const answer = await locks.acquire(`tidemill:${what}`, owner, periodMs * SHARE);
    return 'fence' in answer;
  };
}
