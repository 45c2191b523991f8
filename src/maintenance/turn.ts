import { randomBytes } from 'node:crypto';
import type { LockStore } from '../store/port.js';

/** The next turn may begin this share of the period later: who comes on time must not find the last one still taken. */
const SHARE = 0.9;

/**
 * Work that is to be done about once per period in the whole cluster. Whoever comes first takes the turn, as a lock that
 * is not given back; if that process dies, another one takes the next turn.
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
