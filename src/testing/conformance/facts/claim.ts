import { EVERYTHING, isPausedIn } from '../../../store/port.js';
import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { aClaim, aJob, ago, ahead, anInstance } from '../fixtures.js';

export const claim: Chapter = chapter('claiming', [
  fact('claims by higher priority, then earlier due time, then smaller id', async ({ opened }) => {
    const store = await opened();
    const [low, late, early, high] = [ago(5_000), ago(1_000), ago(2_000), ago(1_000)];
    await store.jobs.insert([
      aJob({ priority: -1, nextRunAt: low, data: 'low' }),
      aJob({ nextRunAt: late, data: 'late' }),
      aJob({ nextRunAt: early, data: 'early' }),
      aJob({ priority: 3, nextRunAt: high, data: 'high' }),
    ]);
    const { jobs } = await store.jobs.claim(aClaim(anInstance()));
    expect(jobs.map((job) => job.data)).toEqual(['high', 'early', 'late', 'low']);
  }),

  fact('claims only due jobs of the requested names, within the limits', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert([
      aJob({ nextRunAt: ahead(60_000) }),
      aJob({ name: 'foreign' }),
      ...Array.from({ length: 5 }, () => aJob()),
    ]);
    const first = await store.jobs.claim(aClaim(anInstance(), { max: 3 }));
    expect(first.jobs.map((job) => job.name)).toEqual(['work', 'work', 'work']);
    expect(first.more).toBe(true);
    const second = await store.jobs.claim(aClaim(anInstance(), { max: 3 }));
    expect(second.jobs).toHaveLength(2);
    expect((await store.jobs.claim(aClaim(anInstance()))).jobs).toEqual([]);
  }),

  fact('marks claimed jobs with their holder, token and server time', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert([aJob()]);
    const instance = anInstance();
    const request = aClaim(instance);
    const { jobs } = await store.jobs.claim(request);
    expect(jobs[0]).toMatchObject({
      status: 'processing',
      claimedBy: instance.instanceId,
      leaseToken: request.token,
      heartbeatInterval: 10_000,
      failCount: 0,
    });
    expect(jobs[0]?.lockedAt).toBeInstanceOf(Date);
    expect(jobs[0]?.lastHeartbeat).toBeInstanceOf(Date);
  }),

  fact('shares a claim among names in turn', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert([
      ...Array.from({ length: 30 }, () => aJob({ name: 'flood', nextRunAt: ago(9_000) })),
      ...Array.from({ length: 3 }, () => aJob({ name: 'trickle' })),
    ]);
    const { jobs } = await store.jobs.claim(
      aClaim(anInstance(), { names: ['flood', 'trickle'], max: 10, total: 10 }),
    );
    expect(jobs.filter((job) => job.name === 'trickle')).toHaveLength(3);
    expect(jobs.filter((job) => job.name === 'flood')).toHaveLength(7);
  }),

  fact('claims nothing of a paused name, and everything after it is resumed', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert([aJob(), aJob({ name: 'other' })]);
    await store.jobs.pauseName('work');
    const paused = await store.jobs.claim(aClaim(anInstance(), { names: ['work', 'other'] }));
    expect(paused.jobs.map((job) => job.name)).toEqual(['other']);
    await store.jobs.resumeName('work');
    const resumed = await store.jobs.claim(aClaim(anInstance(), { names: ['work', 'other'] }));
    expect(resumed.jobs.map((job) => job.name)).toEqual(['work']);
  }),

  fact('gives each job to one of several concurrent claims', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert(Array.from({ length: 200 }, (_, n) => aJob({ data: n })));
    const takeAll = async (): Promise<unknown[]> => {
      const instance = anInstance();
      const taken: unknown[] = [];
      for (;;) {
        const { jobs, more } = await store.jobs.claim(aClaim(instance, { max: 7 }));
        taken.push(...jobs.map((job) => job.data));
        if (jobs.length === 0 && !more) return taken;
      }
    };
    const taken = (await Promise.all([takeAll(), takeAll(), takeAll(), takeAll()])).flat();
    expect(taken.sort((a, b) => Number(a) - Number(b))).toEqual(Array.from({ length: 200 }, (_, n) => n));
  }),

  fact('returns when each name is next due, and the server time', async ({ opened }) => {
    const store = await opened();
    const [soon, later] = [ahead(60_000), ahead(120_000)];
    await store.jobs.insert([
      aJob({ nextRunAt: later }),
      aJob({ nextRunAt: soon, priority: -5 }),
      aJob({ name: 'other', nextRunAt: later }),
    ]);
    const summary = await store.jobs.peek(['work', 'other', 'unknown']);
    expect([...summary.nextDue].sort()).toEqual([
      ['other', later],
      ['work', soon],
    ]);
    expect(Math.abs(summary.cluster.now.getTime() - Date.now())).toBeLessThan(5_000);
  }),

  fact('says with each claim and peek which names are paused', async ({ opened }) => {
    const { jobs } = await opened();
    const paused = async (): Promise<readonly unknown[]> => [
      [...(await jobs.claim(aClaim(anInstance()))).cluster.paused],
      [...(await jobs.peek(['work'])).cluster.paused],
      await jobs.isPaused('work.$x'),
    ];
    expect(await paused()).toEqual([[], [], false]);
    await jobs.pauseName('work.$x');
    expect(await paused()).toEqual([['work.$x'], ['work.$x'], true]);
    expect(await jobs.isPaused('work')).toBe(false);
    await jobs.resumeName('work.$x');
    expect(await paused()).toEqual([[], [], false]);
  }),

  fact('returns the jobs of a claim whose response was lost', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert([aJob({ data: 'one' }), aJob({ data: 'two' })]);
    const instance = anInstance();
    const request = aClaim(instance);
    await store.jobs.claim(request);
    expect(await store.jobs.claimedUnder(instance, request.token)).toHaveLength(2);
    expect(await store.jobs.claimedUnder(instance, `${instance.life}.none`)).toEqual([]);
  }),

  fact(
    'claims nothing while everything is paused, and keeps the pause of a name after it',
    async ({ opened }) => {
      const { jobs } = await opened();
      await jobs.insert([aJob(), aJob({ name: 'other' })]);
      await jobs.pauseName('other');
      await jobs.pauseName(EVERYTHING);
      expect(await jobs.isPaused('work')).toBe(true);
      const names = ['work', 'other'];
      const held = await jobs.claim(aClaim(anInstance(), { names }));
      expect(held.jobs).toEqual([]);
      expect(isPausedIn(held.cluster.paused, 'work')).toBe(true);
      await jobs.resumeName(EVERYTHING);
      expect(await jobs.isPaused('work')).toBe(false);
      const free = await jobs.claim(aClaim(anInstance(), { names }));
      expect(free.jobs.map(({ name }) => name)).toEqual(['work']);
    },
  ),
]);
