import { StoreError } from '../../../core/errors.js';
import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { aJob, anInstance, gate, until } from '../fixtures.js';
import { atRest, insertion } from '../rest.js';
import { spyOn } from '../spy.js';

export const reserved: Chapter = chapter('reserved slots', [
  fact('stores a job as claimed if a slot is free, and runs it without a claim', async ({ aMill, store }) => {
    const mill = aMill();
    const seen: unknown[] = [];
    mill.job('x', async (job) => {
      seen.push((await mill.jobs.get(job.id))?.status);
      return job.attempt;
    });
    await atRest(store, mill, 'x');
    const claim = spyOn(store.jobs, 'claim');
    const insert = spyOn(store.jobs, insertion(store));
    const job = await mill.enqueue('x', {});
    expect(job).toMatchObject({ status: 'pending', lockedAt: null, outcome: 'created' });
    expect(job).not.toHaveProperty('claimedBy');
    expect(await mill.jobs.result(job.id)).toBe(1);
    expect(insert.calls[0]?.[0][0]?.claim?.instance.instanceId).toBe(mill.instanceId);
    expect(claim.calls).toEqual([]);
    expect(seen.at(-1)).toBe('processing');
    expect(await mill.jobs.get(job.id)).toMatchObject({ status: 'completed', failCount: 0 });
  }),

  fact('returns a reserved job to the caller before its handler begins', async ({ aMill, store }) => {
    const mill = aMill();
    const order: string[] = [];
    mill.job('x', () => order.push('handler'));
    await atRest(store, mill, 'x');
    order.length = 0;
    const job = await mill.enqueue('x', {});
    order.push('answer');
    await mill.jobs.result(job.id);
    expect(order).toEqual(['answer', 'handler']);
  }),

  fact(
    'does not start a reserved job whose name another instance has just paused',
    async ({ aMill, store }) => {
      const [mill, other] = [aMill(), aMill()];
      const ran: unknown[] = [];
      mill.job('x', (job) => ran.push(job.data));
      await atRest(store, mill, 'x');
      const reserved = spyOn(store.jobs, insertion(store));
      await other.jobs.pause('x');
      const job = await mill.enqueue('x', { late: true });
      await until('it is back in the queue', async () => (await mill.jobs.get(job.id))?.status === 'pending');
      expect(reserved.calls).toHaveLength(1);
      expect(ran).not.toContainEqual({ late: true });
      expect(await mill.jobs.get(job.id)).toMatchObject({ failCount: 0, lockedAt: null });
      await other.jobs.resume('x');
      await mill.jobs.result(job.id);
      expect(ran.at(-1)).toEqual({ late: true });
    },
  ),

  fact('frees the reserved slot if the unique key is taken', async ({ aMill, store }) => {
    const mill = aMill({ concurrency: 2 });
    const finish = gate();
    mill.job('x', { concurrency: 2 }, async (job) => {
      if ((job.data as { hold?: boolean }).hold === true) await finish.promise;
    });
    await atRest(store, mill, 'x');
    const first = await mill.enqueue('x', { hold: true }, { uniqueKey: 'one' });
    for (let times = 0; times < 5; times += 1) {
      expect(await mill.enqueue('x', {}, { uniqueKey: 'one' })).toMatchObject({
        id: first.id,
        outcome: 'existing',
      });
    }
    await mill.jobs.result((await mill.enqueue('x', {})).id);
    finish.open();
    await mill.jobs.result(first.id);
    expect(mill.health().running).toBe(0);
  }),

  fact('reserves no more slots than the concurrency allows', async ({ aMill, store }) => {
    const mill = aMill();
    let [running, most] = [0, 0];
    mill.job('x', { concurrency: 2 }, async () => {
      most = Math.max(most, (running += 1));
      await new Promise((resolve) => setTimeout(resolve, 5));
      running -= 1;
    });
    await atRest(store, mill, 'x');
    const jobs = await Promise.all(Array.from({ length: 20 }, () => mill.enqueue('x', {})));
    await Promise.all(jobs.map((job) => mill.jobs.result(job.id)));
    expect(most).toBe(2);
  }),

  fact(
    'releases a reserved job if the mill stops while the job is being stored',
    async ({ aMill, store }) => {
      const mill = aMill();
      const reader = aMill();
      const ran: unknown[] = [];
      mill.job('x', (job) => ran.push(job.data));
      await atRest(store, mill, 'x');
      const [asked, answered] = [gate(), gate()];
      const insert = store.jobs[insertion(store)].bind(store.jobs);
      spyOn(store.jobs, insertion(store)).always(async (...args) => {
        const inserted = await insert(...args);
        asked.open();
        await answered.promise;
        return inserted;
      });
      const enqueued = mill.enqueue('x', { n: 1 });
      await asked.promise;
      const stopped = mill.stop();
      answered.open();
      const { id } = await enqueued;
      await stopped;
      expect(ran).not.toContainEqual({ n: 1 });
      expect(await reader.jobs.get(id)).toMatchObject({ status: 'pending', failCount: 0, lockedAt: null });
    },
  ),

  fact('recovers a reserved job whose insert response was lost', async ({ aMill, store }) => {
    const mill = aMill({ leaseDuration: 600 });
    const ran: unknown[] = [];
    mill.job('x', (job) => ran.push(job.data));
    await atRest(store, mill, 'x');
    const insert = store.jobs[insertion(store)].bind(store.jobs);
    const lossy = spyOn(store.jobs, insertion(store));
    lossy.always(async (...args) => {
      await insert(...args);
      throw new StoreError('enqueue: the answer was lost', { transient: true, outcomeUnknown: true });
    });
    await expect(mill.enqueue('x', { lost: true })).rejects.toThrow('the answer was lost');
    lossy.restore();
    expect(mill.health().running).toBe(0);
    const isLost = (data: unknown): boolean => (data as { lost?: boolean }).lost === true;
    await until('it has run after all', () => ran.some(isLost));
    expect(ran.filter(isLost)).toHaveLength(1);
  }),

  fact('reclaims a reserved job whose process died before the handler began', async ({ aMill, opened }) => {
    const store = await opened();
    const instance = anInstance();
    const claim = { instance, token: `${instance.life}.1`, heartbeatMs: 100 };
    const past = new Date(Date.now() - 60_000);
    const [inserted] = await store.jobs.insert([aJob({ createdAt: past, claim })]);
    expect(inserted?.job).toMatchObject({ status: 'processing', leaseToken: claim.token });
    const mill = aMill({ leaseDuration: 600 });
    mill.job('work', { retryPolicy: { type: 'fixed', interval: 0 } }, (job) => job.failCount);
    await mill.start();
    expect(await mill.jobs.result(inserted?.job.id ?? '')).toBe(1);
  }),
]);
