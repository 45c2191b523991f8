import { MongoClient } from 'mongodb';
import { scheduled } from '../lib/scheduled.js';
import { peer, type Contender, type ContenderModule, type Place } from './contender.js';

const variants = {
  default: { loops: 1, nextDelay: 0, idleDelay: 0 },
  loops1: { loops: 1, nextDelay: 0, idleDelay: 100 },
  loops10: { loops: 10, nextDelay: 0, idleDelay: 100 },
  loops100: { loops: 100, nextDelay: 0, idleDelay: 100 },
};

async function open(client: MongoClient, { database, variant }: Place): Promise<Contender> {
  const { loops, nextDelay, idleDelay } = variants[variant as keyof typeof variants];
  const { MongoCron } = await peer('mongodb-cron');
  const jobs = client.db(database).collection('jobs');
  // It has no call to enqueue: inserting a document makes a job.
  const own = await scheduled(jobs);
  const workers: any[] = [];
  return {
    ...own,
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
