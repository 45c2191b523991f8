import { randomBytes } from 'node:crypto';
import type { Document } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { LeaseLostError, StoreError } from '../../src/index.js';
import { mongodb } from '../../src/mongodb/index.js';
import { clusterPipeline, wholePipeline } from '../../src/mongodb/jobs/claim/peek.js';
import type { LockOwner } from '../../src/store/port.js';
import { behindProxy } from '../support/flaky-proxy.js';
import { aMill, gate, until } from '../support/mills.js';
import { opened } from '../support/port.js';
import { freshUri, rawClient } from '../support/stores.js';

const anOwner = (instanceId: string): LockOwner => ({ instanceId, token: randomBytes(12).toString('hex') });
const isLockRequest = (request: Buffer): boolean =>
  request.includes('findAndModify') && request.includes('lock:');

describe('withLock on MongoDB', () => {
  it('withLock excludes other processes, so that no update is lost', async () => {
    const uri = freshUri();
    const numbers = rawClient(uri).db().collection<{ _id: string; n: number }>('numbers');
    await numbers.insertOne({ _id: 'counter', n: 0 });
    const mills = [aMill(mongodb({ uri })), aMill(mongodb({ uri }))];
    const increment = async (): Promise<void> => {
      const found = await numbers.findOne({ _id: 'counter' });
      await numbers.updateOne({ _id: 'counter' }, { $set: { n: found!.n + 1 } });
    };
    const callers = Array.from({ length: 20 }, (_, n) =>
      mills[n % 2]!.withLock('counter', increment, { wait: '50s' }),
    );
    await Promise.all(callers);
    expect(await numbers.findOne({ _id: 'counter' })).toMatchObject({ n: 20 });
  });

  it('withLock acquires the lock although the responses to its writes were lost', async () => {
    const { proxy, uri, direct } = await behindProxy();
    const globals = rawClient(direct).db().collection<Document & { _id: string }>('_tidemill_globals');
    const mill = aMill(mongodb({ uri }), { instanceId: 'unlucky' });
    await mill.withLock('other', () => undefined);
    // More often than the driver repeats by itself.
    let left = 5;
    proxy.picky = (request) => isLockRequest(request) && (left -= 1) >= 0;
    const row = await mill.withLock(
      'k',
      async ({ fence }) => {
        const found = await globals.findOne({ _id: 'lock:k' });
        expect(found).toMatchObject({ kind: 'lock', heldBy: 'unlucky', fence });
        return found;
      },
      { wait: '25s' },
    );
    expect(proxy.lost).toBeGreaterThanOrEqual(5);
    expect(await globals.findOne({ _id: 'lock:k' })).toEqual({
      _id: 'lock:k',
      kind: 'lock',
      fence: row!['fence'] as number,
      leaseUntil: expect.any(Date) as Date,
    });
  });

  it('a lock taken by an unanswered request belongs to the same owner only', async () => {
    const { proxy, uri, direct } = await behindProxy();
    const unlucky = await opened(mongodb({ uri }));
    const other = await opened(mongodb({ uri: direct }));
    const owner = anOwner('unlucky');
    proxy.picky = isLockRequest;
    const error: unknown = await unlucky.locks
      .acquire('k', owner, 60_000)
      .catch((problem: unknown) => problem);
    expect(error).toBeInstanceOf(StoreError);
    expect(error).toMatchObject({ transient: true, outcomeUnknown: false });
    proxy.picky = undefined;
    expect(await other.locks.acquire('k', anOwner('other'), 60_000)).toEqual({ heldBy: 'unlucky' });
    expect(await until('it is answered', () => unlucky.locks.acquire('k', owner, 60_000))).toHaveProperty(
      'fence',
    );
  });

  it('withLock aborts its signal when the database is down for a whole lease, and frees the lock', async () => {
    const { proxy, uri, direct } = await behindProxy();
    const mill = aMill(mongodb({ uri }));
    mill.on('error', () => undefined);
    const running = gate();
    const call = mill.withLock(
      'k',
      async ({ signal }) => {
        running.open();
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        return 'did not notice';
      },
      { lease: 900 },
    );
    call.catch(() => undefined);
    await running.promise;
    proxy.lose = Infinity;
    await expect(call).rejects.toBeInstanceOf(LeaseLostError);
    proxy.lose = 0;
    expect(await aMill(mongodb({ uri: direct })).withLock('k', () => 'free', { wait: '20s' })).toBe('free');
  });

  it("a lock's lease follows the server's clock", async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    const store = await opened(mongodb({ uri }));
    const serverTime = async (): Promise<number> =>
      ((await client.db().admin().command({ hello: 1 }))['localTime'] as Date).getTime();
    const before = await serverTime();
    await store.locks.acquire('k', anOwner('me'), 60_000);
    const after = await serverTime();
    const row = await client.db().collection<{ _id: string }>('_tidemill_globals').findOne({ _id: 'lock:k' });
    const leaseFrom = ((row as Document)['leaseUntil'] as Date).getTime() - 60_000;
    expect(leaseFrom).toBeGreaterThanOrEqual(before);
    expect(leaseFrom).toBeLessThanOrEqual(after);
  });

  it("fence numbers grow even after the lock's document was deleted, and beyond any clock", async () => {
    const uri = freshUri();
    const globals = rawClient(uri).db().collection<Document & { _id: string }>('_tidemill_globals');
    const mill = aMill(mongodb({ uri }));
    const fenceOf = (): Promise<number> => mill.withLock('k', ({ fence }) => fence);
    const first = await fenceOf();
    await globals.deleteOne({ _id: 'lock:k' });
    // Fences by the clock have a resolution of milliseconds.
    await until('time has passed', async () => {
      const { localTime } = await globals.db.admin().command({ hello: 1 });
      return (localTime as Date).getTime() > first;
    });
    expect(await fenceOf()).toBeGreaterThan(first);
    await globals.updateOne({ _id: 'lock:k' }, { $set: { fence: Number.MAX_SAFE_INTEGER - 10 } });
    expect(await fenceOf()).toBe(Number.MAX_SAFE_INTEGER - 9);
    expect(await fenceOf()).toBe(Number.MAX_SAFE_INTEGER - 8);
  });

  it('20,000 old locks cost other queries nothing', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    const globals = client.db().collection<Document & { _id: string }>('_tidemill_globals');
    const mill = aMill(mongodb({ uri }));
    mill.job('x', () => 'ran');
    await mill.start();
    const old = Array.from({ length: 20_000 }, (_, n) => ({
      _id: `lock:old-${String(n)}`,
      kind: 'lock',
      fence: n,
      leaseUntil: new Date(),
    }));
    await globals.insertMany(old);
    for (const [pipeline, found] of [
      [wholePipeline, 1],
      [clusterPipeline, 0],
    ] as const) {
      const [match] = pipeline as [{ $match: Document }];
      const look = await globals.find(match.$match).explain('executionStats');
      const stats = look['executionStats'] as Document;
      expect(stats['nReturned']).toBe(found);
      expect(stats['totalDocsExamined']).toBe(found);
      expect(stats['totalKeysExamined']).toBeLessThanOrEqual(8);
    }
    const tasks = await globals.find({ kind: 'definition' }).explain('executionStats');
    expect((tasks['executionStats'] as Document)['totalDocsExamined']).toBe(0);
    const { id } = await mill.enqueue('x');
    expect(await mill.jobs.result(id)).toBe('ran');
    expect(await mill.withLock('old-7', ({ fence }) => fence)).toBeGreaterThan(7);
  });

  it('locks have a TTL index that expires them a week after their lease', async () => {
    const uri = freshUri();
    await opened(mongodb({ uri }));
    const indexes = await rawClient(uri).db().collection('_tidemill_globals').indexes();
    // Registered instances have a leaseUntil too: they are not for this index.
    expect(indexes.find(({ name }) => name === 'tidemill_locks')).toMatchObject({
      key: { leaseUntil: 1 },
      expireAfterSeconds: 604_800,
      partialFilterExpression: { kind: 'lock' },
    });
  });
});
