/** What behaves differently on purpose, as one line of JSON. */
import {
  countReactiveTasks,
  getCollection,
  getMongoClient,
  init,
  reactiveTask,
  startReactiveTasks,
  stopCronTasks,
  stopReactiveTasks,
  waitUntil,
  waitUntilReactiveTasksIdle,
} from 'tidemill/compat/mongodash';

const [, , uri = ''] = process.argv;
const results: Record<string, unknown> = {};
const ran: string[] = [];
await init({ uri, onError: () => undefined, onInfo: () => undefined });
const things = getCollection<{ _id: string; kind: string; size: number }>('things');
const define = (kind: string, debounce: number): Promise<void> =>
  reactiveTask<{ _id: string; kind: string; size: number }>({
    task: kind,
    collection: 'things',
    filter: { kind },
    watchProjection: { size: 1 },
    debounce,
    handler: async ({ docId, getDocument }) => {
      ran.push(docId);
      await getDocument();
    },
  });
const count = (id: string): number => ran.filter((one) => one === id).length;
await define('plain', 20);
await define('waits', 1_000);
await startReactiveTasks();

await things.insertOne({ _id: 'back', kind: 'plain', size: 1 });
await waitUntil(() => count('back') === 1);
await things.updateOne({ _id: 'back' }, { $set: { kind: 'away' } });
await things.insertOne({ _id: 'marker', kind: 'plain', size: 1 });
await waitUntil(() => count('marker') === 1);
await things.updateOne({ _id: 'back' }, { $set: { kind: 'plain' } });
await things.insertOne({ _id: 'marker 2', kind: 'plain', size: 1 });
await waitUntil(() => count('marker 2') === 1);
await waitUntilReactiveTasksIdle();
results['comes back with the same values'] = count('back');

await things.insertOne({ _id: 'gone', kind: 'waits', size: 1 });
await waitUntil(async () => (await countReactiveTasks({ task: 'waits', status: 'pending' })) === 1);
await things.updateOne({ _id: 'gone' }, { $set: { kind: 'away' } });
await waitUntil(async () => (await countReactiveTasks({ task: 'waits', status: 'completed' })) === 1);
results['left the filter before its task started'] = count('gone') === 0 ? 'not called' : 'called';

results['is defined after the start'] = await define('late', 20).then(
  () => 'accepted',
  () => 'refused',
);
stopCronTasks();
await stopReactiveTasks();
console.log(JSON.stringify(results));
await getMongoClient().close();
