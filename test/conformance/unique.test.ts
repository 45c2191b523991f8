import { expect, it } from 'vitest';
import { aMill, gate } from '../support/mills.js';
import { eachStore } from '../support/stores.js';

eachStore('unique keys', ({ open }) => {
  it('gives one job and a thousand answers to a thousand calls at once', async () => {
    const mill = aMill(open());
    const jobs = await Promise.all(
      Array.from({ length: 1_000 }, () => mill.enqueue('sync', {}, { uniqueKey: 'user-1' })),
    );
    expect(new Set(jobs.map((job) => job.id)).size).toBe(1);
    expect(jobs.filter((job) => job.outcome === 'created')).toHaveLength(1);
    expect(await mill.jobs.count({ name: 'sync' })).toBe(1);
  });

  it('is scoped by the name', async () => {
    const mill = aMill(open());
    const jobs = [
      await mill.enqueue('a', {}, { uniqueKey: 'k' }),
      await mill.enqueue('b', {}, { uniqueKey: 'k' }),
    ];
    expect(jobs.map((job) => job.outcome)).toEqual(['created', 'created']);
  });

  it('blocks while a job runs, and not once it has completed, failed or been cancelled', async () => {
    const mill = aMill(open());
    const [running, finish] = [gate(), gate()];
    const once = mill.job<string>(
      'once',
      { retryPolicy: { type: 'fixed', interval: 0, maxAttempts: 1 } },
      async (job) => {
        running.open();
        await finish.promise;
        if (job.data === 'fail') throw new Error('no');
      },
    );
    await mill.start();
    const first = await once.enqueue('ok', { uniqueKey: 'k' });
    await running.promise;
    expect((await once.enqueue('ok', { uniqueKey: 'k' })).id).toBe(first.id);
    finish.open();
    await mill.jobs.result(first.id);
    const second = await once.enqueue('fail', { uniqueKey: 'k' });
    expect(second.outcome).toBe('created');
    await expect(mill.jobs.result(second.id)).rejects.toMatchObject({ code: 'JOB_FAILED' });
    const third = await once.enqueue('ok', { uniqueKey: 'k', delay: '1h' });
    expect(third.outcome).toBe('created');
    expect((await mill.jobs.cancel(third.id)).outcome).toBe('cancelled');
    expect((await once.enqueue('ok', { uniqueKey: 'k', delay: '1h' })).outcome).toBe('created');
  });

  it('lets a retry explain that its key is live again', async () => {
    const mill = aMill(open());
    const old = await mill.enqueue('sync', {}, { uniqueKey: 'k' });
    await mill.jobs.cancel(old.id);
    await mill.enqueue('sync', {}, { uniqueKey: 'k' });
    expect(await mill.jobs.retry(old.id)).toMatchObject({ outcome: 'live', job: { status: 'cancelled' } });
    expect(await mill.jobs.retryMany({ status: 'cancelled' })).toEqual({ count: 0 });
  });

  it('makes a repeated call with the same id safe', async () => {
    const mill = aMill(open());
    const first = await mill.enqueue('mail', { to: 'a' }, { id: 'mail-1' });
    const again = await mill.enqueue('mail', { to: 'a' }, { id: 'mail-1' });
    expect(first).toMatchObject({ id: 'mail-1', outcome: 'created' });
    expect(again).toMatchObject({ id: 'mail-1', outcome: 'existing', data: { to: 'a' } });
  });

  it('answers a batch in its order, twins included', async () => {
    const mill = aMill(open());
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
  });

  it('holds inside a transaction without aborting it', async () => {
    const mill = aMill(open());
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
  });

  it('answers the finished job of an id that is used again with its key inside a transaction', async () => {
    const mill = aMill(open());
    const first = await mill.enqueue('sync', {}, { id: 'mine', uniqueKey: 'k', delay: '1h' });
    await mill.jobs.cancel(first.id);
    const again = await mill.withTransaction((transaction) =>
      mill.enqueue('sync', {}, { id: 'mine', uniqueKey: 'k', transaction }),
    );
    expect(again).toMatchObject({ id: 'mine', outcome: 'existing', status: 'cancelled' });
  });

  it('writes nothing of a transaction that is not committed', async () => {
    const mill = aMill(open());
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
  });
});
