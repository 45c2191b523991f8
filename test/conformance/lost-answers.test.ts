import { expect, it } from 'vitest';
import { StoreError } from '../../src/core/errors.js';
import { keepLines } from '../reactive/mills.js';
import { aMill, gate, until } from '../support/mills.js';
import { eachWire } from '../support/wires.js';

eachWire('answers that are lost after the write succeeded', (aWire) => {
  it('loses no job, runs none twice and blames none, whatever answers are lost', async () => {
    const { proxy, store } = await aWire();
    const mill = aMill(store, { concurrency: 20 });
    const runs = new Map<number, number>();
    const work = mill.job<number>('work', { concurrency: 20 }, async (job) => {
      runs.set(job.data, (runs.get(job.data) ?? 0) + 1);
      await new Promise((resolve) => setTimeout(resolve, job.data % 7));
    });
    await work.enqueueMany(Array.from({ length: 1_000 }, (_, data) => ({ data })));
    let requests = 0;
    proxy.picky = () => (requests += 1) % 5 === 0;
    await mill.start();
    await until('all have run', () => runs.size === 1_000);
    proxy.picky = undefined;
    await until('all are recorded', async () => (await mill.jobs.stats()).completed === 1_000);
    expect(proxy.lost).toBeGreaterThan(2);
    expect([...runs.values()].filter((times) => times > 1)).toEqual([]);
    const { items } = await mill.jobs.find({ name: 'work' }, { limit: 1_000 });
    expect(items.every((job) => job.failCount === 0 && job.history?.length === 1)).toBe(true);
  }, 200_000);

  it('retries a settlement until the database answers, and never turns its trouble into a failure', async () => {
    const { proxy, store } = await aWire();
    const mill = aMill(store, { leaseDuration: '60s' });
    const [running, finish, troubled] = [gate(), gate(), gate()];
    mill.on('error', ({ where }) => where === 'settle' && troubled.open());
    mill.job('x', async () => {
      running.open();
      await finish.promise;
      return 'kept';
    });
    await mill.start();
    const job = await mill.enqueue('x', {});
    await running.promise;
    proxy.lose = Infinity;
    finish.open();
    await troubled.promise;
    proxy.lose = 0;
    expect(await mill.jobs.result(job.id)).toBe('kept');
    expect(await mill.jobs.get(job.id)).toMatchObject({ status: 'completed', failCount: 0 });
  });

  it('says that a rejected enqueue may have been stored, and that its id makes a repeat safe', async () => {
    const { proxy, store } = await aWire();
    const mill = aMill(store);
    await mill.enqueue('x', {});
    // Whatever the statement, it carries the id.
    proxy.picky = (request) => request.includes('mine');
    const error: unknown = await mill
      .enqueue('x', { n: 1 }, { id: 'mine' })
      .catch((problem: unknown) => problem);
    expect(error).toBeInstanceOf(StoreError);
    expect(error).toMatchObject({ outcomeUnknown: true, transient: true });
    expect((error as Error).message).toContain('`id`');
    proxy.picky = undefined;
    expect(await mill.enqueue('x', { n: 1 }, { id: 'mine' })).toMatchObject({
      outcome: 'existing',
      data: { n: 1 },
    });
  });

  it('aborts its handlers when it cannot reach the store for a whole lease, and goes on afterwards', async () => {
    const { proxy, store } = await aWire();
    const mill = aMill(store, { leaseDuration: 3_000 });
    const [running, aborted] = [gate(), gate<unknown>()];
    let runs = 0;
    mill.job('slow', async (job) => {
      runs += 1;
      if (runs > 1) return 'second';
      running.open();
      await new Promise((resolve) => job.signal.addEventListener('abort', resolve));
      aborted.open(job.signal.reason);
      throw new Error('interrupted');
    });
    await mill.start();
    const job = await mill.enqueue('slow', {});
    await running.promise;
    proxy.lose = Infinity;
    expect(await aborted.promise).toMatchObject({ code: 'LEASE_LOST' });
    expect(mill.isHealthy()).toBe(false);
    proxy.lose = 0;
    expect(await mill.jobs.result(job.id)).toBe('second');
    await until('it is healthy again', () => mill.isHealthy());
  });

  it('comes to an end without the store, too, and says what could not be recorded', async () => {
    const { proxy, store } = await aWire();
    const { logger, lines } = keepLines();
    const mill = aMill(store, { logger });
    const [running, finish] = [gate(), gate()];
    mill.job('x', async () => {
      running.open();
      await finish.promise;
    });
    await mill.start();
    const job = await mill.enqueue('x', {});
    await running.promise;
    proxy.lose = Infinity;
    finish.open();
    await mill.stop({ timeout: '1s' });
    expect(lines.map(({ text }) => text).join('\n')).toContain('1 outcomes could not be recorded');
    proxy.lose = 0;
    // The write may have arrived before the answers stopped; a failure it is in no case.
    const after = await mill.jobs.get(job.id);
    expect(['completed', 'processing']).toContain(after?.status);
    expect(after?.failCount).toBe(0);
  });
});
