import fc from 'fast-check';
import { expect, it } from 'vitest';
import { claim } from '../../src/testing/conformance/facts/claim.js';
import { aClaim, aJob, anInstance, done, opened } from '../support/port.js';
import { eachStore, eachStoreProves } from '../support/stores.js';

eachStoreProves(claim);

eachStore('claims in any order', ({ open }) => {
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
