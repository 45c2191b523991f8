// runs in: npm run check
//
// A receiver that limits the rate: it answers 429 and says when to come back. `defer` puts this one task back
// until then. That is no failure, so no attempt is used, and the task's own first due time stays to be seen.
import assert from 'node:assert/strict';
import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { Tidemill } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';
import { until } from './support/until.js';

interface Event {
  _id: string;
  payload: string;
}

await using server = await startMongo();
await using client = await new MongoClient(server.uri).connect();
const events = client.db('webhook').collection<Event>('events');
await using mill = new Tidemill({ store: mongodb({ client, database: 'webhook' }), logger: false });

/** The receiver takes one call in 200 ms. */
const delivered: string[] = [];
let freeAt = 0;
async function post(body: string): Promise<{ status: number; retryAfterMs: number }> {
  const waitMs = freeAt - performance.now();
  if (waitMs > 0) return { status: 429, retryAfterMs: Math.ceil(waitMs) };
  freeAt = performance.now() + 200;
  delivered.push(body);
  return { status: 204, retryAfterMs: 0 };
}

await mill.reactiveTask<Event>({
  task: 'send-webhook',
  collection: 'events',
  watchProjection: { _id: 1 },
  debounce: 0,
  retryPolicy: { type: 'exponential', min: '10s', maxAttempts: 3 },
  handler: async ({ getDocument, defer }) => {
    const { payload } = await getDocument({ projection: { payload: 1 } });
    const { status, retryAfterMs } = await post(payload);
    if (status === 429) defer(retryAfterMs);
    else if (status >= 400) throw new Error(`the receiver answered ${String(status)}`); // the retry policy's matter
  },
});
await mill.start();
await events.insertMany(['a', 'b', 'c', 'd'].map((_id) => ({ _id, payload: `event ${_id}` })));
await until('all four are delivered', () => delivered.length === 4);
await until('all four are completed', async () => {
  return (await mill.countReactiveTasks({ task: 'send-webhook', status: 'completed' })) === 4;
});

const { items } = await mill.getReactiveTasks({ task: 'send-webhook' });
for (const task of items) {
  assert.equal(task.attempts, 1, 'deferrals use no attempt');
  const [last, ...earlier] = task.executionHistory?.map(({ status }) => status).reverse() ?? [];
  assert.equal(last, 'completed');
  assert.ok(earlier.every((status) => status === 'deferred'));
  if (earlier.length > 0) assert.ok(task.initialScheduledAt < task.scheduledAt, 'the whole wait shows');
}
const deferred = items.filter(({ executionHistory = [] }) => executionHistory.length > 1).length;
assert.ok(deferred >= 3);
console.log(`delivered ${delivered.join(', ')}; ${String(deferred)} of them had to wait, none failed`);
