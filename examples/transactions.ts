// runs in: npm run check
//
// Jobs and your own writes in one MongoDB transaction: a job that exists if and only if the order does, and a completion
// that happens if and only if the handler's write does.
import assert from 'node:assert/strict';
import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { Tidemill } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';

await using server = await startMongo();
const client = await new MongoClient(server.uri).connect();
const orders = client.db('shop').collection<{ _id: string; charged: number }>('orders');
await client.db('shop').createCollection('orders');

// A client of your own: transactions span its collections and the jobs. It is yours to close.
const mill = new Tidemill({ store: mongodb({ client, database: 'shop' }), logger: false });

let calls = 0;
const charge = mill.job<{ order: string }>(
  'charge',
  { retryPolicy: { type: 'fixed', interval: '50ms' } },
  async (job) => {
    calls += 1;
    await mill.withTransaction(async (transaction) => {
      const { order } = job.data;
      await orders.updateOne({ _id: order }, { $inc: { charged: 1 } }, { session: transaction });
      await job.complete({ transaction, result: 'charged' });
      // Fails after both writes and before the commit, the first time: neither is kept.
      if (job.attempt === 1) throw new Error('the power went out');
    });
  },
);

// 1. Aborted: neither the order nor the job exists.
await assert.rejects(
  mill.withTransaction(async (transaction) => {
    await orders.insertOne({ _id: 'A', charged: 0 }, { session: transaction });
    await charge.enqueue({ order: 'A' }, { transaction });
    throw new Error('changed my mind');
  }),
  /changed my mind/u,
);
assert.equal(await orders.countDocuments(), 0);
assert.equal(await mill.jobs.count({ name: 'charge' }), 0);

// 2. Committed, here with a session of the driver's own: both exist.
const { id } = await client.withSession((session) =>
  session.withTransaction(async () => {
    await orders.insertOne({ _id: 'B', charged: 0 }, { session });
    return charge.enqueue({ order: 'B' }, { session });
  }),
);

// 3. The handler runs twice, its write happens once.
await mill.start();
assert.equal(await mill.jobs.result(id, { timeout: '20s' }), 'charged');
assert.equal(calls, 2);
assert.deepEqual(await orders.findOne({ _id: 'B' }), { _id: 'B', charged: 1 });

await mill.stop();
await client.close();
console.log('called twice, charged once');
