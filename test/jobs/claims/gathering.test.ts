import { expect, it, vi } from 'vitest';
import { pause } from '../../../src/core/clock.js';
import { memory } from '../../../src/memory/index.js';
import { virtualClock } from '../../../src/testing/index.js';
import { aMill } from '../../support/mills.js';

/** Runs a backlog of jobs that take 0.5 to 1.5 s, and counts claims. */
async function run({ jobs, concurrency }: { jobs: number; concurrency: number }): Promise<{
  readonly claims: number;
  readonly ms: number;
}> {
  const clock = virtualClock();
  const store = memory({ clock });
  const claim = vi.spyOn(store.jobs, 'claim');
  const mill = aMill(store, { concurrency });
  let ended = 0;
  let lastAt = 0;
  const handler = async ({ data }: { data: { ms: number } }): Promise<void> => {
    await pause(clock, data.ms);
    ended += 1;
    lastAt = clock.now();
  };
  mill.job('long', { concurrency }, handler);
  const lengths = Array.from({ length: jobs }, (_, n) => 500 + ((n * 7_919) % 1_000));
  await mill.enqueueMany(lengths.map((ms) => ({ name: 'long', data: { ms } })));
  await mill.start();
  while (ended < jobs) await clock.advance('1s');
  return { claims: claim.mock.calls.length, ms: lastAt };
}

it('slots that long jobs free one by one are filled several at a time', async () => {
  const { claims } = await run({ jobs: 400, concurrency: 50 });
  expect(claims).toBeLessThan(400 / 2);
});

it('gathering free slots costs at most a twentieth of the time that the jobs take', async () => {
  const { ms } = await run({ jobs: 400, concurrency: 50 });
  // 400 jobs of one second on average, in 50 slots; at the end not all slots are in use.
  expect(ms).toBeLessThan((400 / 50) * 1_000 * 1.05 + 1_500);
});

it('the only slot of an instance is filled at once', async () => {
  const { ms } = await run({ jobs: 10, concurrency: 1 });
  const lengths = Array.from({ length: 10 }, (_, n) => 500 + ((n * 7_919) % 1_000));
  expect(ms).toBe(lengths.reduce((sum, length) => sum + length, 0));
});
