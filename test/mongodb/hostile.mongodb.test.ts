import { MongoClient } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { Handover } from '../../src/maintenance/handover.js';
import { Reclaimer } from '../../src/maintenance/reclaimer.js';
import { aMill, gate, until } from '../support/mills.js';
import { aClaim, aJob, anInstance, opened } from '../support/port.js';
import { freshUri, rawClient } from '../support/stores.js';

const plain = {
  data: {},
  status: 'pending',
  failCount: 0,
  lockedAt: null,
  createdAt: new Date(),
  updatedAt: new Date(),
};

describe('hostile input and open transactions on MongoDB', () => {
  it('runs jobs written by hand with invalid priorities', async () => {
    const uri = freshUri();
    const jobs = rawClient(uri).db().collection('tidemill_jobs');
    const mill = aMill(mongodb({ uri }));
    mill.job('x', () => 'ran');
    const odd = [Date.now(), Number.NaN, -1e300, 'high', 2.6];
    await jobs.insertMany(odd.map((priority) => ({ ...plain, name: 'x', priority, nextRunAt: new Date() })));
    await mill.start();
    await until('all have run', async () => (await mill.jobs.count({ status: 'completed' })) === odd.length);
  });

  it('runs jobs with ids of any type on several instances', async () => {
    const uri = freshUri();
    const jobs = rawClient(uri).db().collection<{ _id: unknown }>('tidemill_jobs');
    const ids = [42, { order: 1 }, { order: 2 }, new Date(), 'text'];
    await jobs.insertMany(ids.map((_id) => ({ ...plain, _id, name: 'x', nextRunAt: new Date() })));
    const [a, b] = [aMill(mongodb({ uri })), aMill(mongodb({ uri }))];
    for (const mill of [a, b]) mill.job('x', () => 'ran');
    await a.start();
    await b.start();
    await a.enqueueMany(Array.from({ length: 20 }, () => ({ name: 'x' })));
    await until('all have run', async () => (await a.jobs.count({ status: 'completed' })) === 25);
  });

  it('a process that resumes from a pause takes no work from instances it has not seen yet', async () => {
    const store = await opened(mongodb({ uri: freshUri() }));
    const [old, young] = [anInstance(), anInstance()];
    const registration = { names: ['x'], tasks: [], policies: {}, host: 'h', pid: 1, leaseMs: 60_000 };
    const recovered: unknown[] = [];
    const jobs = new Handover({
      store: store.jobs,
      clock: store.clock,
      runner: {
        conclude: () => {
          throw new Error('nothing is to be handed on');
        },
        isLastAttempt: () => false,
      },
      engine: { unknown: () => undefined },
      host: {
        recovered: (works) => void recovered.push(works),
        error: (error) => void recovered.push(error),
      },
    });
    const reclaimer = new Reclaimer({
      store: store,
      leaseMs: 50,
      detector: { observe: () => undefined, waitMs: ({ leftMs }) => leftMs, graceMs: 0 },
      host: {
        self: old,
        handovers: [jobs],
        mayBury: () => Promise.resolve(true),
        drop: () => Promise.resolve(),
        dropUnregistered: () => Promise.resolve(),
        error: (error) => void recovered.push(error),
      },
    });
    await store.instances.register({ ...old, ...registration });
    reclaimer.observe(await store.instances.list());
    // While it was frozen, another instance started, and has held its work for longer than a lease.
    await store.instances.register({ ...young, ...registration });
    await store.jobs.insert([aJob({ name: 'x' })]);
    await store.jobs.claim(aClaim(young, { names: ['x'] }));
    await new Promise((resolve) => setTimeout(resolve, 100));
    reclaimer.start();
    await new Promise((resolve) => setTimeout(resolve, 300));
    await reclaimer.stop();
    expect(recovered).toEqual([]);
  });

  it("hands on a dead process's other jobs while an open transaction blocks one of them", async () => {
    const client = new MongoClient(freshUri());
    const store = await opened(mongodb({ client }));
    const dead = anInstance();
    const registration = { names: ['x'], tasks: [], policies: {}, host: 'h', pid: 1, leaseMs: 500 };
    await store.instances.register({ ...dead, ...registration });
    await store.jobs.insert([0, 1, 2].map((data) => aJob({ name: 'x', data })));
    const { jobs } = await store.jobs.claim(aClaim(dead, { names: ['x'] }));
    const [held] = jobs;
    const session = client.startSession();
    session.startTransaction();
    await client
      .db()
      .collection('tidemill_jobs')
      .updateOne({ _id: held?.key as never }, { $set: { status: 'completed' } }, { session });
    const mill = aMill(store, { leaseDuration: '1s' });
    const ran: unknown[] = [];
    mill.job('x', (job) => ran.push(job.data));
    await mill.start();
    await until('the neighbours have run', () => ran.length === 2);
    expect(ran).not.toContain(held?.data);
    await session.abortTransaction();
    await until('it has run, too', () => ran.length === 3);
    await session.endSession();
    await mill.stop();
    await client.close();
  });

  it('emits no job:complete for a transaction that was aborted after its job was taken over', async () => {
    const client = new MongoClient(freshUri());
    const [a, b] = [aMill(mongodb({ client }), { instanceId: 'a' }), aMill(mongodb({ client }))];
    const told: string[] = [];
    for (const mill of [a, b]) mill.on('job:complete', () => told.push(mill.instanceId));
    const jobs = client.db().collection('tidemill_jobs');
    const tried = gate();
    a.job('exact', async (job) => {
      await client.withSession(async (session) => {
        session.startTransaction();
        await job.complete({ transaction: session });
        await session.abortTransaction();
      });
      // Another instance has taken it over meanwhile, as after a lost lease.
      await jobs.updateOne({ name: 'exact' }, { $set: { leaseToken: 'other.1', claimedBy: 'other' } });
      tried.open();
      throw new Error('aborted');
    });
    await a.start();
    const { id } = await a.enqueue('exact', {});
    await tried.promise;
    await until('its attempt is over', () => a.health().running === 0);
    expect(told).toEqual([]);
    expect((await b.jobs.get(id))?.status).toBe('processing');
    await Promise.all([a.stop(), b.stop()]);
    await client.close();
  });

  it('a transaction longer than the lease commits on its first try if complete() is its last write', async () => {
    const client = new MongoClient(freshUri());
    const mill = aMill(mongodb({ client }), { leaseDuration: '2s' });
    let tries = 0;
    mill.job('exact', { transactional: true }, async (job) => {
      job.log('held back until the end');
      await client.withSession((session) =>
        session.withTransaction(async () => {
          tries += 1;
          await client.db().collection('effects').insertOne({ job: job.id }, { session });
          await new Promise((resolve) => setTimeout(resolve, 3_500));
          await job.complete({ transaction: session, result: 'exact' });
        }),
      );
    });
    await mill.start();
    const job = await mill.enqueue('exact', {});
    expect(await mill.jobs.result(job.id)).toBe('exact');
    expect(tries).toBe(1);
    await mill.stop();
    await client.db().dropDatabase();
    await client.close();
  });

  it('complete() rejects a session without an open transaction', async () => {
    const client = new MongoClient(freshUri());
    const mill = aMill(mongodb({ client }));
    const retryPolicy = { type: 'fixed', interval: 0, maxAttempts: 1 } as const;
    mill.job('exact', { retryPolicy }, (job) =>
      client.withSession((session) => job.complete({ transaction: session })),
    );
    await mill.start();
    const job = await mill.enqueue('exact', {});
    await expect(mill.jobs.result(job.id)).rejects.toThrow('this session has no open transaction');
    expect(await mill.jobs.get(job.id)).toMatchObject({ status: 'failed', failCount: 1 });
    await mill.stop();
    await client.close();
  });

  it('enqueue() rejects a session without an open transaction, and writes nothing', async () => {
    const client = new MongoClient(freshUri());
    const mill = aMill(mongodb({ client }));
    await client.withSession(async (session) => {
      const refused = mill.enqueue('x', {}, { session });
      await expect(refused).rejects.toMatchObject({ code: 'BAD_OPTION' });
      await expect(refused).rejects.toThrow('this session has no open transaction');
      expect(await mill.jobs.count()).toBe(0);
      await session.withTransaction(() => mill.enqueue('x', {}, { session }));
      expect(await mill.jobs.count()).toBe(1);
    });
    await mill.stop();
    await client.db().dropDatabase();
    await client.close();
  });

  it('records other jobs while an open transaction blocks one', async () => {
    const client = new MongoClient(freshUri());
    const mill = aMill(mongodb({ client }));
    const [locked, release] = [gate(), gate()];
    mill.job(
      'stuck',
      // Long enough for the transaction to lock the job first.
      { timeout: 2_000, retryPolicy: { type: 'fixed', interval: 0, maxAttempts: 1 } },
      async (job) => {
        await client.withSession((session) =>
          session.withTransaction(async () => {
            await job.complete({ transaction: session });
            locked.open();
            await release.promise;
          }),
        );
      },
    );
    mill.job('fine', () => 'ran');
    await mill.start();
    await mill.enqueue('stuck', {});
    await locked.promise;
    await until('its attempt has timed out', () => mill.health().abandoned === 1);
    const others = await mill.enqueueMany(Array.from({ length: 20 }, () => ({ name: 'fine' })));
    const results = await Promise.all(others.map((job) => mill.jobs.result(job.id, { timeout: '45s' })));
    expect(results).toEqual(others.map(() => 'ran'));
    release.open();
    await until('it has ended', () => mill.health().abandoned === 0);
    await mill.stop();
    await client.db().dropDatabase();
    await client.close();
  });

  it('a claim of several names examines at most two index keys per job', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    const store = await opened(mongodb({ uri }));
    const names = Array.from({ length: 10 }, (_, n) => `n${String(n)}`);
    await store.jobs.insert(names.flatMap((name) => Array.from({ length: 600 }, () => aJob({ name }))));
    await client.db().command({ profile: 2 });
    const { jobs } = await store.jobs.claim(aClaim(anInstance(), { names, max: 505, total: 550 }));
    await client.db().command({ profile: 0 });
    expect(jobs).toHaveLength(550);
    const [heads] = await client
      .db()
      .collection('system.profile')
      .find({ 'command.hint': 'tidemill_claim' })
      .toArray();
    expect(heads?.['keysExamined']).toBeLessThanOrEqual(2 * 550 + 2 * names.length);
    expect(heads?.['keysExamined']).toBeGreaterThanOrEqual(550);
  });
});
