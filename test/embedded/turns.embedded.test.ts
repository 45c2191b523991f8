import { describe, expect, it } from 'vitest';
import { borrowed } from '../../src/embedded/driver.js';
import { sharedEmbedded, useEmbedded } from '../support/stores.js';

describe('the embedded driver', () => {
  useEmbedded();

  it('yields to the event loop with each query and each transaction', async () => {
    const driver = borrowed(sharedEmbedded());
    const calls = [
      () => driver.query('select 1'),
      () => driver.transaction((transaction) => transaction.query('select 1')),
      () => driver.query('select 1/0').catch(() => undefined),
    ];
    for (const call of calls) {
      let turned = false;
      setImmediate(() => (turned = true));
      await call();
      expect(turned).toBe(true);
    }
  });
});
