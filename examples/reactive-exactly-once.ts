// runs in: npm run check
//
// A handler may run twice. What it writes to the database happens exactly once all the same, if the task's completion is
// part of the same transaction: `complete({ transaction })`. Here it dies, in effect, at the worst moments.
import assert from 'node:assert/strict';
import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { Tidemill } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';
import { until } from './support/until.js';

interface Payment {
  _id: string;
  account: string;
  amount: number;
}

await using server = await startMongo();
await using client = await new MongoClient(server.uri).connect();
const db = client.db('bank');
const payments = db.collection<Payment>('payments');
const accounts = db.collection<{ _id: string; balance: number }>('accounts');
await using mill = new Tidemill({ store: mongodb({ client, database: 'bank' }), logger: false });

let calls = 0;
await mill.reactiveTask<Payment>({
  task: 'book-payment',
  collection: 'payments',
  watchProjection: { amount: 1 },
  debounce: 0,
  retryPolicy: { type: 'fixed', interval: '50ms' },
  handler: async ({ attempt, getDocument, complete }) => {
    calls += 1;
    await client.withSession((session) =>
      session.withTransaction(async () => {
        const { account, amount } = await getDocument({ session });
        await accounts.updateOne({ _id: account }, { $inc: { balance: amount } }, { session });
        await complete({ session });
        // Before the commit: neither the booking nor the completion is kept, and the task runs again.
        if (attempt === 1) throw new Error('the power went out');
      }),
    );
    // After the commit: both are kept. The task is completed already, whatever the handler does now.
    throw new Error('and again');
  },
});
await accounts.insertOne({ _id: 'ada', balance: 100 });
await payments.insertOne({ _id: 'p1', account: 'ada', amount: 20 });
await mill.start();

await until('the payment is booked', async () => {
  return (await mill.countReactiveTasks({ task: 'book-payment', status: 'completed' })) === 1;
});
const task = await mill.tasks.get('book-payment', 'p1');
assert.equal(calls, 2);
assert.deepEqual(
  task?.executionHistory?.map(({ status }) => status),
  ['failed', 'completed'],
);
assert.deepEqual(await accounts.findOne({ _id: 'ada' }), { _id: 'ada', balance: 120 });
console.log('called twice, booked once');
