import { MongoClient } from 'mongodb';
import { documents } from '../lib/documents.js';
import { peer, type Contender, type ContenderModule, type Place } from './contender.js';

const variants = {
  loops1: { loops: 1, nextDelay: 0, idleDelay: 100 },
  loops100: { loops: 100, nextDelay: 0, idleDelay: 100 },
};

async function open(client: MongoClient, { database, variant }: Place): Promise<Contender> {
  const { loops, nextDelay, idleDelay } = variants[variant as keyof typeof variants];
  const { MongoCron } = await peer('mongodb-cron');
  const jobs = client.db(database).collection('jobs');
  // The index that its documentation asks for.
  await jobs.createIndexes([{ key: { sleepUntil: 1 }, sparse: true }]);
  const workers: any[] = [];
  return {
    // Its way of asking for a job is to insert a document.
    enqueue: (data) => jobs.insertOne({ name: 'noop', data, sleepUntil: new Date() }),
    enqueueMany: (data) =>
      jobs.insertMany(data.map((one) => ({ name: 'noop', data: one, sleepUntil: new Date() }))),
    fill: async (count) => {
      for (const batch of documents(count)) {
        await jobs.insertMany(
          batch.map(({ _id, name, data, createdAt }) => ({ _id, name, data, sleepUntil: createdAt })),
        );
      }
    },
    start: async (run) => {
      for (let loop = 0; loop < loops; loop += 1) {
        const worker = new MongoCron({
          collection: jobs,
          onDocument: (document: { data: never }) => run(document.data),
          onError: (error: unknown) => console.error('mongodb-cron:', error),
          nextDelay,
          idleDelay,
        });
        workers.push(worker);
        await worker.start();
      }
    },
    finished: async () => (await jobs.findOne({ sleepUntil: { $ne: null } })) === null,
    stop: async () => {
      await Promise.all(workers.map((worker) => worker.stop()));
    },
  };
}

export const contender: ContenderModule = {
  title: 'mongodb-cron',
  variants,
  packages: ['mongodb-cron'],
  driver: () => Promise.resolve(MongoClient),
  open,
};
