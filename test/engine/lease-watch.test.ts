import { expect, it, onTestFinished } from 'vitest';
import { LeaseWatch } from '../../src/engine/lease/lease-watch.js';
import { memory } from '../../src/memory/index.js';
import type { Registration } from '../../src/store/port.js';
import { virtualClock } from '../../src/testing/index.js';
import { aRegistration, opened } from '../support/port.js';

const LEASE_MS = 30_000;

async function aWatch(...registrations: readonly Registration[]) {
  const clock = virtualClock(Date.now());
  const { instances } = await opened(memory({ clock }));
  for (const one of registrations) await instances.register(one);
  let reads = 0;
  const list: typeof instances.list = () => {
    reads += 1;
    return instances.list();
  };
  const watch = new LeaseWatch({
    store: { list },
    clock,
    leaseMs: LEASE_MS,
    self: () => registrations[0]!,
    error: (error) => expect.unreachable(String(error)),
  });
  onTestFinished(() => watch.stop());
  return { watch, clock, instances, reads: () => reads };
}

const running = (life: string, fields: Partial<Registration> = {}): Registration =>
  aRegistration({ instanceId: life, life, names: ['a', 'b'], leaseMs: LEASE_MS, ...fields });

it('an instance has a place among the live instances that run the same names', async () => {
  const task = { task: 't', definition: 'd', trigger: 'x', version: 1 };
  const { watch, clock, instances } = await aWatch(
    running('m'),
    running('z', { names: ['b', 'a'] }),
    running('c', { tasks: [task] }),
    running('b', { names: ['b'] }),
    running('a', { leaseMs: 1 }),
    running('dead', { leaseMs: 1 }),
  );
  await clock.advance(10);
  await instances.fence({ instanceId: 'dead', life: 'dead' });
  expect(watch.place('jobs')).toEqual({ rank: 0, of: 1 });
  watch.look();
  await clock.advance(0);
  expect(watch.place('jobs')).toEqual({ rank: 1, of: 3 });
  expect(watch.place('tasks')).toEqual({ rank: 1, of: 3 });
});

it('an instance reads the leases once per lease while it is alone, unless it may have to lead', async () => {
  const { watch, clock, instances, reads } = await aWatch(running('m'));
  watch.look();
  await clock.advance(0);
  const renew = async (times: number): Promise<number> => {
    const before = reads();
    for (let n = 0; n < times; n += 1) {
      watch.renewed();
      await clock.advance(LEASE_MS / 3);
      await instances.renew(running('m'));
    }
    return reads() - before;
  };
  expect(await renew(9)).toBe(3);
  watch.watchClosely();
  expect(await renew(9)).toBe(9);
});

it('an instance reads the leases after each renewal while there are others', async () => {
  const { watch, clock, reads } = await aWatch(running('m'), running('z'));
  watch.look();
  await clock.advance(0);
  for (let n = 0; n < 9; n += 1) {
    watch.renewed();
    await clock.advance(LEASE_MS / 3);
  }
  expect(reads()).toBe(10);
});

it('readings of the leases reach all observers', async () => {
  const { watch, clock } = await aWatch(running('m'), running('z'));
  const seen: string[][] = [];
  for (let n = 0; n < 2; n += 1) watch.join(({ instances }) => seen.push(instances.map(({ life }) => life)));
  watch.look();
  await clock.advance(0);
  expect(seen).toEqual([
    ['m', 'z'],
    ['m', 'z'],
  ]);
});
