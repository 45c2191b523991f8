/**
 * An application that moves from mongodash to Tidemill with its data. With `before` it fills the database and lets its
 * tasks run; with `after` it only runs them. Prints what ran.
 */
import {
  CODE_REACTIVE_TASK_PLANNER_RECONCILIATION_FINISHED as FOUND,
  cronTask,
  getCollection,
  getCronTasksList,
  getMongoClient,
  getReactiveTasks,
  init,
  reactiveTask,
  startReactiveTasks,
  stopCronTasks,
  stopReactiveTasks,
  waitUntil,
  waitUntilReactiveTasksIdle,
} from 'tidemill/compat/mongodash';

const [, , uri = '', phase] = process.argv;
const isBefore = phase === 'before';
const NOTES = 600;
const ran: string[] = [];
const codes: string[] = [];
await init({ uri, onError: () => undefined, onInfo: ({ code }) => codes.push(code), runCronTasks: false });
const docs = getCollection<{ _id: string; title: unknown; live: boolean; meta?: object; other?: number }>(
  'docs',
);
const notes = getCollection<{ _id: number; text: string }>('notes');

await reactiveTask({
  task: 'search.index',
  collection: 'docs',
  filter: { live: true },
  watchProjection: { title: 1, 'meta.lang': 1, size: { $strLenCP: { $toString: '$title' } } },
  debounce: 20,
  handler: async ({ docId }) => void ran.push(`index ${String(docId)}`),
});
await reactiveTask({
  task: 'copy',
  collection: 'notes',
  debounce: 20,
  handler: async ({ docId }) => void ran.push(`copy ${String(docId)}`),
});
await reactiveTask({
  task: 'breaks',
  collection: 'docs',
  filter: { _id: 'bad' as never },
  watchProjection: { title: 1 },
  debounce: 20,
  retryPolicy: { type: 'fixed', interval: '1s', maxAttempts: 1 },
  handler: () => {
    ran.push('breaks');
    return Promise.reject(new Error('broken'));
  },
});
await reactiveTask({
  task: 'waits',
  collection: 'docs',
  filter: { _id: 'slow' as never },
  watchProjection: { title: 1 },
  debounce: 20,
  retryPolicy: { type: 'fixed', interval: '3s', maxAttempts: -1 },
  handler: () => {
    ran.push('waits');
    return isBefore ? Promise.reject(new Error('not yet')) : Promise.resolve();
  },
});
await cronTask('nightly', 'CRON 0 3 * * *', () => void ran.push('nightly'));
await cronTask('soon', 500, () => void ran.push('soon'));
await cronTask('late', 3_600_000, () => void ran.push('late'));
const cron = async (): Promise<unknown> =>
  (await getCronTasksList()).items
    .map(({ _id, nextRunAt }) => [_id, nextRunAt])
    .filter(([id]) => id !== 'soon');

if (isBefore) {
  await notes.insertMany(Array.from({ length: NOTES }, (_, _id) => ({ _id, text: `note ${_id}` })));
  await docs.insertMany([
    { _id: 'same', title: 'a', live: true, meta: { lang: 'cs', other: 1 } },
    { _id: 'touched', title: 'b', live: true },
    { _id: 'changes', title: 'c', live: true },
    { _id: 'leaves', title: 'd', live: true },
    { _id: 'goes', title: 'e', live: true },
    { _id: 'bad', title: 'f', live: false },
    { _id: 'slow', title: 'g', live: false },
  ]);
}
const schedule = await cron();
await startReactiveTasks();
if (isBefore) {
  // Long integers and others are there from the start.
  const total = NOTES + (await docs.countDocuments({ live: true })) + 2;
  const options = { timeoutMs: 60_000 };
  await waitUntil(() => new Set(ran).size === total, options);
  await waitUntil(
    async () => (await getReactiveTasks({ task: 'waits' })).items[0]?.status === 'pending',
    options,
  );
  await waitUntil(async () => (await getReactiveTasks({ status: 'processing' })).total === 0, options);
} else {
  const { startCronTasks } = await import('tidemill/compat/mongodash');
  startCronTasks();
  const options = { timeoutMs: 60_000 };
  // Both collections are looked at again: only then it is known what runs.
  const isFound = (): boolean => codes.filter((code) => code === FOUND).length >= 2;
  await waitUntil(() => isFound() && ran.includes('soon') && ran.includes('waits'), options);
  await waitUntilReactiveTasksIdle(options);
}
stopCronTasks();
await stopReactiveTasks();
const failed = (await getReactiveTasks({ status: 'failed' })).items.map(
  ({ task, sourceDocId, attempts, lastError }) => ({
    task,
    sourceDocId,
    attempts,
    lastError,
  }),
);
// The cron task runs on until it is stopped; what else runs twice must show.
const once = ran.filter((name, at) => (name !== 'soon' && !isBefore) || ran.indexOf(name) === at);
console.log(JSON.stringify({ ran: once.sort(), failed, schedule }));
await getMongoClient().close();
