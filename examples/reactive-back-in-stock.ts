// runs in: npm run check
//
// Telling people that something is back in stock, and only while it is true. `getDocument` answers the document if it
// still exists, still matches, and its watched fields are still those that started the task; otherwise it throws, and
// the attempt ends as skipped.
import assert from 'node:assert/strict';
import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { TaskConditionFailedError, Tidemill } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';
import { until } from './support/until.js';

interface Item {
  _id: string;
  stock: number;
}

await using server = await startMongo();
await using client = await new MongoClient(server.uri).connect();
const items = client.db('stock').collection<Item>('items');
await using mill = new Tidemill({ store: mongodb({ client, database: 'stock' }), logger: false });

const told: string[] = [];
let calls = 0;
let caught: unknown;
let meanwhile: (() => Promise<unknown>) | undefined;

await mill.reactiveTask<Item>({
  task: 'back-in-stock',
  collection: 'items',
  filter: { stock: { $gt: 0 } },
  watchProjection: { inStock: { $gt: ['$stock', 0] } }, // computed: 5 or 4 left makes no difference
  debounce: '50ms',
  handler: async ({ getDocument }) => {
    calls += 1;
    // Whatever takes time comes first (who subscribed?), the check last, right before the effect.
    await meanwhile?.();
    const item = await getDocument().catch((error: unknown) => {
      caught = error;
      throw error; // not ours to swallow: it is what ends the attempt as skipped
    });
    told.push(`${item._id}: ${String(item.stock)}`);
  },
});
const state = async (): Promise<string> => {
  const task = await mill.tasks.get('back-in-stock', 'lamp');
  const history = task?.executionHistory?.map(({ status }) => status) ?? [];
  return [task?.status, ...history].join(' ');
};
await items.insertOne({ _id: 'lamp', stock: 0 });
await mill.start();

// 1. Sold out again while the task waits: the claim sees it, and the handler is not called at all.
//    (Paused meanwhile, so that it surely waits for long enough.)
await mill.tasks.pause('back-in-stock');
await items.updateOne({ _id: 'lamp' }, { $set: { stock: 1 } });
await until('the task waits', async () => (await state()) === 'pending');
await items.updateOne({ _id: 'lamp' }, { $set: { stock: 0 } });
await mill.tasks.resume('back-in-stock');
await until('the task is skipped', async () => (await state()) === 'completed skipped');
assert.equal(calls, 0);

// 2. Sold out while the handler is at it: `getDocument` sees it.
meanwhile = () => items.updateOne({ _id: 'lamp' }, { $set: { stock: 0 } });
await items.updateOne({ _id: 'lamp' }, { $set: { stock: 1 } });
await until('the attempt is skipped', async () => (await state()) === 'completed skipped skipped');
assert.equal(calls, 1);
assert.ok(caught instanceof TaskConditionFailedError);
assert.deepEqual(told, []);

// 3. A version that was skipped was not handled: it is back, with the same watched values, and now it stays.
meanwhile = undefined;
await items.updateOne({ _id: 'lamp' }, { $set: { stock: 3 } });
await until('people are told', () => told.length === 1);
await until('it is recorded', async () => (await state()) === 'completed skipped skipped completed');
assert.deepEqual(told, ['lamp: 3']);
console.log('told once, when it was true:', told[0]);
