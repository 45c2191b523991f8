import type { Document } from 'mongodb';
import type { LockOwner, LockStore } from '../../store/port.js';
import { literal, run, type GlobalDocument, type Mongo } from '../context.js';
import { isDuplicate } from '../errors.js';
import { renewal } from './renewal.js';

/**
 * A lock is one document of the globals collection, `{ _id, kind: 'lock', token, heldBy, leaseUntil, fence }`. After
 * its release it keeps only its fence and the time of the release; a week later, the `tidemill_locks` index deletes it.
 */
const idOf = (key: string): string => `lock:${key}`;

const leaseUntil = (leaseMs: number): Document => ({ $add: ['$$NOW', leaseMs] });

/**
 * The fence number counts up from that of the last holder, whatever the clocks do. It starts at the server's time, so
 * that a lock whose document was deleted meanwhile continues above its earlier numbers.
 */
const NEXT_FENCE: Document = { $max: [{ $add: ['$fence', 1] }, { $toLong: '$$NOW' }] };

/**
 * Takes a lock that is free or already mine, and leaves any other as it is. The condition is in the pipeline because
 * the filter of an upsert cannot use `$$NOW`. A `patient` caller does not take a lock whose lease has merely expired.
 */
function take({ instanceId, token }: LockOwner, leaseMs: number, patient: boolean): Document[] {
  const mine = { $eq: ['$token', literal(token)] };
  const released = { $eq: [{ $type: '$token' }, 'missing'] };
  const over = { $lte: ['$leaseUntil', '$$NOW'] };
  const taken = {
    kind: 'lock',
    token: literal(token),
    heldBy: literal(instanceId),
    leaseUntil: leaseUntil(leaseMs),
    fence: { $cond: [mine, '$fence', NEXT_FENCE] },
  };
  const mayTake = { $or: [mine, released, ...(patient ? [] : [over])] };
  return [{ $replaceWith: { $cond: [mayTake, { $mergeObjects: ['$$ROOT', taken] }, '$$ROOT'] } }];
}

/** Two first callers of a key may both insert its document; the loser finds it on its second try. */
async function upserted(mongo: Mongo, key: string, update: Document[]): Promise<GlobalDocument | null> {
  const attempt = (): Promise<GlobalDocument | null> =>
    mongo.globals.findOneAndUpdate({ _id: idOf(key) }, update, { upsert: true, returnDocument: 'after' });
  try {
    return await attempt();
  } catch (error) {
    if (!isDuplicate(error)) throw error;
    return attempt();
  }
}

export function lockStore(mongo: () => Mongo): LockStore {
  const change = async (key: string, { token }: LockOwner, update: Document[]): Promise<boolean> => {
    const { matchedCount } = await mongo().globals.updateOne({ _id: idOf(key), token }, update);
    return matchedCount === 1;
  };

  return {
    acquire: (key, owner, leaseMs, { patient = false } = {}) =>
      run('acquire a lock', async () => {
        const row = await upserted(mongo(), key, take(owner, leaseMs, patient));
        if (row?.['token'] === owner.token) return { fence: Number(row['fence']) };
        const heldBy = String(row?.['heldBy']);
        if (!patient) return { heldBy };
        return { heldBy, expired: Number(row?.['leaseUntil']) <= mongo().clock.now() };
      }),
    renew: (key, owner, leaseMs) =>
      run('renew a lock', async () =>
        (await renewal(leaseMs, change(key, owner, [{ $set: { leaseUntil: leaseUntil(leaseMs) } }])))
          ? 'renewed'
          : 'lost',
      ),
    release: (key, owner) =>
      run('release a lock', async () => {
        const free = [{ $set: { leaseUntil: '$$NOW' } }, { $unset: ['token', 'heldBy'] }];
        return (await change(key, owner, free)) ? 'released' : 'lost';
      }),
  };
}
