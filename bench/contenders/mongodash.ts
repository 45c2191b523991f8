import { MongoClient } from 'mongodb';
import { documents } from '../lib/documents.js';
import { peer, type Contender, type ContenderModule, type Payload, type Place } from './contender.js';

const variants = {
  /** A document in a watched collection is the job. The planner writes a task for it, which the workers run. */
  reactive: { reactiveTaskConcurrency: 100, debounce: 0 },
  /** A task id is the job: as many ids as jobs, all due at once, each run once. */
  cron: { cronTaskConcurrency: 100, interval: '1d' },
};

const quiet = { onInfo: () => undefined, onError: (error: unknown) => console.error('mongodash:', error) };

async function reactive(client: MongoClient, database: string): Promise<Contender> {
  const mongodash = await peer('mongodash');
  const { reactiveTaskConcurrency, debounce } = variants.reactive;
  await mongodash.init({ mongoClient: client, reactiveTaskConcurrency, runCronTasks: false, ...quiet });
  const items = client.db(database).collection('items');
  return {
    enqueue: (data) => items.insertOne({ data }),
    enqueueMany: (data) => items.insertMany(data.map((one) => ({ data: one }))),
    fill: async (count) => {
      for (const batch of documents(count))
        await items.insertMany(batch.map(({ _id, data }) => ({ _id, data })));
    },
    start: async (run) => {
      const handler = async (context: { watchedValues: { data: Payload } }): Promise<void> =>
        run(context.watchedValues.data);
      await mongodash.reactiveTask({
        collection: 'items',
        task: 'noop',
        watchProjection: { data: 1 },
        debounce,
        handler,
      });
      await mongodash.startReactiveTasks();
    },
    finished: async () =>
      (await client
        .db(database)
        .collection('items_tasks')
        .findOne({ status: { $nin: ['completed', 'failed'] } })) === null,
    stop: () => mongodash.stopReactiveTasks(),
  };
}

async function cron(client: MongoClient, database: string, jobs: number): Promise<Contender> {
  const mongodash = await peer('mongodash');
  const { cronTaskConcurrency, interval } = variants.cron;
  await mongodash.init({ mongoClient: client, cronTaskConcurrency, runCronTasks: false, ...quiet });
  const tasks = client.db(database).collection('cronTasks');
  const current: { run: (data: Payload) => void } = { run: () => undefined };
  for (let n = 0; n < jobs; n += 1) {
    await mongodash.cronTask(`noop${n}`, interval, async () => current.run({ n }));
  }
  return {
    enqueue: ({ n }) => mongodash.scheduleCronTaskImmediately(`noop${n}`),
    // All have been due for a while, as after a night without workers.
    fill: async () => {
      await tasks.updateMany({}, { $set: { runSince: new Date(Date.now() - 60_000) } });
    },
    start: async (run) => {
      current.run = run;
      mongodash.startCronTasks();
    },
    finished: async () =>
      (await tasks.findOne({ $or: [{ runSince: { $lte: new Date() } }, { lockedTill: { $ne: null } }] })) ===
      null,
    stop: async () => mongodash.stopCronTasks(),
  };
}

export const contender: ContenderModule = {
  title: 'mongodash',
  variants,
  packages: ['mongodash'],
  driver: () => Promise.resolve(MongoClient),
  open: (client, place: Place) =>
    place.variant === 'cron'
      ? cron(client, place.database, place.jobs ?? 1)
      : reactive(client, place.database),
};
