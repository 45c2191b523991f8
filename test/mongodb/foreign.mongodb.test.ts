import { Long, MongoClient, ObjectId, type MongoClientOptions } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { aMill, gate, until } from '../support/mills.js';
import type { NewJob } from '../../src/store/port.js';
import { aClaim, aJob, anInstance, done, opened } from '../support/port.js';
import { freshUri, rawClient } from '../support/stores.js';

/** A job as another program writes it: no version, no priority, no lease fields. */
const byHand = (fields: object): object => ({
  data: { reportType: 'sales' },
  status: 'pending',
  nextRunAt: new Date(Date.now() - 1_000),
  lockedAt: null,
  failCount: 0,
  createdAt: new Date(),
  updatedAt: new Date(),
  ...fields,
});

describe('jobs written by other programs on MongoDB', () => {
  it('runs a job written by hand with priority 0', async () => {
    const uri = freshUri();
    const jobs = rawClient(uri).db().collection('tidemill_jobs');
    const mill = aMill(mongodb({ uri }), { concurrency: 1 });
    const order: unknown[] = [];
    const all = gate();
    mill.job<{ reportType?: string; n?: number }>('report', { concurrency: 1 }, (job) => {
      order.push(job.data.reportType ?? job.data.n);
      if (order.length === 3) all.open();
    });
    await mill.enqueue('report', { n: -10 }, { priority: -10 });
    await mill.enqueue('report', { n: 1 }, { priority: 1 });
    const { insertedId } = await jobs.insertOne(byHand({ name: 'report' }));
    await mill.start();
    await all.promise;
    await mill.stop();
    expect(order).toEqual([1, 'sales', -10]);
    expect(await mill.jobs.get(insertedId.toHexString())).toMatchObject({
      status: 'completed',
      priority: 0,
      failCount: 0,
    });
  });

  it('polling finds a job written by hand while the instance is idle', async () => {
    const uri = freshUri();
    const jobs = rawClient(uri).db().collection('tidemill_jobs');
    const mill = aMill(mongodb({ uri }), { pollInterval: { min: 20, max: 100 } });
    mill.job('report', () => 'ran');
    await mill.start();
    const { insertedId } = await jobs.insertOne(byHand({ name: 'report' }));
    expect(await mill.jobs.result(insertedId.toHexString())).toBe('ran');
  });

  it('continues a recurring job written by hand', async () => {
    const uri = freshUri();
    const jobs = rawClient(uri).db().collection('tidemill_jobs');
    const mill = aMill(mongodb({ uri }));
    mill.job('daily', () => undefined);
    const { insertedId } = await jobs.insertOne(byHand({ name: 'daily', repeatInterval: '0 0 * * *' }));
    await mill.start();
    const job = await until('it waits for its next run', async () => {
      const now = await mill.jobs.get(insertedId.toHexString());
      return now?.history?.length === 1 && now;
    });
    expect(job.status).toBe('pending');
    expect([job.nextRunAt.getUTCHours(), job.nextRunAt > new Date()]).toEqual([0, true]);
    expect(await mill.schedules.list()).toMatchObject([{ name: 'daily', cron: '0 0 * * *' }]);
  });

  it('reclaims a job that an older program left only after it has been silent long enough', async () => {
    const uri = freshUri();
    const jobs = rawClient(uri).db().collection('tidemill_jobs');
    const ago = (seconds: number): Date => new Date(Date.now() - seconds * 1_000);
    const processing = { name: 'sync', status: 'processing' };
    const { insertedIds } = await jobs.insertMany([
      byHand({ ...processing, lockedAt: ago(100), uniqueKey: 'old' }),
      byHand({ ...processing, lockedAt: ago(60), uniqueKey: 'young' }),
      byHand({ ...processing, lockedAt: ago(1_000), lastHeartbeat: ago(10), uniqueKey: 'beating' }),
      byHand({ ...processing, lockedAt: ago(150), heartbeatInterval: 60_000, uniqueKey: 'slow' }),
    ]);
    const mill = aMill(mongodb({ uri }), { leaseDuration: 500 });
    mill.job('sync', (job) => job.attempt);
    await mill.start();
    expect(await mill.jobs.result(String(insertedIds[0]))).toBe(2);
    expect(await mill.jobs.count({ status: 'processing' })).toBe(3);
  });

  it('leaves jobs of a later schema version alone, logs it once, and runs the others', async () => {
    const uri = freshUri();
    const jobs = rawClient(uri).db().collection('tidemill_jobs');
    const lines: string[] = [];
    const line = (_fields: object, message: string): void => void lines.push(message);
    const mill = aMill(mongodb({ uri }), { logger: { debug: line, info: line, warn: line, error: line } });
    mill.job('x', () => 'ran');
    await jobs.insertMany(Array.from({ length: 3 }, () => byHand({ v: 2, name: 'x', priority: 10 })));
    await mill.start();
    expect(await mill.jobs.result((await mill.enqueue('x', {})).id)).toBe('ran');
    await until('it is said', () => lines.some((text) => text.includes('newer schema version')));
    expect(await jobs.countDocuments({ v: 2, status: 'pending' })).toBe(3);
    expect(lines.filter((text) => text.includes('newer schema version'))).toHaveLength(1);
  });

  it('accepts ObjectId hex strings and any other text as job ids', async () => {
    const mill = aMill(mongodb({ uri: freshUri() }));
    const hex = new ObjectId().toHexString();
    for (const id of [hex, 'order:1', 'ÄÖ.$x', 'ABCDEF0123456789ABCDEF01']) {
      expect((await mill.enqueue('x', {}, { id, delay: '1h' })).id).toBe(id);
      expect((await mill.enqueue('x', {}, { id, delay: '1h' })).outcome).toBe('existing');
      expect((await mill.jobs.get(id))?.id).toBe(id);
    }
  });
});

describe('retention on MongoDB', () => {
  it('gives each job of a batch the retention of its own name', async () => {
    const uri = freshUri();
    const jobs = rawClient(uri).db().collection('tidemill_jobs');
    const mill = aMill(mongodb({ uri }), { concurrency: 10 });
    const [both, finish] = [gate(), gate()];
    let running = 0;
    const handler = async (): Promise<void> => {
      running += 1;
      if (running === 2) both.open();
      await finish.promise;
    };
    mill.job('brief', { retention: { completed: '1m' } }, handler);
    mill.job('lasting', { retention: { completed: '30d' } }, handler);
    await mill.enqueueMany([{ name: 'brief' }, { name: 'lasting' }]);
    await mill.start();
    await both.promise;
    finish.open();
    await until('both are recorded', async () => (await mill.jobs.stats()).completed === 2);
    const kept = await jobs.find().sort({ name: 1 }).toArray();
    const days = kept.map(
      (job) => (job['expiresAt'] as Date).getTime() - (job['finishedAt'] as Date).getTime(),
    );
    expect(days).toEqual([60_000, 30 * 86_400_000]);
  });
});

describe("the user's own MongoClient", () => {
  const odd = {
    'promoted values': { ignoreUndefined: false, promoteBuffers: false, useBigInt64: true },
    'values as they are': { ignoreUndefined: false, promoteBuffers: true, promoteValues: false },
  } as const;
  const oddClient = (options: MongoClientOptions): MongoClient =>
    new MongoClient(`${freshUri()}&readPreference=secondaryPreferred&w=1&retryWrites=false`, options);

  it.each(Object.entries(odd))(
    "a store on the user's client ignores its options (%s) and does not close it",
    async (_what, options) => {
      const client = oddClient(options);
      const mill = aMill(mongodb({ client }));
      mill.job<{ n: number; gone?: string; at: Date }>('x', (job) => ({
        n: job.data.n + 1,
        at: job.data.at,
      }));
      await mill.start();
      const at = new Date();
      const job = await mill.enqueue('x', { n: 41, gone: undefined, at });
      expect(await mill.jobs.result(job.id)).toEqual({ n: 42, at });
      expect((await mill.jobs.get(job.id))?.data).toEqual({ n: 41, at });
      await mill.stop();
      expect(await client.db().command({ ping: 1 })).toMatchObject({ ok: 1 });
      await client.db().dropDatabase();
      await client.close();
    },
  );

  it.each(Object.entries(odd))(
    "reactive tasks on the user's client ignore its options (%s)",
    async (_what, options) => {
      const client = oddClient(options);
      const mill = aMill(mongodb({ client }), { concurrency: 1 });
      const errors: Error[] = [];
      mill.on('error', ({ error }) => errors.push(error));
      const seen: unknown[] = [];
      await mill.reactiveTask({
        task: 'sync',
        collection: 'things',
        debounce: 0,
        handler: async ({ docId, watchedValues, getDocument }) => {
          seen.push([docId, watchedValues, await getDocument()]);
        },
      });
      await mill.start();
      const things = client.db().collection<{ _id: Long; n: Long; at: Date }>('things');
      const at = new Date();
      for (const n of [1, 2]) {
        await things.updateOne(
          { _id: Long.fromNumber(7) },
          { $set: { n: Long.fromNumber(n), at } },
          { upsert: true },
        );
        await until('it has run', () => seen.length === n);
        const document = { _id: 7, n, at };
        expect(seen[n - 1]).toEqual([7, document, document]);
      }
      await until(
        'it is recorded',
        async () => (await mill.tasks.get('sync', Long.fromNumber(7)))?.status === 'completed',
      );
      expect(errors).toEqual([]);
      await mill.stop();
      await client.db().dropDatabase();
      await client.close();
    },
  );

  it('keeps the unique key and the time limit of a job written by hand', async () => {
    const uri = freshUri();
    const jobs = rawClient(uri).db().collection('tidemill_jobs');
    const mill = aMill(mongodb({ uri }), { pollInterval: { min: '20ms', max: '100ms' } });
    await mill.enqueue('report', {}, { delay: '1h' });
    const late = byHand({
      name: 'report',
      uniqueKey: 'k',
      startBy: new Date(Date.now() - 1),
      priority: 99.5,
    });
    const { insertedId } = await jobs.insertOne(late);
    await expect(jobs.insertOne(byHand({ name: 'report', uniqueKey: 'k' }))).rejects.toMatchObject({
      code: 11_000,
    });
    mill.job('report', () => undefined);
    const expired = gate<{ job: { id: string } }>();
    mill.on('job:expire', expired.open);
    await mill.start();
    expect((await expired.promise).job.id).toBe(insertedId.toHexString());
    expect(await mill.jobs.get(insertedId.toHexString())).toMatchObject({ failReason: 'expired' });
  });

  it('releases a successor that was left waiting, by a crash or by a program that knows none', async () => {
    const uri = freshUri();
    const jobs = rawClient(uri).db().collection('tidemill_jobs');
    const store = await opened(mongodb({ uri }));
    const replace = (data: number): NewJob =>
      aJob({
        data,
        uniqueKey: 'k',
        onExisting: { kind: 'replace' },
        nextRunAt: new Date(Date.now() - 1_000),
      });
    await store.jobs.insert([replace(1)]);
    const { jobs: claimed } = await store.jobs.claim(aClaim(anInstance()));
    const [successor] = await store.jobs.insert([replace(2)]);
    expect(await store.jobs.releaseSuccessors?.()).toBe(0);
    // Stored, but not marked yet: the producer dies here.
    await jobs.updateOne({ uniqueKey: 'k' }, { $unset: { followed: '' } });
    expect(await store.jobs.settle(claimed.map((job) => done(job)))).toEqual(['settled']);
    // The next call finds the successor, replaces it, and releases it.
    expect(await store.jobs.insert([replace(3)])).toMatchObject([{ outcome: 'replaced' }]);
    const next = await store.jobs.claim(aClaim(anInstance()));
    expect(next.jobs.map(({ id, data }) => [id, data])).toEqual([[successor?.job.id, 3]]);
    await store.jobs.insert([replace(4)]);
    await jobs.updateOne({ status: 'processing' }, { $set: { status: 'completed' } });
    expect(await store.jobs.releaseSuccessors?.()).toBe(1);
    expect((await store.jobs.claim(aClaim(anInstance()))).jobs.map(({ data }) => data)).toEqual([4]);
  });

  it('rejects a URI without a database', async () => {
    const uri = freshUri().replace(/\/test_\w+\?/u, '/?');
    await expect(aMill(mongodb({ uri })).enqueue('x')).rejects.toThrow('no database');
  });

  it('mills that share a store open it together, and it closes with the last one', async () => {
    const store = mongodb({ uri: freshUri() });
    const [a, b] = [aMill(store), aMill(store)];
    await a.enqueue('x', {});
    await b.enqueue('x', {});
    await a.stop();
    expect(await b.jobs.count({ name: 'x' })).toBe(2);
    await b.stop();
    expect(await a.jobs.count({ name: 'x' })).toBe(2);
  });
});
