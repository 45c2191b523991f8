import { createRequire } from 'node:module';
import type { MongoClient } from 'mongodb';
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
  best: { processEvery: 50, concurrency: 100, lockLimit: 200 },
};

async function open(client: MongoClient, { database, variant }: Place): Promise<Contender> {
  const { processEvery, concurrency, lockLimit } = variants[variant as keyof typeof variants];
  const { Pulse } = await peer('@pulsecron/pulse');
  const db = client.db(database);
  const pulse = new Pulse({
    mongo: db,
    processEvery: `${processEvery} milliseconds`,
    maxConcurrency: concurrency,
    defaultConcurrency: concurrency,
    lockLimit,
    defaultLockLimit: lockLimit,
    resumeOnRestart: true,
  });
  pulse.processEvery(processEvery);
  const { heard, stopping } = complaints('pulse');
  pulse.on('error', heard);
  const jobs = db.collection('pulseJobs');
  return {
    enqueue: (data) => pulse.now('noop', data),
    fill: async (count) => {
      await pulse.now('noop', { n: 0 });
      await copies(jobs, count);
    },
    start: (run) => {
      pulse.define('noop', async (job: { attrs: { data: Payload } }) => run(job.attrs.data));
      return pulse.start();
    },
    finished: async () =>
      (await jobs.findOne({ $or: [{ nextRunAt: { $ne: null } }, { lockedAt: { $ne: null } }] })) === null,
    stop: () => {
      stopping();
      return pulse.stop();
    },
  };
}

export const contender: ContenderModule = {
  title: 'Pulse',
  variants,
  packages: ['@pulsecron/pulse'],
  // It brings its own driver, an older one than the others are measured with.
  driver: () => {
    const here = createRequire(import.meta.url);
    const driver = createRequire(here.resolve('@pulsecron/pulse'))('mongodb') as {
      MongoClient: typeof MongoClient;
    };
    return Promise.resolve(driver.MongoClient);
  },
  open,
};
