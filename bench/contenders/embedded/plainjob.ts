import { peer, type Contender, type Payload, type Place } from '../contender.js';
import { fileIn, type EmbeddedModule } from './contender.js';

const QUIET = { error: console.error, warn: () => undefined, info: () => undefined, debug: () => undefined };
const variants = { default: {}, poll10: { pollIntervall: 10 } };
const PENDING = 0;
const PROCESSING = 1;

/** A queue in SQLite. Its calls are synchronous, and it runs one job at a time. */
async function open(place: Place): Promise<Contender> {
  const [{ better, defineQueue, defineWorker }, { default: Database }] = await Promise.all([
    peer('plainjob'),
    peer('better-sqlite3'),
  ]);
  const queue = defineQueue({ connection: better(new Database(fileIn(place))), logger: QUIET });
  const settings = variants[place.variant as keyof typeof variants];
  let worker: { start: () => Promise<void>; stop: () => Promise<void> } | undefined;
  const left = (status: number): number => Number(queue.countJobs({ type: 'noop', status }));
  return {
    enqueue: (data) => Promise.resolve(queue.add('noop', data)),
    enqueueMany: (data) => Promise.resolve(queue.addMany('noop', data)),
    fill: (count) =>
      Promise.resolve(
        queue.addMany(
          'noop',
          Array.from({ length: count }, (_, n) => ({ n })),
        ),
      ),
    start: (run) => {
      const handler = ({ data }: { data: string }): void => run(JSON.parse(data) as Payload);
      worker = defineWorker('noop', handler, { queue, logger: QUIET, ...settings });
      void worker?.start();
      return Promise.resolve();
    },
    finished: () => Promise.resolve(left(PENDING) + left(PROCESSING) === 0),
    stop: async () => {
      await worker?.stop();
      queue.close();
    },
  };
}

export const contender: EmbeddedModule = {
  title: 'plainjob, on better-sqlite3',
  variants: {
    default: { concurrency: 1, pollIntervall: '1000 ms (default)' },
    poll10: { concurrency: 1, pollIntervall: '10 ms' },
  },
  packages: ['plainjob', 'better-sqlite3'],
  open,
};
