import pg from 'pg';
import type { Tidemill } from '../../../src/index.js';
import { built } from '../../lib/built.js';
import { CONCURRENCY, LIMIT_SETTINGS, limitedTidemill } from '../../lib/limits.js';
import { drained, insertJobs } from '../../lib/rows.js';
import type { Contender, Payload, Place } from '../contender.js';
import { type PostgresModule } from './contender.js';

const concurrencies = { default: undefined, tuned100: 100, tuned500: 500, tuned1000: 1_000 };
type Setting = keyof typeof concurrencies;
const DELETES = ' deletes';

/** A variant that ends with `deletes` does not keep finished jobs. */
const optionsOf = (variant: string): { mill: object; job: object } => {
  const concurrency = concurrencies[variant.replace(DELETES, '') as Setting];
  const given = concurrency === undefined ? {} : { concurrency };
  return {
    mill: { ...given, ...(variant.endsWith(DELETES) ? { retention: { completed: 0 } } : {}) },
    job: given,
  };
};

async function open({ uri, variant }: Place): Promise<Contender> {
  const setting = LIMIT_SETTINGS[variant];
  if (setting !== undefined) return openLimited(uri, setting);
  const { mill: options, job } = optionsOf(variant);
  const [{ Tidemill }, { postgres }] = await Promise.all([built('index'), built('postgres')]);
  const mill = new Tidemill({ store: postgres({ url: uri }), ...options });
  await mill.jobs.find({}, { limit: 1 }); // opens the connection and creates the schema
  const pool = new pg.Pool({ connectionString: uri, max: 1 });
  return {
    enqueue: (data) => mill.enqueue('noop', data),
    enqueueMany: (data) => mill.enqueueMany(data.map((one) => ({ name: 'noop', data: one }))),
    fill: (count) => insertJobs(pool, count),
    start: (run) => {
      mill.job<Payload>('noop', job, ({ data }) => run(data));
      return mill.start();
    },
    finished: () => drained(pool),
    extra: () => ({ claims: mill.health().claims }),
    stop: async () => {
      await mill.stop();
      await pool.end();
    },
  };
}

async function openLimited(uri: string, setting: (typeof LIMIT_SETTINGS)[string]): Promise<Contender> {
  const [{ Tidemill }, { postgres }] = await Promise.all([built('index'), built('postgres')]);
  const pool = new pg.Pool({ connectionString: uri, max: 1 });
  const mill = (): Tidemill => new Tidemill({ store: postgres({ url: uri }), concurrency: CONCURRENCY });
  const limited = limitedTidemill({ mill, setting, fill: (count) => insertJobs(pool, count) });
  await limited.finished(); // opens the connection and creates the schema
  return {
    ...limited,
    stop: async () => {
      await limited.stop();
      await pool.end();
    },
  };
}

const settings: readonly (readonly [Setting, string | number])[] = [
  ['default', '50 in all, 5 per name (defaults)'],
  ['tuned100', 100],
  ['tuned500', 500],
  ['tuned1000', 1_000],
];

export const contender: PostgresModule = {
  title: 'Tidemill',
  variants: {
    ...Object.fromEntries(
      settings.flatMap(([name, concurrency]) => [
        [name, { concurrency, prefetch: 'adaptive', retention: 'default' }],
        [`${name}${DELETES}`, { concurrency, prefetch: 'adaptive', retention: { completed: 0 } }],
      ]),
    ),
    ...LIMIT_SETTINGS,
  },
  packages: [],
  pg: () => Promise.resolve(pg),
  open,
};
