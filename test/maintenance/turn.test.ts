import { expect, it } from 'vitest';
import { clusterTurn } from '../../src/maintenance/turn.js';
import { memory } from '../../src/memory/index.js';
import { virtualClock } from '../../src/testing/index.js';
import { aMill } from '../support/mills.js';

it('gives a turn to one instance per period, and the next one to the first that asks', async () => {
  const clock = virtualClock();
  const { locks } = memory({ clock });
  const [a, b] = [clusterTurn(locks, 'a', 'sweep'), clusterTurn(locks, 'b', 'sweep')];
  expect([await a(60_000), await b(60_000), await a(60_000)]).toEqual([true, false, false]);
  expect(await clusterTurn(locks, 'b', 'other work')(60_000)).toBe(true);
  await clock.advance('1m');
  expect([await b(60_000), await a(60_000)]).toEqual([true, false]);
});

it('sweeps and looks for strays about once per period in the whole cluster', async () => {
  const clock = virtualClock();
  const store = memory({ clock });
  const counts = { strays: 0, sweeps: 0 };
  const { jobs } = store;
  const [strays, sweep] = [jobs.strays.bind(jobs), jobs.sweep?.bind(jobs)];
  jobs.strays = (query) => {
    counts.strays += 1;
    return strays(query);
  };
  jobs.sweep = (now) => {
    counts.sweeps += 1;
    return sweep?.(now) ?? Promise.resolve(0);
  };
  for (let n = 0; n < 10; n += 1) {
    const mill = aMill(store, { leaseDuration: '30s' });
    mill.job('x', () => undefined);
    await mill.start();
    await clock.advance('1s');
  }
  await clock.advance('10m');
  expect(counts.sweeps).toBeGreaterThanOrEqual(8);
  expect(counts.sweeps).toBeLessThanOrEqual(12);
  expect(counts.strays).toBeGreaterThanOrEqual(16);
  expect(counts.strays).toBeLessThanOrEqual(24);
});
