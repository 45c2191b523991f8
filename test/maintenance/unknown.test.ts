import { expect, it } from 'vitest';
import { StoreError } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';
import { virtualClock } from '../../src/testing/index.js';
import { aMill } from '../support/mills.js';

const LEASE_MS = 1_000;

it('hands back a claim that landed late, however long looking for it failed', async () => {
  const clock = virtualClock(Date.now());
  const store = memory({ clock });
  const jobs = { ...store.jobs };
  let isAway = false;
  const away = (): StoreError => new StoreError('no answer', { transient: true });
  Object.assign(store.jobs, {
    // The first claim is given up, and takes effect afterwards.
    claim: async (request: Parameters<typeof jobs.claim>[0]) => {
      if (isAway) return jobs.claim({ ...request, total: 0 });
      isAway = true;
      clock.timer(2 * LEASE_MS, () => void jobs.claim(request));
      throw away();
    },
    heldBy: (...given: Parameters<typeof jobs.heldBy>) =>
      isAway ? Promise.reject(away()) : jobs.heldBy(...given),
  });
  const mill = aMill(store, { leaseDuration: LEASE_MS });
  mill.job('step', () => undefined);
  const { id } = await mill.enqueue('step', {}, { delay: 100 });
  await mill.start();
  await clock.advance(8 * LEASE_MS);
  expect(await mill.jobs.get(id)).toMatchObject({ status: 'processing' });
  isAway = false;
  Object.assign(store.jobs, jobs);
  await clock.advance(4 * LEASE_MS);
  expect(await mill.jobs.get(id)).toMatchObject({ status: 'completed', failCount: 0 });
});

it('does not hand back a claim whose lost answer is still being looked up', async () => {
  const clock = virtualClock(Date.now());
  const store = memory({ clock });
  const jobs = { ...store.jobs };
  const away = (): StoreError => new StoreError('no answer', { transient: true });
  let isLost = false;
  Object.assign(store.jobs, {
    claim: async (request: Parameters<typeof jobs.claim>[0]) => {
      const answer = await jobs.claim(request);
      if (isLost || answer.jobs.length === 0) return answer;
      isLost = true;
      throw away();
    },
    // Read at once, but answered only after several leases.
    claimedUnder: async (...given: Parameters<typeof jobs.claimedUnder>) => {
      const claimed = await jobs.claimedUnder(...given);
      await new Promise<void>((resolve) => void clock.timer(4 * LEASE_MS, resolve));
      return claimed;
    },
  });
  const mill = aMill(store, { leaseDuration: LEASE_MS });
  const runs: string[] = [];
  mill.job('step', (job) => void runs.push(job.id));
  const { id } = await mill.enqueue('step', {}, { delay: 100 });
  await mill.start();
  await clock.advance(10 * LEASE_MS);
  expect(runs).toEqual([id]);
  expect(await mill.jobs.get(id)).toMatchObject({ status: 'completed', failCount: 0 });
});

it('takes nothing from a process that registered while the search for strays was paused', async () => {
  const clock = virtualClock(Date.now());
  const store = memory({ clock });
  const jobs = { ...store.jobs };
  const newcomer = aMill(store, { leaseDuration: LEASE_MS });
  let end: () => void = () => undefined;
  newcomer.job('long', () => new Promise<void>((resolve) => (end = resolve)));
  let searches = 0;
  Object.assign(store.jobs, {
    // The list of instances is read; then, before the search, another process starts and claims.
    strays: async (query: Parameters<typeof jobs.strays>[0]) => {
      searches += 1;
      if (searches === 1) {
        await newcomer.start();
        await new Promise<void>((resolve) => void clock.timer(2 * LEASE_MS, resolve));
      }
      return jobs.strays(query);
    },
  });
  const paused = aMill(store, { leaseDuration: LEASE_MS });
  paused.job('other', () => undefined);
  const { id } = await paused.enqueue('long', {});
  await paused.start();
  await clock.advance(8 * LEASE_MS);
  expect(searches).toBeGreaterThan(1);
  expect(await paused.jobs.get(id)).toMatchObject({ status: 'processing', failCount: 0 });
  end();
  await clock.advance(LEASE_MS);
  expect(await paused.jobs.get(id)).toMatchObject({ status: 'completed', failCount: 0 });
});

it('keeps the permits of a claim whose answer was lost when it stops, until its work is handed on', async () => {
  const clock = virtualClock(Date.now());
  const store = memory({ clock });
  const jobs = { ...store.jobs };
  const away = (): StoreError => new StoreError('no answer', { transient: true });
  let isLost = false;
  let together = 0;
  Object.assign(store.jobs, {
    claim: async (request: Parameters<typeof jobs.claim>[0]) => {
      const answer = await jobs.claim(request);
      if (isLost || answer.jobs.length === 0) return answer;
      isLost = true;
      throw away();
    },
    claimedUnder: () => Promise.reject(away()),
  });
  const [first, second] = ['first', 'second'].map((instanceId) => {
    const mill = aMill(store, { instanceId, leaseDuration: LEASE_MS });
    mill.job('step', { limits: { concurrency: 1 } }, async () => {
      const { items } = await mill.jobs.find({ status: 'processing' });
      together = Math.max(together, items.length);
    });
    return mill;
  }) as [ReturnType<typeof aMill>, ReturnType<typeof aMill>];
  const ids = (await first.enqueueMany([1, 2].map(() => ({ name: 'step', data: {}, delay: 100 })))).map(
    ({ id }) => id,
  );
  await first.start();
  await clock.advance(5 * LEASE_MS);
  expect(isLost).toBe(true);
  const stopped = first.stop({ timeout: 0 });
  await clock.advance(LEASE_MS);
  await stopped;
  await second.start();
  await clock.advance(20 * LEASE_MS);
  expect(together).toBe(1);
  for (const id of ids) expect(await second.jobs.get(id)).toMatchObject({ status: 'completed' });
});
