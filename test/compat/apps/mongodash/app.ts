/**
 * A shop that was written for mongodash: it sends receipts, keeps a ledger, charges cards that fail at first, prints a
 * report every night and closes its books. Prints what it has done as one line of JSON.
 */
import {
  cronTask,
  getCollection,
  getCronTasksList,
  getMongoClient,
  getReactiveTasks,
  init,
  isLockAlreadyAcquiredError,
  processInBatches,
  reactiveTask,
  registerPostCommitHook,
  retryReactiveTasks,
  runCronTask,
  startReactiveTasks,
  stopCronTasks,
  stopReactiveTasks,
  waitUntil,
  waitUntilReactiveTasksIdle,
  withLock,
  withTransaction,
} from 'tidemill/compat/mongodash';

interface Order {
  _id: string;
  status: 'new' | 'paid' | 'shipped';
  total: number;
  note?: string;
}

interface Count {
  _id: string;
  count: number;
}

const errors: string[] = [];
await init({
  uri: process.argv[2] ?? '',
  onError: (error) => errors.push(error.message),
  onInfo: () => undefined,
});

const orders = getCollection<Order>('orders');
const receipts = getCollection<{ _id: string; total: number; sent: number }>('receipts');
const ledger = getCollection<{ _id: string; total: number }>('ledger');
const counters = getCollection<Count>('counters');
for (const name of ['receipts', 'ledger', 'counters']) await getMongoClient().db().createCollection(name);

const count = async (_id: string): Promise<number> => {
  await counters.updateOne({ _id }, { $inc: { count: 1 } }, { upsert: true });
  return (await counters.findOne({ _id }))?.count ?? 0;
};

await reactiveTask<Order>({
  task: 'send-receipt',
  collection: 'orders',
  filter: { status: 'paid' },
  watchProjection: { status: 1, total: 1 },
  debounce: 50,
  handler: async (context) => {
    const { _id, total } = await context.getDocument();
    await receipts.updateOne({ _id }, { $set: { total }, $inc: { sent: 1 } }, { upsert: true });
  },
});

await reactiveTask<Order>({
  task: 'keep-ledger',
  collection: orders,
  filter: { status: { $in: ['paid', 'shipped'] } },
  watchProjection: { total: 1 },
  debounce: 50,
  handler: async ({ getDocument, markCompleted }) => {
    await withTransaction(async (session) => {
      const { _id, total } = await getDocument({ session });
      await ledger.updateOne({ _id }, { $set: { total } }, { upsert: true, session });
      await markCompleted({ session });
    });
  },
});

let isBankOpen = false;
await reactiveTask<Order>({
  task: 'charge-card',
  collection: 'orders',
  filter: { $expr: { $gte: ['$total', 100] } },
  watchProjection: { total: 1 },
  debounce: 50,
  retryPolicy: { type: 'fixed', interval: '50ms', maxAttempts: 2 },
  handler: async ({ docId }) => {
    await count(`charge ${docId}`);
    if (!isBankOpen) throw new Error('The bank is closed.');
  },
});

await cronTask('count-orders', 200, async () => {
  await count('count-orders');
});
await cronTask('report', 'CRON 0 3 * * *', async () => {
  await processInBatches(
    orders,
    { status: 'paid' },
    ({ _id, total }) => ({ updateOne: { filter: { _id }, update: { $set: { note: `total ${total}` } } } }),
    async (operations) => {
      await orders.bulkWrite(operations);
    },
    { batchSize: 2 },
  );
});

await startReactiveTasks();
await orders.insertMany([
  { _id: 'a', status: 'new', total: 10 },
  { _id: 'b', status: 'paid', total: 20 },
  { _id: 'c', status: 'paid', total: 300 },
]);
await waitUntil(async () => (await receipts.countDocuments()) === 2);
await orders.updateOne({ _id: 'a' }, { $set: { status: 'paid' } });
await orders.updateOne({ _id: 'b' }, { $set: { note: 'nobody watches this' } });
await waitUntil(async () => (await receipts.countDocuments()) === 3);
await orders.updateOne({ _id: 'b' }, { $set: { total: 25 } });
await waitUntil(async () => (await receipts.findOne({ _id: 'b' }))?.total === 25);
await orders.updateOne({ _id: 'a' }, { $set: { status: 'shipped' } });
const failed = { task: 'charge-card', status: 'failed' as const };
await waitUntil(async () => (await getReactiveTasks(failed)).total === 1);
const refused = await getReactiveTasks({ ...failed, errorMessage: 'bank is' });
isBankOpen = true;
const retried = await retryReactiveTasks({ task: 'charge-card', sourceDocFilter: { total: { $gte: 100 } } });
await waitUntil(async () => (await getReactiveTasks({ ...failed, status: 'completed' })).total === 1);
await waitUntilReactiveTasksIdle();

await runCronTask('report');
const report = (await getCronTasksList({ filter: 'report' })).items[0];
await waitUntil(async () => ((await counters.findOne({ _id: 'count-orders' }))?.count ?? 0) >= 2);

const booked: string[] = [];
await withTransaction(async (session) => {
  registerPostCommitHook(session, () => void booked.push('after the commit'));
  await ledger.updateOne({ _id: 'closed' }, { $set: { total: 0 } }, { upsert: true, session });
  booked.push('in the transaction');
});
const locked = await withLock('books', () =>
  withLock('books', () => Promise.resolve('twice'), { maxWaitForLock: 100 }).catch((error: unknown) =>
    isLockAlreadyAcquiredError(error, 'books'),
  ),
);

stopCronTasks();
await stopReactiveTasks();
console.log(
  JSON.stringify({
    receipts: await receipts.find().sort({ _id: 1 }).toArray(),
    ledger: await ledger.find().sort({ _id: 1 }).toArray(),
    orders: await orders.find().sort({ _id: 1 }).toArray(),
    charges: (await counters.findOne({ _id: 'charge c' }))?.count,
    refused: refused.items.map(({ task, sourceDocId, attempts, lastError, nextRunAt }) => ({
      task,
      sourceDocId,
      attempts,
      lastError,
      nextRunAt,
    })),
    retried,
    report: { status: report?.status, error: report?.lastRun?.error, isRegistered: report?.isRegistered },
    booked,
    locked,
    errors,
  }),
);
await getMongoClient().close();
