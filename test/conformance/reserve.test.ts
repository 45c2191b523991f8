import { expect, it, vi } from 'vitest';
import { StoreError } from '../../src/core/errors.js';
import { aMill, gate, until } from '../support/mills.js';
import { aJob, anInstance, opened } from '../support/port.js';
import { atRest, insertion } from '../support/rest.js';
import { eachStore } from '../support/stores.js';

eachStore('a job for which a slot is free where it is asked for', ({ open }) => {
  it('is stored as claimed, and runs without a claim', async () => {
    const store = open();
    const mill = aMill(store);
    const seen: unknown[] = [];
    mill.job('x', async (job) => {
      seen.push((await mill.jobs.get(job.id))?.status);
      return job.attempt;
    });
    await atRest(store, mill, 'x');
    const claim = vi.spyOn(store.jobs, 'claim');
    const insert = vi.spyOn(store.jobs, insertion(store));
    const job = await mill.enqueue('x', {});
    expect(job).toMatchObject({ status: 'pending', lockedAt: null, outcome: 'created' });
    expect(job).not.toHaveProperty('claimedBy');
    expect(await mill.jobs.result(job.id)).toBe(1);
    expect(insert.mock.calls[0]?.[0][0]?.claim?.instance.instanceId).toBe(mill.instanceId);
    expect(claim).not.toHaveBeenCalled();
    expect(seen.at(-1)).toBe('processing');
    expect(await mill.jobs.get(job.id)).toMatchObject({ status: 'completed', failCount: 0 });
  });

  it('is given to whoever asked before its handler begins', async () => {
    const store = open();
    const mill = aMill(store);
    const order: string[] = [];
    mill.job('x', () => order.push('handler'));
    await atRest(store, mill, 'x');
    order.length = 0;
    const job = await mill.enqueue('x', {});
    order.push('answer');
    await mill.jobs.result(job.id);
    expect(order).toEqual(['answer', 'handler']);
  });

  it('does not start where its name was paused by another instance a moment before', async () => {
    const store = open();
    const [mill, other] = [aMill(store), aMill(store)];
    const ran: unknown[] = [];
    mill.job('x', (job) => ran.push(job.data));
    await atRest(store, mill, 'x');
    const reserved = vi.spyOn(store.jobs, insertion(store));
    await other.jobs.pause('x');
    const job = await mill.enqueue('x', { late: true });
    await until('it is back in the queue', async () => (await mill.jobs.get(job.id))?.status === 'pending');
    expect(reserved).toHaveBeenCalledTimes(1);
    expect(ran).not.toContainEqual({ late: true });
    expect(await mill.jobs.get(job.id)).toMatchObject({ failCount: 0, lockedAt: null });
    await other.jobs.resume('x');
    await mill.jobs.result(job.id);
    expect(ran.at(-1)).toEqual({ late: true });
  });

  it('leaves the slot to others where its key is taken', async () => {
    const store = open();
    const mill = aMill(store, { concurrency: 2 });
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
  });

  it('takes no more slots than there are', async () => {
    const store = open();
    const mill = aMill(store);
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
  });

  it('is handed back by a stop that comes while it is being stored', async () => {
    const store = open();
    const mill = aMill(store);
    const reader = aMill(store);
    const ran: unknown[] = [];
    mill.job('x', (job) => ran.push(job.data));
    await atRest(store, mill, 'x');
    const [asked, answered] = [gate(), gate()];
    const insert = store.jobs[insertion(store)].bind(store.jobs);
    vi.spyOn(store.jobs, insertion(store)).mockImplementation(async (...args) => {
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
  });

  it('is found and handed back where its answer was lost', async () => {
    const store = open();
    const mill = aMill(store, { leaseDuration: 600 });
    const ran: unknown[] = [];
    mill.job('x', (job) => ran.push(job.data));
    await atRest(store, mill, 'x');
    const insert = store.jobs[insertion(store)].bind(store.jobs);
    const lossy = vi.spyOn(store.jobs, insertion(store)).mockImplementation(async (...args) => {
      await insert(...args);
      throw new StoreError('enqueue: the answer was lost', { transient: true, outcomeUnknown: true });
    });
    await expect(mill.enqueue('x', { lost: true })).rejects.toThrow('the answer was lost');
    lossy.mockRestore();
    expect(mill.health().running).toBe(0);
    const isLost = (data: unknown): boolean => (data as { lost?: boolean }).lost === true;
    await until('it has run after all', () => ran.some(isLost));
    expect(ran.filter(isLost)).toHaveLength(1);
  });

  it('is reclaimed where its process dies before it begins', async () => {
    const store = await opened(open());
    const instance = anInstance();
    const claim = { instance, token: `${instance.life}.1`, heartbeatMs: 100 };
    const past = new Date(Date.now() - 60_000);
    const [inserted] = await store.jobs.insert([aJob({ createdAt: past, claim })]);
    expect(inserted?.job).toMatchObject({ status: 'processing', leaseToken: claim.token });
    const mill = aMill(store, { leaseDuration: 600 });
    mill.job('work', { retryPolicy: { type: 'fixed', interval: 0 } }, (job) => job.failCount);
    await mill.start();
    expect(await mill.jobs.result(inserted?.job.id ?? '')).toBe(1);
  });
});
