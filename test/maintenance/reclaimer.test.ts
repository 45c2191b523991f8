import { expect, it, onTestFinished } from 'vitest';
import { Reclaimer } from '../../src/maintenance/reclaimer.js';
import { memory } from '../../src/memory/index.js';
import type { Instance } from '../../src/store/port.js';
import { virtualClock } from '../../src/testing/index.js';
import { anInstance, opened } from '../support/port.js';

const LEASE_MS = 1_000;

it('fences a dead instance that it may not bury once per lease, however often it looks', async () => {
  const clock = virtualClock(Date.now());
  const { instances } = await opened(memory({ clock }));
  const [self, dead] = [anInstance(), anInstance()];
  const registration = { names: [], tasks: [], policies: {}, host: 'h', pid: 1 };
  await instances.register({ ...self, ...registration, leaseMs: 3_600_000 });
  await instances.register({ ...dead, ...registration, leaseMs: 1 });
  const fenced: string[] = [];
  const freed: string[] = [];
  const fence = (instance: Instance): ReturnType<typeof instances.fence> => {
    fenced.push(instance.life);
    return instances.fence(instance);
  };
  const reclaimer = new Reclaimer({
    store: { clock, instances: { ...instances, fence } },
    leaseMs: LEASE_MS,
    detector: { observe: () => undefined, waitMs: ({ leftMs }) => leftMs, graceMs: 0 },
    host: {
      self,
      handovers: [],
      mayBury: () => Promise.resolve(false),
      drop: ({ life }) => Promise.resolve(void freed.push(life)),
      dropUnregistered: () => Promise.resolve(),
      error: (error) => expect.unreachable(String(error)),
    },
  });
  onTestFinished(() => reclaimer.stop());
  const look = async (): Promise<void> => {
    reclaimer.observe(await instances.list());
    await clock.advance(LEASE_MS / 20);
  };
  for (let looks = 0; looks < 10; looks += 1) await look();
  expect(fenced).toEqual([dead.life]);
  for (let looks = 0; looks < 20; looks += 1) await look();
  expect(fenced).toEqual([dead.life, dead.life]);
  // Nothing of it counts against limits any more, although another instance has to bury it.
  expect(freed).toEqual([dead.life, dead.life]);
});
