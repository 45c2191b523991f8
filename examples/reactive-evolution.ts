// runs in: npm run check
//
// A task changes from one release to the next. A wider filter is applied to what is there already; a raised
// `handlerVersion` says which finished tasks run again. Both are done once, by the leader, whoever deploys how often.
import assert from 'node:assert/strict';
import { startMongo } from '@tidemill/servers';
import { MongoClient, type ClientSession } from 'mongodb';
import { Tidemill, type ReactiveTaskDefinition } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';
import { quiet, until } from './support/until.js';

interface Order {
  _id: string;
  amount: number;
}

await using server = await startMongo();
await using client = await new MongoClient(server.uri).connect();
const orders = client.db('evolution').collection<Order>('orders');
const handled: string[] = [];

/** One process of one release. */
function release(version: string, changes: Partial<ReactiveTaskDefinition<Order, ClientSession>>): Tidemill {
  const mill = new Tidemill({ store: mongodb({ client, database: 'evolution' }), logger: false });
  void mill.reactiveTask<Order>({
    task: 'process-order',
    collection: 'orders',
    watchProjection: { amount: 1 },
    debounce: 0,
    handler: ({ docId }) => void handled.push(`${version} ${String(docId)}`),
    ...changes,
  });
  return mill;
}
const settled = async (mill: Tidemill, completed: number, failed: number): Promise<boolean> =>
  (await mill.countReactiveTasks({ status: 'completed' })) === completed &&
  (await mill.countReactiveTasks({ status: 'failed' })) === failed;

await orders.insertMany([
  { _id: 'small', amount: 75 },
  { _id: 'large', amount: 150 },
  { _id: 'odd', amount: 333 },
]);

// Release 1: orders above 100, and a bug.
const old = {
  filter: { amount: { $gt: 100 } },
  retryPolicy: { type: 'fixed', interval: 0, maxAttempts: 1 },
  handler: ({ docId }: { docId: unknown }) => {
    if (docId === 'odd') throw new Error('a bug');
    handled.push(`v1 ${String(docId)}`);
  },
} as const;
const v1 = release('v1', old);
await v1.start();
await until('release 1 is done', () => settled(v1, 1, 1));
await v1.stop();
assert.deepEqual(handled.splice(0), ['v1 large']);

// Release 2: the bug is gone, and orders above 50 count as well. What was completed stays so.
const v2 = release('v2', {
  filter: { amount: { $gt: 50 } },
  evolution: { handlerVersion: 2, onHandlerVersionChange: 'reprocess_failed' },
});
await v2.start();
await until('release 2 is done', () => settled(v2, 3, 0));
assert.deepEqual(handled.splice(0).sort(), ['v2 odd', 'v2 small']);

// A process of release 1 that is still about, or comes back, changes nothing: the highest version among the living is
// in force. Nor does a restart of release 2 run anything again.
const straggler = release('v1', old);
await straggler.start();
await quiet(500);
await Promise.all([straggler.stop(), v2.stop()]);
assert.deepEqual(handled, []);
console.log('release 2 ran what failed and what the wider filter brought, and nothing else');
