import { MongoClient } from 'mongodb';
import { built } from '../lib/built.js';
import { scheduled } from '../lib/scheduled.js';
import type { Contender, ContenderModule, Payload, Place } from './contender.js';

const variants = {
  serial: { concurrency: 1 },
  at10: { concurrency: 10 },
  at100: { concurrency: 100 },
};

async function open(client: MongoClient, { database, variant }: Place): Promise<Contender> {
  const { concurrency } = variants[variant as keyof typeof variants];
  const [{ Tidemill }, { mongodb }] = await Promise.all([built('index'), built('mongodb')]);
  const mill = new Tidemill({ store: mongodb({ client, database }) });
  const own = await scheduled(client.db(database).collection('jobs'));
  let schedule: { stop(): Promise<void> } | undefined;
  return {
    ...own,
    start: async (run) => {
      const documents = mill.documents<{ data: Payload }>({
        collection: 'jobs',
        concurrency,
        onDocument: ({ data }) => run(data),
        onError: (error) => console.error('documents:', error),
      });
      schedule = documents;
      // Started alone, like mongodb-cron: without the mill's lease and polling.
      await documents.start();
    },
    stop: async () => {
      await schedule?.stop();
      await mill.stop();
    },
  };
}

export const contender: ContenderModule = {
  title: 'Tidemill, document schedules',
  variants,
  packages: [],
  driver: () => Promise.resolve(MongoClient),
  open,
};
