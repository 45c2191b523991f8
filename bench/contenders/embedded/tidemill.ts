import { built } from '../../lib/built.js';
import type { Contender, Payload, Place } from '../contender.js';
import { folderOf, type EmbeddedModule } from './contender.js';

const variants = { default: {}, tuned100: { concurrency: 100 }, tuned500: { concurrency: 500 } };
const BATCH = 5_000;

async function open(place: Place): Promise<Contender> {
  const given = variants[place.variant as keyof typeof variants];
  const [{ Tidemill }, { embedded }] = await Promise.all([built('index'), built('embedded')]);
  const mill = new Tidemill({ store: embedded({ dir: folderOf(place) }), logger: false, ...given });
  await mill.jobs.find({}, { limit: 1 }); // opens the folder and creates the schema
  return {
    enqueue: (data) => mill.enqueue('noop', data),
    enqueueMany: (data) => mill.enqueueMany(data.map((one) => ({ name: 'noop', data: one }))),
    fill: async (count) => {
      for (let from = 0; from < count; from += BATCH)
        await mill.enqueueMany(
          Array.from({ length: Math.min(BATCH, count - from) }, (_, n) => ({
            name: 'noop',
            data: { n: from + n },
          })),
        );
    },
    start: (run) => {
      mill.job<Payload>('noop', given, ({ data }) => run(data));
      return mill.start();
    },
    finished: async () => (await mill.jobs.count({ name: 'noop', status: ['pending', 'processing'] })) === 0,
    extra: () => ({ claims: mill.health().claims }),
    stop: () => mill.stop(),
  };
}

export const contender: EmbeddedModule = {
  title: 'Tidemill',
  variants: {
    default: { concurrency: '50 in all, 5 per name (defaults)' },
    tuned100: { concurrency: 100 },
    tuned500: { concurrency: 500 },
  },
  packages: [],
  open,
};
