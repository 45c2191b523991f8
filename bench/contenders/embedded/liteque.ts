import { peer, type Contender, type Payload, type Place } from '../contender.js';
import { fileIn, type EmbeddedModule } from './contender.js';

const variants = {
  jobs1: { concurrency: 1, pollIntervalMs: 10 },
  jobs100: { concurrency: 100, pollIntervalMs: 10 },
};

/** A queue in SQLite that deletes finished jobs. It has no call for many. */
async function open(place: Place): Promise<Contender> {
  const { buildDBClient, Runner, SqliteQueue } = await peer('liteque');
  const database = buildDBClient(fileIn(place), { runMigrations: true, walEnabled: true });
  const queue = new SqliteQueue('noop', database, {
    defaultJobArgs: { numRetries: 3 },
    keepFailedJobs: true,
  });
  const settings = { timeoutSecs: 60, ...variants[place.variant as keyof typeof variants] };
  let runner: { run: () => Promise<void>; stop: () => void } | undefined;
  return {
    enqueue: (data) => queue.enqueue(data),
    fill: async (count) => {
      for (let n = 0; n < count; n += 1) await queue.enqueue({ n });
    },
    start: (run) => {
      const handler = async ({ data }: { data: Payload }): Promise<void> => run(data);
      runner = new Runner(queue, { run: handler }, settings);
      void runner?.run();
      return Promise.resolve();
    },
    finished: async () => {
      const { pending, pending_retry: retrying, running } = (await queue.stats()) as Record<string, number>;
      return [pending, retrying, running].every((count) => count === 0);
    },
    stop: () => {
      runner?.stop();
      return Promise.resolve();
    },
  };
}

export const contender: EmbeddedModule = {
  title: 'liteque, on better-sqlite3',
  variants,
  packages: ['liteque', 'better-sqlite3'],
  open,
};
