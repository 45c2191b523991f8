import { startPostgres } from '@tidemill/servers';
import pg from 'pg';
import { built } from '../lib/built.js';
import { nanos, sinceMs } from '../lib/clock.js';
import { deferred } from '../lib/deferred.js';
import { round } from '../lib/stats.js';
import type { Scale } from './run.js';

/** Enqueued ahead of the worker, so that the table never holds more than this many waiting jobs. */
const AHEAD = 20_000;
const BATCH = 2_000;
const REPORTS = 10;

const SIZES = `
  select pg_table_size('tidemill.jobs')::double precision as heap, pg_indexes_size('tidemill.jobs')::double precision as indexes,
    pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::double precision as wal,
    (select n_dead_tup::double precision from pg_stat_user_tables where relid = 'tidemill.jobs'::regclass) as dead`;

interface Sizes {
  readonly heap: number;
  readonly indexes: number;
  readonly wal: number;
  readonly dead: number;
}

/** Millions of jobs through one PostgreSQL, none of them kept: rate, sizes and WAL after each tenth. */
export async function through(scale: Scale): Promise<void> {
  await using server = await startPostgres();
  await using pool = Object.assign(new pg.Pool({ connectionString: server.url, max: 2 }), {
    [Symbol.asyncDispose]: () => pool.end(),
  });
  const { Tidemill } = await built('index');
  const { postgres } = await built('postgres');
  const mill = new Tidemill({ store: postgres({ url: server.url }), logger: false, concurrency: 200 });
  let ran = 0;
  let waiting = deferred();
  mill.job('noop', { concurrency: 200, retention: { completed: 0 } }, () => {
    ran += 1;
    waiting.resolve();
  });
  await mill.start();
  const tenth = Math.ceil(scale.jobs / REPORTS);
  let [enqueued, reported, before, began] = [0, 0, await sizes(pool), nanos()];
  while (ran < scale.jobs) {
    if (enqueued < scale.jobs && enqueued - ran < AHEAD) {
      await mill.enqueueMany(Array.from({ length: BATCH }, (_, n) => ({ name: 'noop', data: { n } })));
      enqueued += BATCH;
    } else {
      waiting = deferred();
      await waiting.promise;
    }
    if (ran < (reported + 1) * tenth) continue;
    reported += 1;
    const now = await sizes(pool);
    const figures = {
      'jobs/s': round((tenth / sinceMs(began)) * 1_000),
      'WAL B/job': round((now.wal - before.wal) / tenth),
      'table MB': round(now.heap / 2 ** 20, 1),
      'indexes MB': round(now.indexes / 2 ** 20, 1),
      'dead rows': now.dead,
    };
    const variant = `${(reported * tenth).toLocaleString('en-US')} done`;
    scale.add({ section: 'jobs in one go', contender: 'postgres', variant, figures, runs: [now] });
    [before, began] = [now, nanos()];
  }
  await mill.stop();
}

async function sizes(pool: pg.Pool): Promise<Sizes> {
  const { rows } = await pool.query<Sizes>(SIZES);
  return rows[0]!;
}
