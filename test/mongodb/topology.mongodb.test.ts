import { startMongo, startShardedMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { aMill, gate, until } from '../support/mills.js';
import { freshUri } from '../support/stores.js';

describe('a standalone MongoDB server', () => {
  it('a standalone server has no wake-ups: this is logged once, and polling finds the work', async () => {
    await using server = await startMongo({ standalone: true });
    const lines: string[] = [];
    const line = (_fields: object, message: string): void => void lines.push(message);
    const logger = { debug: line, info: line, warn: line, error: line };
    const uri = server.uri.replace('/?', '/app?');
    const worker = aMill(mongodb({ uri }), { logger, pollInterval: { min: 10, max: 50 } });
    const producer = aMill(mongodb({ uri }));
    worker.job('x', () => 'ran');
    await worker.start();
    for (let n = 0; n < 3; n += 1) {
      expect(await producer.jobs.result((await producer.enqueue('x', {})).id)).toBe('ran');
    }
    await until('it has given up listening', () => worker.health().wakeUp === 'poll');
    expect(worker.health()).toMatchObject({ wakeUp: 'poll', ok: true });
    expect(lines.filter((text) => text.includes('no wake-ups'))).toHaveLength(1);
    await Promise.all([worker.stop(), producer.stop()]);
  });
});

describe('a sharded MongoDB cluster', () => {
  it('a sharded collection keeps unique keys unique and runs every job exactly once', async () => {
    await using server = await startShardedMongo();
    const uri = server.uri.replace(/\/(\?|$)/u, '/app$1');
    const client = new MongoClient(uri);
    await client.db('admin').command({ enableSharding: 'app' });
    await client.db('admin').command({
      shardCollection: 'app.tidemill_jobs',
      key: { part: 1 },
    });
    // Two halves, one on each shard, so that both are really used.
    await client.db('admin').command({ split: 'app.tidemill_jobs', middle: { part: 2_048 } });
    const shards = (await client.db('admin').command({ listShards: 1 }))['shards'] as { _id: string }[];
    const primary = (
      await client
        .db('config')
        .collection('databases')
        .findOne({ _id: 'app' as never })
    )?.['primary'] as string;
    const other = shards.find((shard) => shard._id !== primary);
    await client
      .db('admin')
      .command({ moveChunk: 'app.tidemill_jobs', find: { part: 3_000 }, to: other?._id });
    const [a, b] = [aMill(mongodb({ uri })), aMill(mongodb({ uri }))];
    const runs = new Map<number, number>();
    const all = gate();
    for (const mill of [a, b]) {
      mill.job<number>('work', { concurrency: 20, retryPolicy: { type: 'fixed', interval: 0 } }, (job) => {
        if (job.data % 50 === 0 && job.attempt === 1) throw new Error('once');
        runs.set(job.data, (runs.get(job.data) ?? 0) + 1);
        if (runs.size === 1_000) all.open();
        return job.data;
      });
      mill.job('tick', () => undefined);
    }
    const jobs = await Promise.all(
      Array.from({ length: 200 }, () => a.enqueue('keyed', {}, { uniqueKey: 'one', delay: '1h' })),
    );
    expect(new Set(jobs.map((job) => job.id)).size).toBe(1);
    const items = Array.from({ length: 1_000 }, (_, data) => ({
      name: 'work',
      data,
      uniqueKey: `k${String(data)}`,
    }));
    await a.enqueueMany(items);
    const stored = await client
      .db('app')
      .collection('tidemill_jobs')
      .aggregate<{ shard: string; count: number }>([{ $collStats: { count: {} } }])
      .toArray();
    expect(stored.map(({ shard }) => shard).sort()).toEqual(shards.map(({ _id }) => _id).sort());
    // The part of a job is a hash of its name and key, so each half has about 500 of the 1,001 jobs.
    for (const { count } of stored) expect(count).toBeGreaterThan(400);
    expect(stored.reduce((sum, { count }) => sum + count, 0)).toBe(1_001);
    await a.start();
    await b.start();
    await all.promise;
    await until('all are recorded', async () => (await a.jobs.stats()).completed === 1_000);
    expect([...runs.values()].every((times) => times === 1)).toBe(true);
    await a.schedule('0 3 * * *', 'tick', { n: 1 });
    await a.schedule('0 4 * * *', 'tick', { n: 2 });
    expect(await a.schedules.list()).toMatchObject([{ name: 'tick', cron: '0 4 * * *', data: { n: 2 } }]);
    expect((await a.jobs.cancel(jobs[0]?.id ?? '')).outcome).toBe('cancelled');
    expect((await a.jobs.retry(jobs[0]?.id ?? '')).outcome).toBe('retried');
    const inside = await a.withTransaction((transaction) =>
      a.enqueue('keyed', {}, { uniqueKey: 'one', transaction }),
    );
    expect(inside.outcome).toBe('existing');
    expect((await a.jobs.find({ name: 'work' }, { limit: 100 })).items).toHaveLength(100);
    expect(await a.jobs.removeMany({ status: 'completed' })).toEqual({ count: 1_000 });
    await Promise.all([a.stop(), b.stop()]);
    await client.close();
  });
});

describe("a user's long transaction", () => {
  it('a transaction longer than the lease costs no other job its lease and commits on its first try', async () => {
    const client = new MongoClient(freshUri());
    // The proportions of the real thing (a lease of 30 s, a transaction of 55 s), at a tenth of its length.
    const mill = aMill(mongodb({ client }), { leaseDuration: '3s', concurrency: 60 });
    const rival = aMill(mongodb({ client }), { leaseDuration: '3s' });
    const lost: unknown[] = [];
    mill.on('lease:lost', (event) => lost.push(event));
    let [tries, runs] = [0, 0];
    const done = gate();
    mill.job('others', { concurrency: 50 }, async (job) => {
      runs += 1;
      await done.promise;
      return job.signal.aborted;
    });
    mill.job('exact', async (job) => {
      await client.withSession(async (session) => {
        await session.withTransaction(async () => {
          tries += 1;
          await client.db().collection('effects').insertOne({ job: job.id }, { session });
          await job.complete({ transaction: session, result: 'exact' });
          await new Promise((resolve) => setTimeout(resolve, 5_500));
        });
      });
    });
    await mill.start();
    rival.job('others', () => 'stolen');
    await rival.start();
    const others = await mill.enqueueMany(
      Array.from({ length: 40 }, () => ({ name: 'others', priority: 1 })),
    );
    const exact = await mill.enqueue('exact', {});
    expect(await mill.jobs.result(exact.id)).toBe('exact');
    done.open();
    const results = await Promise.all(others.map((job) => mill.jobs.result(job.id)));
    expect(results.filter((result) => result === true)).toEqual([]);
    expect([tries, lost.length]).toEqual([1, 0]);
    expect(runs + results.filter((result) => result === 'stolen').length).toBe(40);
    expect(await client.db().collection('effects').countDocuments()).toBe(1);
    expect(await mill.jobs.get(exact.id)).toMatchObject({ status: 'completed', failCount: 0 });
    await Promise.all([mill.stop(), rival.stop()]);
    await client.db().dropDatabase();
    await client.close();
  });
});
