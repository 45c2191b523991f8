import { expect, it } from 'vitest';
import type { Tidemill } from '../../src/index.js';
import { until } from './mills.js';

/** Two mills on one store, in one process but on connections of their own. The worker hardly ever polls. */
export interface WakePair {
  readonly worker: Tidemill;
  readonly operator: Tidemill;
}

/** What wake-ups do on every store that has them. */
export function wakeFacts(source: string, open: () => WakePair): void {
  it(`${source} wakes an idle worker in another process`, async () => {
    const { worker, operator } = open();
    worker.job('x', () => 'ran');
    await worker.start();
    for (let n = 0; n < 5; n += 1) {
      await until('it is idle', () => worker.health().running === 0);
      const job = await operator.enqueue('x', {});
      expect(await operator.jobs.result(job.id, { timeout: '45s' })).toBe('ran');
    }
  });

  it('resuming a name wakes an idle worker', async () => {
    const { worker, operator } = open();
    worker.job('x', () => 'ran');
    worker.job('other', () => 'ran');
    await operator.jobs.pause('x');
    const held = await operator.enqueue('x', {});
    await worker.start();
    const other = await operator.enqueue('other', {});
    await operator.jobs.result(other.id, { timeout: '45s' });
    expect(await operator.jobs.get(held.id)).toMatchObject({ status: 'pending' });
    await operator.jobs.resume('x');
    expect(await operator.jobs.result(held.id, { timeout: '45s' })).toBe('ran');
  });
}
