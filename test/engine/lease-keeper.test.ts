import { expect, it } from 'vitest';
import type { Clock } from '../../src/core/clock.js';
import { LeaseKeeper } from '../../src/engine/lease/lease-keeper.js';
import { memory } from '../../src/memory/index.js';

it('a lease ends on time even if the timer of a suspended process has not fired yet', async () => {
  let now = 0;
  const clock: Clock = {
    now: () => now,
    monotonic: () => now,
    timer: () => ({ cancel: () => undefined }),
  };
  const ignore = (): void => undefined;
  const keeper = new LeaseKeeper({
    store: memory().instances,
    clock,
    instanceId: 'a',
    leaseMs: 1_000,
    host: {
      describe: () => ({ names: [], tasks: [], policies: {} }),
      lost: ignore,
      regained: ignore,
      renewed: ignore,
      failed: ignore,
    },
  });
  await keeper.start();
  expect(keeper.held).toBe(true);
  now = 999;
  expect(keeper.held).toBe(true);
  now = 1_000;
  expect(keeper.held).toBe(false);
});
