import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { gate } from '../fixtures.js';

export const running: Chapter = chapter('running jobs', [
  fact('runs an enqueued job and stores the result of its handler', async ({ aMill }) => {
    const mill = aMill();
    const add = mill.job<{ a: number; b: number }>('add', (job) => job.data.a + job.data.b);
    await mill.start();
    const job = await add.enqueue({ a: 1, b: 2 });
    expect(job).toMatchObject({ name: 'add', status: 'pending', outcome: 'created', failCount: 0 });
    expect(await mill.jobs.result(job.id)).toBe(3);
    expect(await mill.jobs.get(job.id)).toMatchObject({
      status: 'completed',
      result: 3,
      lockedAt: null,
      failCount: 0,
    });
  }),

  fact('runs every job of a backlog exactly once', async ({ aMill }) => {
    const mill = aMill();
    const seen = new Map<number, number>();
    const all = gate();
    const count = mill.job<{ n: number }>('count', (job) => {
      seen.set(job.data.n, (seen.get(job.data.n) ?? 0) + 1);
      if (seen.size === 2_000) all.open();
    });
    await count.enqueueMany(Array.from({ length: 2_000 }, (_, n) => ({ data: { n } })));
    await mill.start();
    await all.promise;
    await mill.stop();
    expect([...seen.values()].every((times) => times === 1)).toBe(true);
    expect(await mill.jobs.count({ status: 'completed' })).toBe(2_000);
  }),
]);
