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
