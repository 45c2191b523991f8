import type { MongoClient } from 'mongodb';
import { built } from '../../lib/built.js';
import {
  passed,
  SOURCE,
  TASK,
  type Data,
  type ReactiveContender,
  type ReactiveModule,
  type ReactivePlace,
} from './contender.js';

const variants = {
  default: {},
  tuned100: { concurrency: 100 },
};

async function open(client: MongoClient, place: ReactivePlace): Promise<ReactiveContender> {
  const { database, variant, fetch = false, debounce, runs = true } = place;
  const options = variants[variant as keyof typeof variants];
  const [{ Tidemill }, { mongodb }] = await Promise.all([built('index'), built('mongodb')]);
  const mill = new Tidemill({
    store: mongodb({ client, database }),
    reactive: { ...options, ...(runs ? {} : { filter: () => false }) },
  });
  const errors: string[] = [];
  mill.on('error', ({ error, where }) => {
    if (errors.length === 0) console.error(`tidemill (${where}):`, error);
    errors.push(`${where}: ${error.message}`);
  });
  let passes = 0;
  mill.on('reconcile:complete', () => (passes += 1));
  return {
    start: async (run) => {
      await mill.reactiveTask({
        task: TASK,
        collection: SOURCE,
        watchProjection: { data: 1 },
        ...(debounce === undefined ? {} : { debounce }),
        handler: async ({ watchedValues, getDocument }) => {
          run(watchedValues['data'] as Data);
          if (fetch) await getDocument();
        },
      });
      await mill.start();
    },
    reconcile: async (pass) => {
      // The first pass is that of a new task, which Tidemill starts by itself.
      if (pass > 1) await mill.tasks.reconcile(TASK);
      await passed(() => passes, pass);
    },
    leads: () => Promise.resolve(mill.health().leader),
    extra: () => ({ errors }),
    stop: () => mill.stop(),
  };
}

export const contender: ReactiveModule = {
  variants: {
    default: { concurrency: '5 (default)' },
    tuned100: variants.tuned100,
  },
  taskOf: (id) => ({ _id: { task: TASK, id } }),
  unfinished: { task: TASK, status: { $in: ['pending', 'processing', 'processing_dirty'] } },
  open,
};
