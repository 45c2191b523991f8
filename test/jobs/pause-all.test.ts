import { expect, it } from 'vitest';
import { aMill, gate, rarely, until } from '../support/mills.js';
import { eachStore } from '../support/stores.js';

const nothing = (): void => undefined;

eachStore('a pause of everything', ({ open }) => {
  it('keeps every instance from starting jobs, lets running ones end, and ends with resume', async () => {
    const store = open();
    const [one, other] = [aMill(store, { pollInterval: rarely }), aMill(store, { pollInterval: rarely })];
    const [running, finish] = [gate(), gate()];
    const ran: string[] = [];
    for (const mill of [one, other]) {
      mill.job<string>('work', async ({ data }) => {
        ran.push(data);
        if (data !== 'long') return;
        running.open();
        await finish.promise;
      });
      await mill.start();
    }
    const long = await one.enqueue('work', 'long');
    await running.promise;
    await other.pause();
    expect(await one.paused()).toBe(true);
    const waiting = await one.enqueue('work', 'waiting');
    finish.open();
    await one.jobs.result(long.id);
    expect((await one.jobs.get(long.id))?.status).toBe('completed');
    // It may have been stored as claimed, and is handed back then.
    await until('it says that it is paused', async () => {
      const [reason] = await one.why({ kind: 'jobs', id: waiting.id });
      return reason?.code === 'paused';
    });
    await until('each instance has heard', () => one.health().paused && other.health().paused);
    expect(ran).toEqual(['long']);
    expect((await one.jobs.get(waiting.id))?.status).toBe('pending');
    await one.resume();
    await one.jobs.result(waiting.id);
    expect(ran).toEqual(['long', 'waiting']);
    await until('each instance has heard', () => !one.health().paused && !other.health().paused);
  });

  it('hands back what was taken ahead, leaves pauses of names alone, and outlives restarts', async () => {
    const store = open();
    const mill = aMill(store);
    const [running, finish] = [gate(), gate()];
    mill.job('work', { concurrency: 1 }, async () => {
      running.open();
      await finish.promise;
    });
    mill.job('other', nothing);
    await mill.start();
    await mill.enqueueMany(Array.from({ length: 20 }, (_, data) => ({ name: 'work', data })));
    await running.promise;
    await mill.jobs.pause('other');
    await mill.pause();
    expect(await mill.jobs.paused()).toEqual(['other']);
    await until('one is left running', async () => (await mill.jobs.count({ status: 'processing' })) === 1);
    finish.open();
    await mill.stop();
    const next = aMill(store);
    next.job('work', nothing);
    next.job('other', nothing);
    await next.start();
    await until('it has heard', () => next.health().paused);
    const held = await next.enqueue('other', {});
    expect(await next.jobs.count({ status: 'completed' })).toBe(1);
    await next.resume();
    await until('the rest has run', async () => (await next.jobs.count({ status: 'completed' })) === 20);
    expect((await next.jobs.get(held.id))?.status).toBe('pending');
    expect(await next.why({ kind: 'jobs', id: held.id })).toMatchObject([{ code: 'paused' }]);
  });

  it('says in the doctor that all work is paused, and how to resume it', async () => {
    const mill = aMill(open());
    await mill.pause();
    await mill.pause();
    const findings = await mill.doctor();
    expect(findings).toContainEqual(
      expect.objectContaining({ found: 'all work of the cluster is paused', fix: 'tidemill resume --all' }),
    );
    await mill.resume();
    await mill.resume();
    expect(await mill.paused()).toBe(false);
  });
});
