import { leaseOf, type Registration } from '../../../store/port.js';
import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { aClaim, aJob, aRegistration, gate, once, present, rarely, until } from '../fixtures.js';

const victim = (fields: Partial<Registration> = {}): Registration =>
  aRegistration({ policies: { work: once }, ...fields });

export const hostile: Chapter = chapter('edge cases', [
  fact('records the other outcomes of a batch if one cannot be stored', async ({ aMill }) => {
    const mill = aMill();
    const circular = new Error('circular') as Error & { self?: unknown };
    circular.self = circular;
    mill.job('log', ({ log }) => log(circular as unknown as string));
    mill.job('stack', { retryPolicy: once }, () => {
      throw Object.assign(new Error('no stack'), { stack: null });
    });
    mill.job('message', { retryPolicy: once }, () => {
      throw Object.assign(new Error(), { message: { of: circular } });
    });
    mill.job('fine', () => 'ran');
    await mill.start();
    const bad = await mill.enqueueMany([{ name: 'log' }, { name: 'stack' }, { name: 'message' }]);
    const good = await mill.enqueueMany(Array.from({ length: 20 }, () => ({ name: 'fine' })));
    expect(await Promise.all(good.map((job) => mill.jobs.result(job.id)))).toEqual(good.map(() => 'ran'));
    await until(
      'the others have ended, too',
      async () =>
        (await mill.jobs.count({ ids: bad.map((job) => job.id), status: ['completed', 'failed'] })) === 3,
    );
  }),

  fact(
    'runs a job with one attempt even if the process that claimed it died before it began',
    async ({ aMill, opened }) => {
      const store = await opened();
      const dead = victim();
      await store.instances.register(dead);
      await store.jobs.insert([aJob({ name: 'work' })]);
      const [job] = (await store.jobs.claim(aClaim(dead))).jobs;
      await store.instances.renew({ ...dead, leaseMs: -1 });
      const mill = aMill({ leaseDuration: 500 });
      mill.job('work', { retryPolicy: once }, () => 'ran');
      await mill.start();
      expect(await mill.jobs.result(job?.id ?? '')).toBe('ran');
    },
  ),

  fact(
    'keeps schedules apart whose names and keys are equal when concatenated',
    ['schedules'],
    async ({ aMill }) => {
      const mill = aMill();
      const [a, b] = [
        await mill.schedule('0 1 * * *', 'report', { n: 1 }, { uniqueKey: 'eu:daily' }),
        await mill.schedule('0 2 * * *', 'report:eu', { n: 2 }, { uniqueKey: 'daily' }),
      ];
      expect(a.id).not.toBe(b.id);
      expect(await mill.schedules.list()).toMatchObject([
        { name: 'report', cron: '0 1 * * *' },
        { name: 'report:eu', cron: '0 2 * * *' },
      ]);
      await expect(mill.enqueue('x', {}, { id: a.id })).rejects.toThrow('names schedules');
    },
  ),

  fact('finds the only due job among three hundred names', async ({ aMill }) => {
    const mill = aMill();
    for (let n = 0; n < 300; n += 1) mill.job(`n${String(n)}`, () => n);
    await mill.start();
    for (const n of [250, 3, 299]) {
      expect(await mill.jobs.result((await mill.enqueue(`n${String(n)}`, {})).id)).toBe(n);
    }
  }),

  fact('fills a freed slot with a job that fell due while all slots were taken', async ({ aMill }) => {
    const mill = aMill({ pollInterval: rarely });
    const [running, finish] = [gate(), gate()];
    mill.job<string>('narrow', { concurrency: 1 }, async (job) => {
      if (job.data !== 'first') return 'second';
      running.open();
      return finish.promise;
    });
    mill.job('wide', () => undefined);
    await mill.start();
    await mill.enqueue('narrow', 'first');
    await running.promise;
    const second = await mill.enqueue('narrow', 'second', { delay: 50 });
    await mill.jobs.result((await mill.enqueue('wide', {}, { delay: 100 })).id);
    finish.open();
    expect(await mill.jobs.result(second.id, { timeout: '45s' })).toBe('second');
  }),

  fact('does not start prefetched jobs of a name that was paused', async ({ aMill }) => {
    const mill = aMill({ concurrency: 2, pollInterval: { min: 20, max: 50 } });
    let runs = 0;
    const [slow, go] = [gate(), gate()];
    const quick = mill.job<number>('quick', { concurrency: 1 }, async () => {
      runs += 1;
      if (runs === 50) {
        slow.open();
        await go.promise;
      }
    });
    await quick.enqueueMany(Array.from({ length: 1_000 }, (_, data) => ({ data })));
    await mill.start();
    await slow.promise;
    await mill.jobs.pause('quick');
    // A claim that was under way may bring some more.
    await until(
      'the buffer is handed back',
      async () => (await mill.jobs.count({ status: 'processing' })) === 1,
    );
    go.open();
    await until('nothing runs', () => mill.health().running === 0);
    expect(runs).toBe(50);
    await mill.jobs.resume('quick');
    await until('all have run', () => runs === 1_000);
  }),

  fact(
    'completes a run inside a transaction although its schedule changed during the run',
    ['transactions', 'schedules'],
    async ({ aMill }) => {
      const mill = aMill();
      const done = gate<{ job: { failCount: number } }>();
      mill.on('job:complete', done.open);
      mill.job('report', async (job) => {
        await mill.schedule('0 5 * * *', 'report', { n: 2 });
        await mill.withTransaction((transaction) => job.complete({ transaction }));
      });
      await mill.start();
      await mill.schedule('0 3 * * *', 'report', { n: 1 });
      await mill.schedules.runNow('report');
      expect((await done.promise).job.failCount).toBe(0);
      expect(await mill.schedules.get('report')).toMatchObject({
        cron: '0 5 * * *',
        data: { n: 2 },
        failCount: 0,
      });
    },
  ),

  fact('reports a crashed attempt with job:fail', async ({ aMill, opened }) => {
    const store = await opened();
    const dead = victim({ policies: { work: { type: 'fixed', interval: 0 } } });
    await store.instances.register(dead);
    await store.jobs.insert([aJob({ name: 'work' })]);
    const [job] = (await store.jobs.claim(aClaim(dead))).jobs;
    await store.jobs.begin(leaseOf(present(job)));
    await store.instances.renew({ ...dead, leaseMs: -1 });
    const mill = aMill({ leaseDuration: 500 });
    const failed = gate<{ attempt: number; willRetry: boolean; error: Error }>();
    mill.on('job:fail', failed.open);
    mill.job('other', () => undefined);
    await mill.start();
    expect(await failed.promise).toMatchObject({ attempt: 1, willRetry: true });
  }),
]);
