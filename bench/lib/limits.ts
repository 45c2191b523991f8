/** What the benchmark of limits has in common on both databases: settings by variant, and a backlog with keys. */
import type { KeyedLimits, Tidemill } from '../../src/index.js';
import type { Contender, Payload } from '../contenders/contender.js';

/** Keys of the backlog; in `blocked` runs all but `FREE` of them are at their limit. */
export const KEYS = 10_000;
export const FREE = 10;
/** Due jobs that wait behind the first one of each blocked key. */
const WAITING = 2;
const BATCH = 1_000;
/** Of the mill; each job has its own. */
export const CONCURRENCY = 500;

interface Setting {
  readonly concurrency: number;
  readonly limits?: KeyedLimits;
  readonly keys?: 'all' | 'few' | 'blocked';
}

const perKey = { key: 'key', concurrency: 1 };
const fifo = { perKey: { key: 'key', order: 'fifo' } } as const;

/** By the name of the variant. Limits are so high that they never refuse, but for those of keys. */
export const LIMIT_SETTINGS: Readonly<Record<string, Setting>> = {
  'limits off': { concurrency: 100 },
  'limits concurrency': { concurrency: 100, limits: { concurrency: 100 } },
  'limits rate': { concurrency: 100, limits: { rate: { limit: 1_000_000, per: '1m', burst: 100_000 } } },
  'limits keys': { concurrency: 100, limits: { perKey }, keys: 'all' },
  'limits fifo': { concurrency: 100, limits: fifo, keys: 'all' },
  'limits off, 10 at once': { concurrency: FREE },
  'limits fifo, 10 keys': { concurrency: FREE, limits: fifo, keys: 'few' },
  'limits fifo, 10 free': { concurrency: FREE, limits: fifo, keys: 'blocked' },
};

/** Jobs with keys in turn, from the first key on. */
const keyed = (count: number, keys: number, from = 0): { n: number; key: string }[] =>
  Array.from({ length: count }, (_, n) => ({ n, key: `key-${String(from + (n % keys))}` }));

interface LimitedPlace {
  readonly mill: () => Tidemill;
  readonly setting: Setting;
  /** A backlog without keys, by the fastest way. */
  readonly fill: (count: number) => Promise<void>;
}

async function enqueueAll(mill: Tidemill, payloads: readonly object[]): Promise<void> {
  for (let from = 0; from < payloads.length; from += BATCH)
    await mill.enqueueMany(
      payloads.slice(from, from + BATCH).map((data) => ({
        name: 'noop',
        data,
        key: (data as { key: string }).key,
      })),
    );
}

/** The first job of each of these keys waits for an hour and holds its key; others of the key are due. */
async function block(place: LimitedPlace, count: number): Promise<void> {
  const mill = place.mill();
  let done = 0;
  const all = new Promise<void>((resolve) =>
    mill.job('noop', { concurrency: 500, ...limitsOf(place) }, ({ defer }) => {
      defer('1h');
      if ((done += 1) === count) resolve();
    }),
  );
  await enqueueAll(mill, keyed(count, count, FREE));
  await mill.start();
  await all;
  await mill.stop();
  await enqueueAll(mill, keyed(count * WAITING, count, FREE));
}

const limitsOf = ({ setting: { limits } }: LimitedPlace): { readonly limits?: KeyedLimits } =>
  limits === undefined ? {} : { limits };

/** Tidemill under limits, as a contender. It lacks what only other sections need. */
export function limitedTidemill(place: LimitedPlace): Contender {
  const { concurrency, keys } = place.setting;
  const mill = place.mill();
  const isBlocked = keys === 'blocked';
  const held = KEYS - FREE;
  const left = isBlocked ? held * (1 + WAITING) : 0;
  return {
    enqueue: (data) => mill.enqueue('noop', data),
    fill: async (count) => {
      if (keys === undefined) return place.fill(count);
      if (isBlocked) await block(place, held);
      await enqueueAll(mill, keyed(count, keys === 'all' ? KEYS : FREE));
    },
    start: (run) => {
      mill.job<Payload>('noop', { concurrency, ...limitsOf(place) }, ({ data }) => run(data));
      return mill.start();
    },
    finished: async () =>
      (await mill.jobs.count({ name: 'noop', status: ['pending', 'processing'] })) === left,
    extra: () => ({ claims: mill.health().claims }),
    stop: () => mill.stop(),
  };
}
