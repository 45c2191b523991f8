import { expect, it } from 'vitest';
import { payloads } from '../../src/testing/conformance/facts/payload.js';
import { aMill } from '../support/mills.js';
import { eachStore, eachStoreProves } from '../support/stores.js';

eachStoreProves(payloads);

eachStore('payloads beyond the limit', ({ open, name: kind }) => {
  it.runIf(kind === 'mongodb')(
    'fail the attempt, and not the database, when data and result together are too large',
    async () => {
      const mill = aMill(open());
      mill.job<string>(
        'echo',
        { retryPolicy: { type: 'fixed', interval: 0, maxAttempts: 1 } },
        (job) => job.data,
      );
      mill.job('next', () => 'ran');
      await mill.start();
      const job = await mill.enqueue('echo', 'x'.repeat(12_000_000));
      await expect(mill.jobs.result(job.id)).rejects.toThrow('exceed what the database can hold');
      expect(await mill.jobs.result((await mill.enqueue('next', {})).id)).toBe('ran');
    },
  );
});
