import { MongoClient } from 'mongodb';
import type { Tidemill } from '../../src/index.js';
import { built } from '../lib/built.js';
import { documents } from '../lib/documents.js';
import { CONCURRENCY, LIMIT_SETTINGS, limitedTidemill } from '../lib/limits.js';
import type { Contender, ContenderModule, Payload, Place } from './contender.js';

const tuned = (concurrency: number): { mill: object; job: object } => ({
  mill: { concurrency },
  job: { concurrency },
});

const variants = {
  default: { mill: {}, job: {} },
  tuned100: tuned(100),
  tuned200: tuned(200),
  tuned500: tuned(500),
};

async function open(client: MongoClient, { database, variant }: Place): Promise<Contender> {
  const setting = LIMIT_SETTINGS[variant];
  if (setting !== undefined) return openLimited(client, database, setting);
  const { mill: options, job } = variants[variant as keyof typeof variants];
  const [{ Tidemill }, { mongodb }] = await Promise.all([built('index'), built('mongodb')]);
  const mill = new Tidemill({ store: mongodb({ client, database }), ...options });
  await mill.jobs.find({}, { limit: 1 }); // opens the connection and creates the indexes
  const jobs = client.db(database).collection('tidemill_jobs');
  return {
    enqueue: (data) => mill.enqueue('noop', data),
    enqueueMany: (data) => mill.enqueueMany(data.map((one) => ({ name: 'noop', data: one }))),
    fill: async (count) => {
      for (const batch of documents(count)) await jobs.insertMany(batch, { ordered: false });
    },
    start: (run) => {
      mill.job<Payload>('noop', job, ({ data }) => run(data));
      return mill.start();
    },
    finished: async () =>
      (await jobs.findOne({
        name: 'noop',
        status: { $in: ['pending', 'processing'] },
        nextRunAt: { $lte: new Date() },
      })) === null,
    extra: () => ({ claims: mill.health().claims }),
    stop: () => mill.stop(),
  };
}

async function openLimited(
  client: MongoClient,
  database: string,
  setting: (typeof LIMIT_SETTINGS)[string],
): Promise<Contender> {
  const [{ Tidemill }, { mongodb }] = await Promise.all([built('index'), built('mongodb')]);
  const fill = async (count: number): Promise<void> => {
    for (const batch of documents(count))
      await client.db(database).collection('tidemill_jobs').insertMany(batch, { ordered: false });
  };
  const mill = (): Tidemill =>
    new Tidemill({ store: mongodb({ client, database }), concurrency: CONCURRENCY });
  const contender = limitedTidemill({ mill, setting, fill });
  await contender.finished(); // opens the connection and creates the indexes
  return contender;
}

export const contender: ContenderModule = {
  title: 'Tidemill',
  variants: {
    default: { concurrency: '50 in all, 5 per name (defaults)', prefetch: 'adaptive' },
    tuned100: { concurrency: 100, prefetch: 'adaptive' },
    tuned200: { concurrency: 200, prefetch: 'adaptive' },
    tuned500: { concurrency: 500, prefetch: 'adaptive' },
    ...LIMIT_SETTINGS,
  },
  packages: [],
  driver: () => Promise.resolve(MongoClient),
  open,
};
