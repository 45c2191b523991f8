import { expect, it } from 'vitest';
import { eachStore } from '../../support/stores.js';
import { aMill, gate, until } from '../../support/mills.js';

const LARGE = 'x'.repeat(500_000);

eachStore('large payloads', ({ name, open }) => {
  it.skipIf(name === 'memory')('jobs of 500 kB are prefetched by weight, not by number', async () => {
    const mill = aMill(open(), { concurrency: 2 });
    const end = gate();
    let ran = 0;
    const seen: object[] = [];
    mill.on('job:start', ({ job }) => void seen.push(job));
    mill.job<{ text: string; long: boolean }>('large', { concurrency: 2 }, async ({ data }) => {
      ran += 1;
      if (data.long) await end.promise;
    });
    // Two at the end hold both slots, after the rest has shown that the jobs are short.
    const jobs = Array.from({ length: 32 }, (_, n) => ({
      name: 'large',
      data: { text: LARGE, long: n >= 20 },
      priority: n >= 20 ? 0 : 1,
    }));
    await mill.enqueueMany(jobs);
    await mill.start();
    await until('long ones hold both slots', () => ran === 22 && mill.health().running === 2);
    expect(mill.health().buffered).toBeLessThanOrEqual(8);
    end.open();
    await until('the rest has run', () => ran === 32);
    // How much a job weighs is between store and engine.
    for (const job of seen) expect(job).not.toHaveProperty('bytes');
    expect(seen).toHaveLength(32);
  });

  it.skipIf(name === 'memory')('large jobs after small ones are claimed a few at a time', async () => {
    const mill = aMill(open(), { concurrency: 2 });
    let ran = 0;
    let mostBuffered = 0;
    mill.job<{ text: string }>('varied', { concurrency: 2 }, () => {
      ran += 1;
      mostBuffered = Math.max(mostBuffered, mill.health().buffered);
    });
    await mill.start();
    await mill.enqueueMany(Array.from({ length: 20 }, () => ({ name: 'varied', data: { text: '' } })));
    await until('the small ones have run', () => ran === 20);
    const runAt = new Date(Date.now() + 3_000);
    await mill.enqueueMany(
      Array.from({ length: 60 }, () => ({ name: 'varied', data: { text: LARGE }, runAt })),
    );
    mostBuffered = 0;
    await until('the large ones have run', () => ran === 80);
    expect(mostBuffered).toBeLessThanOrEqual(16);
  });
});
