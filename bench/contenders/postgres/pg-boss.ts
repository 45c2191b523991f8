import pg from 'pg';
import { complaints, peer, type Contender, type Payload, type Place } from '../contender.js';
import { CONNECTIONS, driverOf, type PostgresModule } from './contender.js';

const variants = {
  /** For latency: notifications, and large batches without a pause in between. */
  batch500: {
    work: { batchSize: 500, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5 },
    notify: true,
  },
  /**
   * For throughput: the same with two workers in the process. Neither four workers nor batches of 1,000 were faster.
   */
  twice500: {
    work: { batchSize: 500, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5, localConcurrency: 2 },
    notify: true,
  },
  /** Its own defaults: one job every two seconds. */
  default: { work: {}, notify: false },
};

/** Its insert takes any number, but the server limits the length of a statement. */
const BATCH = 5_000;

async function open({ uri, variant }: Place): Promise<Contender> {
  const { work, notify } = variants[variant as keyof typeof variants];
  const { PgBoss } = await peer('pg-boss');
  const boss = new PgBoss({ connectionString: uri, max: CONNECTIONS, useListenNotify: notify });
  const { heard, stopping } = complaints('pg-boss');
  boss.on('error', heard);
  await boss.start();
  await boss.createQueue('noop', { notify });
  const pool = new pg.Pool({ connectionString: uri, max: 1 });
  const insert = (data: readonly Payload[]): Promise<unknown> =>
    boss.insert(
      'noop',
      data.map((one) => ({ data: one })),
    );
  return {
    enqueue: (data) => boss.send('noop', data),
    enqueueMany: insert,
    fill: async (count) => {
      for (let from = 0; from < count; from += BATCH)
        await insert(Array.from({ length: Math.min(BATCH, count - from) }, (_, n) => ({ n: from + n })));
    },
    start: (run) =>
      boss.work('noop', work, async (jobs: readonly { data: Payload }[]) => {
        for (const { data } of jobs) run(data);
      }),
    finished: async () =>
      (await pool.query(`select from pgboss.job where name = 'noop' and state < 'completed' limit 1`))
        .rowCount === 0,
    stop: async () => {
      stopping();
      await boss.stop({ graceful: false });
      await pool.end();
    },
  };
}

export const contender: PostgresModule = {
  title: 'pg-boss',
  variants,
  packages: ['pg-boss'],
  pg: () => driverOf('pg-boss'),
  open,
};
