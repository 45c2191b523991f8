// runs in: npm run check
//
// A filter that depends on the time. A document that comes to match because time passes is not written, so no change
// tells of it: `reconcileEvery` looks again. What does not match any more is cleaned up.
import assert from 'node:assert/strict';
import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { OptionError, Tidemill } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';
import { quiet, until } from './support/until.js';

interface Order {
  _id: string;
  status: 'open' | 'paid';
  createdAt: Date;
}

await using server = await startMongo();
await using client = await new MongoClient(server.uri).connect();
const orders = client.db('reminders').collection<Order>('orders');
await using mill = new Tidemill({
  store: mongodb({ client, database: 'reminders' }),
  reactive: { cleanupInterval: '200ms' }, // in earnest: a day, which is the default
  logger: false,
});

const reminded: string[] = [];
const PATIENCE_MS = 1000; // in earnest: a day
const remind = {
  task: 'remind-of-open-order',
  collection: 'orders',
  watchProjection: { _id: 1 },
  debounce: 0,
  reconcileEvery: '200ms', // in earnest: '5m', or 'CRON 0 * * * *'
  cleanupPolicy: { deleteWhen: 'sourceDocumentDeletedOrNoLongerMatching', keepFor: '100ms' },
  handler: ({ docId }: { docId: unknown }) => void reminded.push(String(docId)),
} as const;

// In a query `$$NOW` would be a text like any other, and never match: it is refused, with the fix.
assert.throws(
  () => mill.reactiveTask({ ...remind, filter: { createdAt: { $lte: '$$NOW' } } }),
  (error) => error instanceof OptionError && error.message.includes('$expr'),
);
await mill.reactiveTask({
  ...remind,
  filter: { status: 'open', $expr: { $lte: [{ $add: ['$createdAt', PATIENCE_MS] }, '$$NOW'] } },
});
await mill.start();

await orders.insertOne({ _id: 'o1', status: 'open', createdAt: new Date() });
await quiet(PATIENCE_MS / 4);
assert.deepEqual(reminded, [], 'not yet');
await until('the reminder', () => reminded.length === 1);

// Looked at again and again, but the watched fields are the same: no second reminder.
await quiet(500);
assert.deepEqual(reminded, ['o1']);

// Paid: it does not match any more, and its task goes when `keepFor` has passed since the last run or change.
await orders.updateOne({ _id: 'o1' }, { $set: { status: 'paid' } });
await until('the task is gone', async () => (await mill.countReactiveTasks({ task: remind.task })) === 0);
console.log('reminded once, then cleaned up');
