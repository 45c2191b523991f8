/**
 * Reconciles rows of a PostgreSQL table that were never planned, and once more when nothing has changed, in an instance
 * that leads and runs no handlers. Samples the heap after a collection. A million rows by default; `--rows 10000000`
 * takes long and needs about 10 GB of disk.
 */
import { parseArgs } from 'node:util';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { startPostgres } from '@tidemill/servers';
import pg from 'pg';
import { Tidemill } from '../src/index.js';
import { postgres } from '../src/postgres/index.js';
import { nanos, sinceMs } from './lib/clock.js';
import { record } from './lib/report.js';
import { median, round } from './lib/stats.js';

const { values: flags } = parseArgs({ options: { rows: { type: 'string', default: '1000000' } } });
const ROWS = Number(flags.rows);
const MB = 1_048_576;

setFlagsFromString('--expose-gc');
const collect = runInNewContext('gc') as () => void;

await using server = await startPostgres();
const pool = new pg.Pool({ connectionString: server.url, max: 2 });
await pool.query('create table items (id bigint primary key, n integer)');
await pool.query('insert into items select i, 1 from generate_series(1, $1::bigint) i', [ROWS]);
const mill = new Tidemill({ store: postgres({ url: server.url }), logger: false });
await mill.reactiveTask({ task: 'rows', collection: 'items', debounce: 0, handler: () => undefined });

const passes: object[] = [];
let completed: (() => void) | undefined;
mill.on('reconcile:complete', () => completed?.());

async function pass(what: string, begin: () => Promise<unknown>): Promise<void> {
  const heapMb: number[] = [];
  let rssMb = 0;
  const began = nanos();
  const sampling = setInterval(() => {
    collect();
    const { heapUsed, rss } = process.memoryUsage();
    heapMb.push(heapUsed / MB);
    rssMb = Math.max(rssMb, rss / MB);
  }, 1_000);
  const over = new Promise<void>((resolve) => (completed = resolve));
  await begin();
  await over;
  clearInterval(sampling);
  const seconds = sinceMs(began) / 1_000;
  const part = (from: number, to: number): number =>
    round(median(heapMb.slice(heapMb.length * from, heapMb.length * to)), 1);
  const figures = {
    pass: what,
    rows: ROWS,
    seconds: round(seconds, 1),
    'rows/s': round(ROWS / seconds),
    'heap MB, second tenth': part(0.1, 0.2),
    'heap MB, last tenth': part(0.9, 1),
    'greatest heap MB': round(Math.max(...heapMb), 1),
    'greatest resident MB': round(rssMb),
  };
  passes.push(figures);
  console.log(JSON.stringify(figures));
}

await pass('first', () => mill.start({ roles: ['plan'] }));
await pass('again, unchanged', () => mill.tasks.reconcile('rows'));
record('reconcile-rows', { passes });
await mill.stop();
await pool.end();
