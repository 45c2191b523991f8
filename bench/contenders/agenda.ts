import { MongoClient } from 'mongodb';
import {
  complaints,
  peer,
  type Contender,
  type ContenderModule,
  type Payload,
  type Place,
} from './contender.js';
import { copies } from './copies.js';

const variants = {
  /** For throughput: polls often. */
  poll: { processEvery: 50, concurrency: 100, lockLimit: 200, changeStream: false },
  /** For latency: its change-stream notifications, besides a poll every five seconds, its default. */
  stream: { processEvery: 5_000, concurrency: 100, lockLimit: 200, changeStream: true },
  /** Its own defaults. */
  default: { processEvery: 5_000, concurrency: 5, lockLimit: 0, changeStream: false },
};

async function open(client: MongoClient, { database, variant }: Place): Promise<Contender> {
  const { processEvery, concurrency, lockLimit, changeStream } = variants[variant as keyof typeof variants];
  const { Agenda } = await peer('agenda');
  const { MongoBackend, MongoChangeStreamNotificationChannel } = await peer('@agendajs/mongo-backend');
  const db = client.db(database);
  const agenda = new Agenda({
    backend: new MongoBackend({ mongo: db }),
    ...(changeStream ? { notificationChannel: new MongoChangeStreamNotificationChannel({ db }) } : {}),
    processEvery,
    maxConcurrency: Math.max(20, concurrency),
    defaultConcurrency: concurrency,
    lockLimit,
    defaultLockLimit: lockLimit,
  });
  const { heard, stopping } = complaints('agenda');
  agenda.on('error', heard);
  await agenda.ready;
  const jobs = db.collection('agendaJobs');
  return {
    enqueue: (data) => agenda.now('noop', data),
    fill: async (count) => {
      await agenda.now('noop', { n: 0 });
      await copies(jobs, count);
    },
    start: (run) => {
      agenda.define('noop', async (job: { attrs: { data: Payload } }) => run(job.attrs.data));
      return agenda.start();
    },
    finished: async () =>
      (await jobs.findOne({ $or: [{ nextRunAt: { $ne: null } }, { lockedAt: { $ne: null } }] })) === null,
    stop: () => {
      stopping();
      return agenda.stop(false);
    },
  };
}

export const contender: ContenderModule = {
  title: 'Agenda',
  variants,
  packages: ['agenda', '@agendajs/mongo-backend'],
  driver: () => Promise.resolve(MongoClient),
  open,
};
