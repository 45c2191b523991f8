import pg from 'pg';
import { peer, type Contender, type Payload, type Place } from '../contender.js';
import { CONNECTIONS, driverOf, type PostgresModule } from './contender.js';

const variants = {
  /** For throughput: the settings that its documentation measures with. */
  local500: {
    concurrentJobs: 24,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
  /** A local queue twice as long. */
  local1000: {
    concurrentJobs: 24,
    localQueue: { size: 1_000 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
  /** As many jobs at once, without the local queue. */
  jobs24: { concurrentJobs: 24 },
  /** Its own defaults: one job at a time. */
  default: {},
};

const BATCH = 5_000;

/** By default it logs a line for every job. */
async function silentLogger(): Promise<unknown> {
  const { Logger } = await peer('graphile-worker');
  return new Logger(() => () => undefined);
}

async function open({ uri, variant }: Place): Promise<Contender> {
  const settings = variants[variant as keyof typeof variants];
  const { makeWorkerUtils, run: runWorker, WorkerPreset } = await peer('graphile-worker');
  const preset = {
    extends: [WorkerPreset],
    worker: {
      connectionString: uri,
      maxPoolSize: CONNECTIONS,
      logger: await silentLogger(),
      ...settings,
    },
  };
  const utils = await makeWorkerUtils({ preset });
  await utils.migrate();
  const pool = new pg.Pool({ connectionString: uri, max: 1 });
  const insert = (data: readonly Payload[]): Promise<unknown> =>
    utils.addJobs(data.map((payload) => ({ identifier: 'noop', payload })));
  let runner: { stop: () => Promise<void> } | undefined;
  return {
    enqueue: (data) => utils.addJob('noop', data),
    enqueueMany: insert,
    fill: async (count) => {
      for (let from = 0; from < count; from += BATCH)
        await insert(Array.from({ length: Math.min(BATCH, count - from) }, (_, n) => ({ n: from + n })));
    },
    start: async (run) => {
      const taskList = { noop: (payload: Payload) => run(payload) };
      runner = await runWorker({ preset, taskList, noHandleSignals: true });
    },
    finished: async () =>
      (await pool.query('select from graphile_worker._private_jobs limit 1')).rowCount === 0,
    stop: async () => {
      await runner?.stop();
      await utils.release();
      await pool.end();
    },
  };
}

export const contender: PostgresModule = {
  title: 'graphile-worker',
  variants,
  packages: ['graphile-worker'],
  pg: () => driverOf('graphile-worker'),
  open,
};
