import pg from 'pg';
import { complaints, peer, type Contender, type Payload, type Place } from '../contender.js';
import { CONNECTIONS, type PostgresModule } from './contender.js';

const variants = {
  jobs100: { concurrency: 100 },
  /** Its own defaults: one job at a time. */
  default: {},
  /** So many that it never refuses. */
  'jobs100 limiter': { concurrency: 100, limiter: { max: 1_000_000, duration: 60_000 } },
};

const BATCH = 1_000;

/** Its PostgreSQL backend, with the repository's driver. */
async function open({ uri, variant }: Place): Promise<Contender> {
  const settings = variants[variant as keyof typeof variants];
  const { Queue, Worker, createPostgresBackend } = await peer('bullmq');
  const connection = { connectionString: uri, max: CONNECTIONS, migrate: true };
  const { heard, stopping } = complaints('bullmq');
  const queue = new Queue('noop', { connection }, createPostgresBackend);
  queue.on('error', heard);
  await queue.waitUntilReady();
  const insert = (data: readonly Payload[]): Promise<unknown> =>
    queue.addBulk(data.map((one) => ({ name: 'noop', data: one })));
  let worker: any;
  return {
    enqueue: (data) => queue.add('noop', data),
    enqueueMany: insert,
    fill: async (count) => {
      for (let from = 0; from < count; from += BATCH)
        await insert(Array.from({ length: Math.min(BATCH, count - from) }, (_, n) => ({ n: from + n })));
    },
    start: async (run) => {
      const handle = async (job: { data: Payload }): Promise<void> => run(job.data);
      worker = new Worker('noop', handle, { connection, ...settings }, createPostgresBackend);
      worker.on('error', heard);
      await worker.waitUntilReady();
    },
    finished: async () => {
      const counts = await queue.getJobCounts('waiting', 'active', 'delayed', 'prioritized');
      return Object.values(counts).every((count) => count === 0);
    },
    stop: async () => {
      stopping();
      await worker?.close(true);
      await queue.close();
    },
  };
}

export const contender: PostgresModule = {
  title: "BullMQ's PostgreSQL backend",
  variants,
  packages: ['bullmq'],
  pg: () => Promise.resolve(pg),
  open,
};
