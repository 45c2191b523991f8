import type { PostgresName } from '../../contenders/postgres/contender.js';
import { tried } from '../../lib/bench.js';
import { Child } from '../../lib/child.js';
import { sleep } from '../../lib/clock.js';
import { round } from '../../lib/stats.js';
import type { PostgresBench } from './bench.js';

/** The contenders, with the table in which each keeps its jobs. */
const ENTRIES: readonly { contender: PostgresName; variant: string; table: string }[] = [
  { contender: 'tidemill', variant: 'tuned100', table: 'tidemill.jobs' },
  { contender: 'tidemill', variant: 'tuned100 deletes', table: 'tidemill.jobs' },
  { contender: 'pg-boss', variant: 'batch500', table: 'pgboss.job_common' },
  { contender: 'graphile-worker', variant: 'local500', table: 'graphile_worker._private_jobs' },
];

const PER_SECOND = 2_000;
const BATCH = 100;

interface Sample {
  readonly dead: number;
  readonly live: number;
  readonly tableMb: number;
  readonly indexesMb: number;
  readonly vacuums: number;
}

const SAMPLE = `
  select n_dead_tup::integer as dead, n_live_tup::integer as live, autovacuum_count::integer as vacuums,
    pg_table_size(relid) / 1048576::double precision as "tableMb",
    pg_indexes_size(relid) / 1048576::double precision as "indexesMb"
  from pg_stat_user_tables where relid = to_regclass($1)`;

async function sampled(bench: PostgresBench, database: string, table: string): Promise<Sample> {
  const [row] = await bench.query<Sample>(database, SAMPLE, [table]);
  if (row === undefined) throw new Error(`${table} is not there`);
  const { dead, live, vacuums, tableMb, indexesMb } = row;
  return { dead, live, vacuums, tableMb: round(tableMb, 1), indexesMb: round(indexesMb, 1) };
}

interface Grown {
  readonly sent: number;
  /** Jobs that had not run yet when the last one was sent. */
  readonly behind: number;
  readonly samples: readonly Sample[];
}

async function sustained(
  bench: PostgresBench,
  { table, ...base }: { contender: PostgresName; variant: string; table: string; database: string },
): Promise<Grown> {
  const [pauseMs, times] = bench.quick ? [5_000, 2] : [10_000, 6];
  const worker = new Child({ ...base, uri: bench.uri, task: 'work' });
  await worker.hear('ready');
  const producer = new Child({
    ...base,
    uri: bench.uri,
    task: 'trickle',
    perSecond: PER_SECOND,
    batch: BATCH,
  });
  try {
    let handled = 0;
    worker.on('count', ({ count }) => (handled = Number(count)));
    worker.say('go');
    const samples: Sample[] = [];
    for (let turn = 0; turn < times; turn += 1) {
      await sleep(pauseMs);
      samples.push(await sampled(bench, base.database, table));
    }
    producer.say('stop');
    const { value: sent } = await producer.hear<{ value: number }>('result');
    const behind = sent - handled;
    worker.say('check');
    await worker.hear('finished');
    worker.say('stop');
    await Promise.all([worker.end(), producer.end()]);
    return { sent, behind, samples };
  } finally {
    worker.kill();
    producer.kill();
  }
}

/** A steady stream of jobs for a minute. Autovacuum runs every ten seconds instead of once a minute. */
export async function deadRows(bench: PostgresBench): Promise<void> {
  await bench.query('postgres', `alter system set autovacuum_naptime = '10s'`);
  await bench.query('postgres', 'select pg_reload_conf()');
  try {
    await everybody(bench);
  } finally {
    await bench.query('postgres', 'alter system reset autovacuum_naptime');
    await bench.query('postgres', 'select pg_reload_conf()');
  }
}

async function everybody(bench: PostgresBench): Promise<void> {
  const section = 'dead rows, 2,000 jobs/s';
  for (const entry of ENTRIES) {
    const { contender, variant } = entry;
    if (!bench.wants(contender)) continue;
    await tried(bench, { section, contender, variant }, async () => {
      const grown = await bench.within((database) => sustained(bench, { ...entry, database }));
      const last = grown.samples.at(-1)!;
      const figures = {
        sent: grown.sent,
        'behind at the end': grown.behind,
        'dead rows, every 10 s': grown.samples.map(({ dead }) => dead.toLocaleString('en-US')).join(' · '),
        'rows at the end': last.live,
        'table MB': last.tableMb,
        'indexes MB': last.indexesMb,
        autovacuums: last.vacuums,
      };
      bench.add({ section, contender, variant, figures, runs: [grown] });
    });
  }
}
