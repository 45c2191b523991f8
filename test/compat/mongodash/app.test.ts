import { beforeAll, expect, it } from 'vitest';
import { fetchPackages } from '../../../scripts/fetch.mjs';
import { runOn, type Pair } from '../../support/originals.js';
import { freshUri } from '../../support/stores.js';

const PAIR: Pair = { entry: 'tidemill/compat/mongodash', original: 'mongodash/dist/lib/index.js' };
const app = new URL('../apps/mongodash/app.ts', import.meta.url);

beforeAll(() => fetchPackages('test/originals'), 600_000);

it('an application written for mongodash does the same with one import changed', async () => {
  const [original, ours] = await Promise.all([
    runOn('original', app, PAIR, [freshUri()]),
    runOn('ours', app, PAIR, [freshUri()]),
  ]);
  expect(ours).toEqual(original);
  expect(ours).toMatchObject({
    receipts: [
      { _id: 'a', total: 10, sent: 1 },
      { _id: 'b', total: 25, sent: 2 },
      { _id: 'c', total: 300, sent: 1 },
    ],
    ledger: [
      { _id: 'a', total: 10 },
      { _id: 'b', total: 25 },
      { _id: 'c', total: 300 },
      { _id: 'closed', total: 0 },
    ],
    charges: 3,
    retried: { modifiedCount: 1 },
    booked: ['in the transaction', 'after the commit'],
    locked: true,
  });
});
