// runs in: npm run check
//
// Keeping another system in step with a collection. The other system is down for a moment, documents change in bursts,
// and fields change that it does not care about.
import assert from 'node:assert/strict';
import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { Tidemill } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';
import { quiet, until } from './support/until.js';

interface Order {
  _id: number;
  status: 'cart' | 'paid';
  total: number;
  note?: string;
}

await using server = await startMongo();
await using client = await new MongoClient(server.uri).connect();
const orders = client.db('erp').collection<Order>('orders');
await using mill = new Tidemill({ store: mongodb({ client, database: 'erp' }), logger: false });

/** The other system: down at first, and it takes an order of the same number as a replacement. */
const erp = { down: true, calls: 0, orders: new Map<number, number>() };
const push = async ({ _id, total }: Order): Promise<void> => {
  erp.calls += 1;
  if (erp.down) throw new Error('503 Service Unavailable');
  erp.orders.set(_id, total);
};

await mill.reactiveTask<Order>({
  task: 'sync-order',
  collection: 'orders',
  filter: { status: 'paid' },
  // Without `total` here, a corrected total of a paid order would never reach the ERP.
  watchProjection: { status: 1, total: 1 },
  debounce: { wait: '150ms', maxWait: '5s' }, // quiet for so long, or changing for so long
  retryPolicy: { type: 'fixed', interval: '50ms', maxAttempts: -1 },
  handler: async ({ getDocument }) => push(await getDocument()),
});
await mill.start();

// Down: the attempt is repeated until the ERP is back.
await orders.insertOne({ _id: 1, status: 'paid', total: 90 });
await until('two attempts have failed', () => erp.calls >= 2);
erp.down = false;
await until('order 1 is in the ERP', () => erp.orders.get(1) === 90);

// A burst of changes is one run, with the last state.
const before = erp.calls;
for (let total = 91; total <= 100; total += 1) await orders.updateOne({ _id: 1 }, { $set: { total } });
await until('the last total is in the ERP', () => erp.orders.get(1) === 100);
await quiet(200);
assert.equal(erp.calls - before, 1);

// A field that is not watched, and an order that is not paid, mean nothing to it.
await orders.updateOne({ _id: 1 }, { $set: { note: 'ring twice' } });
await orders.insertOne({ _id: 2, status: 'cart', total: 5 });
await quiet(300);
assert.equal(erp.calls - before, 1);
assert.deepEqual([...erp.orders], [[1, 100]]);
console.log(`order 1 is in the ERP with its last total, ${String(erp.orders.get(1))}`);
