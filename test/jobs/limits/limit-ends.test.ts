import { expect, it } from 'vitest';
import { defineJob } from '../../../src/index.js';
import { aMill, gate, until } from '../../support/mills.js';
import { eachStore } from '../../support/stores.js';

eachStore('ends of limited work', ({ open }) => {
  it('a handler that completes in a transaction across a stop frees its limit', async () => {
    const store = open();
    const [mill, next] = [aMill(store), aMill(store)];
    const limits = { concurrency: 1, perKey: { key: 'key', order: 'fifo' } } as const;
    const work = defineJob<{ key: string; n: number }>('work', { limits, transactional: true });
    const [began, goOn, ended] = [gate(), gate(), gate()];
    const ran: number[] = [];
    mill.work(work, async (job) => {
      ran.push(job.data.n);
      await mill.withTransaction(async (transaction) => {
        await mill.enqueue('effect', { n: job.data.n }, { transaction });
        began.open();
        await goOn.promise;
        await job.complete({ transaction, result: 'in the transaction' });
      });
    });
    await mill.start();
    const [first, second] = await mill.enqueueMany([1, 2].map((n) => ({ job: work, data: { key: 'a', n } })));
    await began.promise;
    // The embedded database has one connection, which the transaction has now: nothing else may ask it.
    const stopping = mill.stop();
    goOn.open();
    await stopping;
    next.work(work, async (job) => {
      ran.push(job.data.n);
      await next.withTransaction((transaction) => job.complete({ transaction }));
      ended.open();
    });
    await next.start();
    await ended.promise;
    await until(
      'the second one is recorded',
      async () => (await next.jobs.get(second!.id))?.status === 'completed',
    );
    expect(await next.jobs.get(first!.id)).toMatchObject({
      status: 'completed',
      result: 'in the transaction',
      failCount: 0,
    });
    expect(ran).toEqual([1, 2]);
    expect(await next.jobs.count({ name: 'effect' })).toBe(1);
    await until('nothing counts', async () => (await next.limits.get('work'))?.use.running === 0);
  });

  it('a job of a batch that is deferred holds its key, and those of other keys go on', async () => {
    const mill = aMill(open());
    const work = defineJob<{ key: string; n: number }>('work', {
      limits: { perKey: { key: 'key', order: 'fifo' } },
    });
    const ran: string[] = [];
    mill.batch(work, { size: 10 }, (jobs) => {
      for (const job of jobs) {
        const name = `${job.data.key}${String(job.data.n)}`;
        if (name === 'a1' && !ran.includes(name)) job.defer('1h');
        ran.push(name);
      }
    });
    const jobs = await mill.enqueueMany(
      [
        ['a', 1],
        ['a', 2],
        ['b', 1],
        ['b', 2],
      ].map(([key, n]) => ({ job: work, data: { key: String(key), n: Number(n) } })),
    );
    await mill.start();
    await until('the other key has run', async () => (await mill.jobs.count({ status: 'completed' })) === 2);
    const [held, behind] = jobs;
    const [why] = await mill.why({ kind: 'jobs', id: behind!.id });
    const { runAt, failCount } = (await mill.jobs.get(held!.id))!;
    expect([why?.code, why?.until, failCount]).toEqual(['order', runAt, 0]);
    await mill.jobs.reschedule(held!.id, new Date(0));
    await until('all have run', async () => (await mill.jobs.count({ status: 'completed' })) === 4);
    expect(ran.filter((name) => name.startsWith('a'))).toEqual(['a1', 'a1', 'a2']);
    expect(ran.filter((name) => name.startsWith('b'))).toEqual(['b1', 'b2']);
  });
});
