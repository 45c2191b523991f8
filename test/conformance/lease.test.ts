import { expect, it } from 'vitest';
import { memory } from '../../src/memory/index.js';
import { instances, leases } from '../../src/testing/conformance/facts/lease.js';
import { aRegistration } from '../../src/testing/conformance/fixtures.js';
import { virtualClock } from '../../src/testing/index.js';
import { aMill } from '../support/mills.js';
import { aClaim, aJob, opened } from '../support/port.js';
import { eachStoreProves } from '../support/stores.js';

eachStoreProves(instances);
eachStoreProves(leases);

it('the work of a process that died runs elsewhere within a lease and five seconds', async () => {
  const clock = virtualClock(Date.now());
  const store = await opened(memory({ clock }));
  const dead = aRegistration({ leaseMs: 30_000 });
  await store.instances.register(dead);
  const diedAt = clock.now();
  await store.jobs.insert([aJob({ nextRunAt: new Date(diedAt) })]);
  await store.jobs.claim(aClaim(dead));
  const mill = aMill(store);
  const ranAt: number[] = [];
  mill.job('work', () => void ranAt.push(clock.now()));
  await mill.start();
  await clock.advance('29s');
  expect(ranAt).toEqual([]);
  await clock.advance('6s');
  expect(ranAt).toHaveLength(1);
});
