import { expect, it } from 'vitest';
import { StoreError } from '../../../src/core/errors.js';
import { memory } from '../../../src/memory/index.js';
import { aMill, gate, until } from '../../support/mills.js';

/** A schema whose check takes as long as the test wants. */
const slowSchema = (check: () => Promise<void>) => ({
  '~standard': {
    version: 1 as const,
    vendor: 'test',
    validate: async (value: unknown) => {
      await check();
      return { value };
    },
  },
});

it('does not call the handler of a job whose lease has ended since it was started', async () => {
  const store = memory();
  const mill = aMill(store, { leaseDuration: 600 });
  const [checking, checked] = [gate(), gate()];
  let runs = 0;
  let checks = 0;
  const schema = slowSchema(async () => {
    checks += 1;
    // The first check is that of the enqueue, the second that of the first attempt.
    if (checks !== 2) return;
    checking.open();
    await checked.promise;
  });
  mill.job('late', { schema }, () => {
    runs += 1;
    return `call ${String(runs)}`;
  });
  await mill.start();
  const renew = store.instances.renew.bind(store.instances);
  const lost = gate();
  mill.on('lease:lost', () => lost.open());
  const job = await mill.enqueue('late', {});
  await checking.promise;
  store.instances.renew = () => Promise.reject(new StoreError('away', { transient: true }));
  await lost.promise;
  checked.open();
  await until('the attempt is over', () => mill.health().running === 0);
  expect(runs).toBe(0);
  store.instances.renew = renew;
  expect(await mill.jobs.result(job.id)).toBe('call 1');
  expect(await mill.jobs.get(job.id)).toMatchObject({ failCount: 0 });
});
