import type { MongoClient } from 'mongodb';
import { peer } from '../contender.js';
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
  tuned100: { reactiveTaskConcurrency: 100 },
};

interface Context {
  readonly watchedValues: { readonly data: Data };
  readonly getDocument: () => Promise<unknown>;
}

async function open(client: MongoClient, place: ReactivePlace): Promise<ReactiveContender> {
  const { database, variant, fetch = false, debounce, runs = true } = place;
  const mongodash = await peer('mongodash');
  const instanceId = `bench-${process.pid}`;
  const errors: string[] = [];
  let passes = 0;
  await mongodash.init({
    mongoClient: client,
    instanceId,
    ...variants[variant as keyof typeof variants],
    ...(runs ? {} : { reactiveTaskFilter: () => false }),
    runCronTasks: false,
    onInfo: ({ code }: { code?: string }) => {
      if (code === 'reactiveTaskPlannerReconciliationFinished') passes += 1;
    },
    onError: (error: Error) => {
      if (errors.length === 0) console.error('mongodash:', error);
      errors.push(error.message);
    },
  });
  const globals = client.db(database).collection('_mongodash_globals');
  return {
    start: async (run) => {
      await mongodash.reactiveTask({
        task: TASK,
        collection: SOURCE,
        watchProjection: { data: 1 },
        ...(debounce === undefined ? {} : { debounce }),
        handler: async ({ watchedValues, getDocument }: Context) => {
          run(watchedValues.data);
          if (fetch) await getDocument();
        },
      });
      await mongodash.startReactiveTasks();
    },
    reconcile: (pass) => passed(() => passes, pass),
    leads: async () => (await globals.findOne({ 'lock.instanceId': instanceId })) !== null,
    extra: () => ({ errors }),
    stop: () => mongodash.stopReactiveTasks(),
  };
}

export const contender: ReactiveModule = {
  variants: { default: { reactiveTaskConcurrency: '5 (default)' }, tuned100: variants.tuned100 },
  taskOf: (id) => ({ sourceDocId: id, task: TASK }),
  unfinished: {
    task: TASK,
    nextRunAt: { $type: 'date' },
    status: { $in: ['pending', 'processing', 'processing_dirty'] },
  },
  open,
};
