import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { gate, once } from '../fixtures.js';

export const unique: Chapter = chapter('unique keys', [
  fact('creates one job for a thousand concurrent calls with the same unique key', async ({ aMill }) => {
    const mill = aMill();
    const jobs = await Promise.all(
      Array.from({ length: 1_000 }, () => mill.enqueue('sync', {}, { uniqueKey: 'user-1' })),
    );
    expect(new Set(jobs.map((job) => job.id)).size).toBe(1);
    expect(jobs.filter((job) => job.outcome === 'created')).toHaveLength(1);
    expect(await mill.jobs.count({ name: 'sync' })).toBe(1);
  }),

  fact('scopes a unique key to the name of the job', async ({ aMill }) => {
    const mill = aMill();
    const jobs = [
      await mill.enqueue('a', {}, { uniqueKey: 'k' }),
      await mill.enqueue('b', {}, { uniqueKey: 'k' }),
    ];
    expect(jobs.map((job) => job.outcome)).toEqual(['created', 'created']);
  }),

  fact(
    'holds a unique key while its job is pending or running, and frees it when the job ends',
    async ({ aMill }) => {
      const mill = aMill();
      const [running, finish] = [gate(), gate()];
      const single = mill.job<string>('once', { retryPolicy: once }, async (job) => {
        running.open();
        await finish.promise;
        if (job.data === 'fail') throw new Error('no');
      });
      await mill.start();
      const first = await single.enqueue('ok', { uniqueKey: 'k' });
      await running.promise;
      expect((await single.enqueue('ok', { uniqueKey: 'k' })).id).toBe(first.id);
      finish.open();
      await mill.jobs.result(first.id);
      const second = await single.enqueue('fail', { uniqueKey: 'k' });
      expect(second.outcome).toBe('created');
      await expect(mill.jobs.result(second.id)).rejects.toMatchObject({ code: 'JOB_FAILED' });
      const third = await single.enqueue('ok', { uniqueKey: 'k', delay: '1h' });
      expect(third.outcome).toBe('created');
      expect((await mill.jobs.cancel(third.id)).outcome).toBe('cancelled');
      expect((await single.enqueue('ok', { uniqueKey: 'k', delay: '1h' })).outcome).toBe('created');
    },
  ),

  fact('refuses a retry while another live job has the same unique key', async ({ aMill }) => {
    const mill = aMill();
    const old = await mill.enqueue('sync', {}, { uniqueKey: 'k' });
    await mill.jobs.cancel(old.id);
    await mill.enqueue('sync', {}, { uniqueKey: 'k' });
    expect(await mill.jobs.retry(old.id)).toMatchObject({ outcome: 'live', job: { status: 'cancelled' } });
    expect(await mill.jobs.retryMany({ status: 'cancelled' })).toEqual({ count: 0 });
  }),

  fact('creates one job for repeated calls with the same id', async ({ aMill }) => {
    const mill = aMill();
    const first = await mill.enqueue('mail', { to: 'a' }, { id: 'mail-1' });
    const again = await mill.enqueue('mail', { to: 'a' }, { id: 'mail-1' });
    expect(first).toMatchObject({ id: 'mail-1', outcome: 'created' });
    expect(again).toMatchObject({ id: 'mail-1', outcome: 'existing', data: { to: 'a' } });
  }),

  fact('returns the jobs of a batch in order, including duplicates', async ({ aMill }) => {
    const mill = aMill();
    await mill.enqueue('x', 'old', { uniqueKey: 'taken' });
    const jobs = await mill.enqueueMany([
      { name: 'x', data: 1 },
      { name: 'x', data: 2, uniqueKey: 'taken' },
      { name: 'x', data: 3, uniqueKey: 'twin' },
      { name: 'x', data: 4, uniqueKey: 'twin' },
      { name: 'y', data: 5, uniqueKey: 'twin' },
    ]);
    expect(jobs.map((job) => [job.data, job.outcome])).toEqual([
      [1, 'created'],
      ['old', 'existing'],
      [3, 'created'],
      [3, 'existing'],
      [5, 'created'],
    ]);
  }),

  fact(
    'enforces unique keys inside a transaction without aborting it',
    ['transactions'],
    async ({ aMill }) => {
      const mill = aMill();
      await mill.enqueue('sync', 'old', { uniqueKey: 'k' });
      const jobs = await mill.withTransaction(async (transaction) => [
        await mill.enqueue('sync', 'new', { uniqueKey: 'k', transaction }),
        await mill.enqueue('sync', 'other', { uniqueKey: 'k2', transaction }),
        await mill.enqueue('sync', 'its twin', { uniqueKey: 'k2', transaction }),
        await mill.enqueue('sync', 'plain', { transaction }),
      ]);
      expect(jobs.map((job) => job.outcome)).toEqual(['existing', 'created', 'existing', 'created']);
      expect(jobs[2]?.id).toBe(jobs[1]?.id);
      expect(await mill.jobs.count({ name: 'sync' })).toBe(3);
    },
  ),

  fact(
    'returns the finished job when its id and unique key are used again inside a transaction',
    ['transactions'],
    async ({ aMill }) => {
      const mill = aMill();
      const first = await mill.enqueue('sync', {}, { id: 'mine', uniqueKey: 'k', delay: '1h' });
      await mill.jobs.cancel(first.id);
      const again = await mill.withTransaction((transaction) =>
        mill.enqueue('sync', {}, { id: 'mine', uniqueKey: 'k', transaction }),
      );
      expect(again).toMatchObject({ id: 'mine', outcome: 'existing', status: 'cancelled' });
    },
  ),

  fact('writes no job of a transaction that is rolled back', ['transactions'], async ({ aMill }) => {
    const mill = aMill();
    const failing = mill.withTransaction(async (transaction) => {
      await mill.enqueue('sync', {}, { transaction });
      await mill.enqueueMany([
        { name: 'sync', data: 1, transaction },
        { name: 'sync', uniqueKey: 'k', transaction },
      ]);
      throw new Error('changed my mind');
    });
    await expect(failing).rejects.toThrow('changed my mind');
    expect(await mill.jobs.count({ name: 'sync' })).toBe(0);
  }),
]);
