/** Uses the types of mongodash as its documentation shows them. Compiled against both libraries, and never run. */
import {
  countReactiveTasks,
  cronTask,
  getCollection,
  getCronTasksList,
  getMongoClient,
  getPrometheusMetrics,
  getReactiveTasks,
  init,
  isLockAlreadyAcquiredError,
  processInBatches,
  reactiveTask,
  registerPostCommitHook,
  retryReactiveTasks,
  runCronTask,
  scheduleCronTaskImmediately,
  startCronTasks,
  startReactiveTasks,
  stopCronTasks,
  stopReactiveTasks,
  TaskConditionFailedError,
  withLock,
  withTransaction,
} from 'tidemill/compat/mongodash';
import {
  assertNoReactiveTaskErrors,
  configureForTesting,
  waitUntil,
  waitUntilReactiveTasksIdle,
} from 'tidemill/compat/mongodash/testing';

interface Order {
  readonly _id: string;
  readonly status: 'new' | 'paid';
  readonly total: number;
}

configureForTesting();
await init({
  uri: 'mongodb://localhost/app',
  runCronTasks: false,
  onError: (error) => console.error(error.message),
  onInfo: ({ message, code }) => console.log(message, code),
});

await reactiveTask<Order>({
  task: 'sync',
  collection: 'orders',
  filter: { status: 'paid' },
  watchProjection: { total: 1 },
  debounce: '2s',
  retryPolicy: { type: 'exponential', min: '10s', max: '1h', maxAttempts: 5 },
  handler: async (context) => {
    const order: Order = await context.getDocument();
    if (order.total < 0) throw new TaskConditionFailedError('negative');
    if (order.total === 0) context.deferCurrent(5_000);
    if (order.total > 1_000) context.throttleAll(60_000);
    await withTransaction(async (session) => {
      registerPostCommitHook(session, () => console.log(context.docId));
      await context.markCompleted({ session });
    });
  },
});
await cronTask('report', 'CRON 0 3 * * *', async () => undefined);
await cronTask('ping', '5m', () => console.log('ping'));
await startReactiveTasks();
startCronTasks();
await runCronTask('ping');
await scheduleCronTaskImmediately('report');

const { items, total } = await getReactiveTasks({ task: 'sync', status: 'failed' }, { limit: 20 });
const attempts: number = items.reduce((sum, { attempts: more }) => sum + more, 0);
const failed: number = await countReactiveTasks({ task: 'sync' });
await retryReactiveTasks({ task: 'sync' });
const cron = await getCronTasksList();
const next: Date | undefined = cron.items[0]?.nextRunAt;
const metrics = (await getPrometheusMetrics()) !== null;

try {
  await withLock('books', async () => total, { maxWaitForLock: 0, expireIn: 30_000 });
} catch (error) {
  if (!isLockAlreadyAcquiredError(error)) throw error;
}
await processInBatches(
  getCollection<Order>('orders'),
  { status: 'new' },
  (order) => ({ updateOne: { filter: { _id: order._id }, update: { $set: { status: 'paid' as const } } } }),
  async (operations) => {
    await getCollection<Order>('orders').bulkWrite(operations);
  },
  { batchSize: 100 },
);

await waitUntil(() => attempts + failed > 0, { timeoutMs: 1_000 });
await waitUntilReactiveTasksIdle({ timeoutMs: 1_000 });
await assertNoReactiveTaskErrors({ since: new Date() });
console.log(next, metrics);
stopCronTasks();
await stopReactiveTasks();
await getMongoClient().close();
