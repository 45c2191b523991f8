import pg from 'pg';
import { complaints, peer, type Contender, type Payload, type Place } from '../contender.js';
import { FREE, KEYS } from '../../lib/limits.js';
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
  /** One job of each of 10,000 groups at a time, in the whole cluster. */
  groups: {
    work: { batchSize: 100, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5, groupConcurrency: 1 },
    notify: true,
    groups: 'all',
  },
  /** The same; all groups but ten are at their limit. */
  'groups, 10 free': {
    work: { batchSize: FREE, burstWhenBatchFull: true, pollingIntervalSeconds: 0.5, groupConcurrency: 1 },
    notify: true,
    groups: 'blocked',
  },
};
interface Settings {
  readonly work: object;
  readonly notify: boolean;
  readonly groups?: string;
}

/** Its insert takes any number, but the server limits the length of a statement. */
const BATCH = 5_000;

async function open({ uri, variant }: Place): Promise<Contender> {
  const { work, notify, groups }: Settings = variants[variant as keyof typeof variants];
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
  const held = KEYS - FREE;
  const insertGroups = async (count: number, many: number, from = 0): Promise<void> => {
    const all = Array.from({ length: count }, (_, n) => ({
      data: { n },
      group: { id: `key-${String(from + (n % many))}` },
    }));
    for (let at = 0; at < count; at += BATCH) await boss.insert('noop', all.slice(at, at + BATCH));
  };
  /** A job of each of these groups is active, and two others wait. */
  const block = async (): Promise<void> => {
    await insertGroups(held, held, FREE);
    for (let taken = 0; taken < held;) {
      const jobs: readonly unknown[] = await boss.fetch('noop', { batchSize: held, groupConcurrency: 1 });
      if (jobs.length === 0) throw new Error(`only ${String(taken)} groups could be taken`);
      taken += jobs.length;
    }
    await insertGroups(held * 2, held, FREE);
  };
  return {
    enqueue: (data) => boss.send('noop', data),
    enqueueMany: insert,
    fill: async (count) => {
      if (groups === 'blocked') await block();
      if (groups !== undefined) return insertGroups(count, groups === 'all' ? KEYS : FREE);
      for (let from = 0; from < count; from += BATCH)
        await insert(Array.from({ length: Math.min(BATCH, count - from) }, (_, n) => ({ n: from + n })));
    },
    start: (run) =>
      boss.work('noop', work, async (jobs: readonly { data: Payload }[]) => {
        for (const { data } of jobs) run(data);
      }),
    finished: async () =>
      (
        await pool.query(
          `select from pgboss.job where name = 'noop' and state < 'completed'
           and ($1 or right(group_id, -4)::integer < $2) limit 1`,
          [groups !== 'blocked', FREE],
        )
      ).rowCount === 0,
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
