import { MongoClient, type ChangeStream } from 'mongodb';
import { createIndexes, jobIndexes } from '../../src/mongodb/indexes.js';
import { document, documents } from '../lib/documents.js';
import { rawProcess } from '../lib/raw.js';
import type { Contender, ContenderModule, Payload, Place } from './contender.js';

const batches = {
  all100: { size: 100, indexes: 'all of Tidemill' },
  all500: { size: 500, indexes: 'all of Tidemill' },
  claim100: { size: 100, indexes: 'the one of the claim' },
  claim500: { size: 500, indexes: 'the one of the claim' },
};

const variants = {
  ...batches,
  /** A change stream on inserts, whose events start the handler. */
  stream: { size: 1, indexes: 'all of Tidemill' },
};

/** The plain driver: no library can be faster with the same statements. It retries nothing and recovers nothing. */
async function open(client: MongoClient, { database, variant, jobs: count = 0 }: Place): Promise<Contender> {
  const { size, indexes } = variants[variant as keyof typeof variants];
  const jobs = client.db(database).collection('jobs', { writeConcern: { w: 'majority' } });
  const plans = jobIndexes(false).filter(
    ({ name }) => indexes.startsWith('all') || name === 'tidemill_claim',
  );
  await createIndexes(jobs, plans);
  let stream: ChangeStream | undefined;
  const watch = async (run: (data: Payload) => void): Promise<void> => {
    stream = jobs.watch([{ $match: { operationType: 'insert' } }], { maxAwaitTimeMS: 10_000 });
    const opened = new Promise((resolve) => stream?.once('resumeTokenChanged', resolve));
    stream.on('change', (event) => {
      if (event.operationType === 'insert') run(event.fullDocument['data'] as Payload);
    });
    await opened;
  };
  return {
    enqueue: (data) => jobs.insertOne({ ...document(data.n), data }),
    enqueueMany: (data) =>
      jobs.insertMany(
        data.map((one) => document(one.n)),
        { ordered: false },
      ),
    fill: async (total) => {
      for (const batch of documents(total)) await jobs.insertMany(batch, { ordered: false });
    },
    start: async (run) => {
      if (variant === 'stream') await watch(run);
      else void rawProcess(jobs, count, size, run);
    },
    finished: async () => (await jobs.findOne({ status: { $in: ['pending', 'processing'] } })) === null,
    stop: async () => stream?.close(),
  };
}

export const contender: ContenderModule = {
  title: 'raw driver',
  variants,
  packages: [],
  driver: () => Promise.resolve(MongoClient),
  open,
};
