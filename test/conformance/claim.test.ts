import fc from 'fast-check';
import { expect, it } from 'vitest';
import { eachStore } from '../support/stores.js';
import { aClaim, aJob, ago, ahead, anInstance, done, opened } from '../support/port.js';

eachStore('claim', ({ open }) => {
  it('takes higher priority first, then the earlier due time, then the smaller id', async () => {
    const store = await opened(open());
    const [low, late, early, high] = [ago(5_000), ago(1_000), ago(2_000), ago(1_000)];
    await store.jobs.insert([
      aJob({ priority: -1, nextRunAt: low, data: 'low' }),
      aJob({ nextRunAt: late, data: 'late' }),
      aJob({ nextRunAt: early, data: 'early' }),
      aJob({ priority: 3, nextRunAt: high, data: 'high' }),
    ]);
    const { jobs } = await store.jobs.claim(aClaim(anInstance()));
    expect(jobs.map((job) => job.data)).toEqual(['high', 'early', 'late', 'low']);
  });

  it('takes only what is due, of the names asked for, and not more than the limits', async () => {
    const store = await opened(open());
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
  });

  it('marks what it took with holder, token and server time', async () => {
    const store = await opened(open());
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
  });

  it('shares the places among names in turn', async () => {
    const store = await opened(open());
    await store.jobs.insert([
      ...Array.from({ length: 30 }, () => aJob({ name: 'flood', nextRunAt: ago(9_000) })),
      ...Array.from({ length: 3 }, () => aJob({ name: 'trickle' })),
    ]);
    const { jobs } = await store.jobs.claim(
      aClaim(anInstance(), { names: ['flood', 'trickle'], max: 10, total: 10 }),
    );
    expect(jobs.filter((job) => job.name === 'trickle')).toHaveLength(3);
    expect(jobs.filter((job) => job.name === 'flood')).toHaveLength(7);
  });

  it('takes nothing of a paused name, and everything again once it is resumed', async () => {
    const store = await opened(open());
    await store.jobs.insert([aJob(), aJob({ name: 'other' })]);
    await store.jobs.pauseName('work');
    const paused = await store.jobs.claim(aClaim(anInstance(), { names: ['work', 'other'] }));
    expect(paused.jobs.map((job) => job.name)).toEqual(['other']);
    await store.jobs.resumeName('work');
    const resumed = await store.jobs.claim(aClaim(anInstance(), { names: ['work', 'other'] }));
    expect(resumed.jobs.map((job) => job.name)).toEqual(['work']);
  });

  it('gives each job to one of several that claim at once', async () => {
    const store = await opened(open());
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
  });

  it('says when each name is due next, and what the time is', async () => {
    const store = await opened(open());
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
  });

  it('answers what a claim whose answer was lost had taken', async () => {
    const store = await opened(open());
    await store.jobs.insert([aJob({ data: 'one' }), aJob({ data: 'two' })]);
    const instance = anInstance();
    const request = aClaim(instance);
    await store.jobs.claim(request);
    expect(await store.jobs.claimedUnder(instance, request.token)).toHaveLength(2);
    expect(await store.jobs.claimedUnder(instance, `${instance.life}.none`)).toEqual([]);
  });

  it('never has two holders, whatever the order of claims, settlements and hand-backs', async () => {
    const store = await opened(open());
    const steps = fc.array(fc.tuple(fc.constantFrom('claim', 'finish', 'back', 'stale'), fc.nat(2)), {
      maxLength: 25,
    });
    let round = 0;
    await fc.assert(
      fc.asyncProperty(steps, async (plan) => {
        const name = `round-${String((round += 1))}`;
        await store.jobs.insert(Array.from({ length: 4 }, () => aJob({ name })));
        const workers = [anInstance(), anInstance(), anInstance()];
        const holds = new Map<string, Awaited<ReturnType<typeof store.jobs.claim>>['jobs'][number]>();
        const old: (typeof holds extends Map<string, infer J> ? J : never)[] = [];
        for (const [step, who] of plan) {
          const worker = workers[who] ?? anInstance();
          const [held] = [...holds.values()].filter((job) => job.claimedBy === worker.instanceId);
          if (step === 'claim') {
            for (const job of (await store.jobs.claim(aClaim(worker, { names: [name], max: 2 }))).jobs) {
              expect(holds.has(job.id)).toBe(false);
              holds.set(job.id, job);
            }
          } else if (step === 'stale') {
            for (const job of old) expect(await store.jobs.settle([done(job)])).toEqual(['lost']);
          } else if (held !== undefined) {
            const status = step === 'finish' ? 'completed' : 'pending';
            expect(await store.jobs.settle([done(held, { status, set: {} })])).toEqual(['settled']);
            holds.delete(held.id);
            if (step === 'back') {
              const [again] = (await store.jobs.claim(aClaim(worker, { names: [name], max: 4 }))).jobs.filter(
                (job) => {
                  holds.set(job.id, job);
                  return job.id === held.id;
                },
              );
              if (again !== undefined) old.push(held);
            }
          }
        }
        const live = await store.jobs.count({ name: [name], status: ['processing'] });
        expect(live).toBe(holds.size);
      }),
      { numRuns: 15 },
    );
  });
});
