// runs in: npm run check
//
// A task is run by one instance at a time, but two tasks may need the same thing outside their documents. A lock on it
// is taken by what is watched, before anything is fetched; a transaction keeps several collections in step.
import assert from 'node:assert/strict';
import { setTimeout as sleep } from 'node:timers/promises';
import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { Tidemill } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';
import { until } from './support/until.js';

interface Order {
  _id: number;
  account: string;
  amount: number;
}

await using server = await startMongo();
await using client = await new MongoClient(server.uri).connect();
const db = client.db('locks');
const orders = db.collection<Order>('orders');
const totals = db.collection<{ _id: string; amount: number }>('totals');

/** A bank without transactions: it reads, thinks and writes, so two calls at once would lose one of them. */
const bank: Record<string, number> = {};
async function deposit(account: string, amount: number): Promise<void> {
  const balance = bank[account] ?? 0;
  await sleep(10);
  bank[account] = balance + amount;
}

/** One instance of two. */
async function start(): Promise<Tidemill> {
  const mill = new Tidemill({ store: mongodb({ client, database: 'locks' }), logger: false });
  await mill.reactiveTask<Order>({
    task: 'deposit',
    collection: 'orders',
    watchProjection: { account: 1, amount: 1 },
    debounce: 0,
    handler: async ({ watchedValues, getDocument }) => {
      const account = watchedValues['account'] as string;
      const underLock = async (): Promise<void> => deposit(account, (await getDocument()).amount);
      await mill.withLock(`account-${account}`, underLock, { wait: '10s' });
    },
  });
  await mill.reactiveTask<Order>({
    task: 'total',
    collection: 'orders',
    watchProjection: { account: 1, amount: 1 },
    debounce: 0,
    handler: async ({ getDocument, complete }) => {
      await mill.withTransaction(async (session) => {
        const { account, amount } = await getDocument({ session });
        await totals.updateOne({ _id: account }, { $inc: { amount } }, { upsert: true, session });
        await complete({ session });
      });
    },
  });
  await mill.start();
  return mill;
}
await totals.insertMany([
  { _id: 'ada', amount: 0 },
  { _id: 'grace', amount: 0 },
]);
const mills = await Promise.all([start(), start()]);
const accounts = ['ada', 'grace'];
await orders.insertMany(
  Array.from({ length: 10 }, (_, i) => ({ _id: i, account: accounts[i % 2]!, amount: 1 })),
);

await until('all are done', async () => (await mills[0].countReactiveTasks({ status: 'completed' })) === 20);
await Promise.all(mills.map((mill) => mill.stop()));
assert.deepEqual([bank['ada'], bank['grace']], [5, 5]);
assert.deepEqual(
  (await totals.find().toArray()).map(({ amount }) => amount),
  [5, 5],
);
console.log('10 deposits on two accounts by two instances, and none was lost');
