/**
 * Dead rows under three settings of autovacuum, side by side: each in a database of its own on one server, at the
 * same rate, so that other load on the machine affects all alike. Jobs go through the store in batches. Takes two
 * minutes; run it alone.
 */
import { startPostgres } from '@tidemill/servers';
import type { PostgresStore } from '../src/postgres/index.js';
import { leaseOf, type NewJob } from '../src/store/port.js';
import { built } from './lib/built.js';
import { nanos, sinceMs, sleep } from './lib/clock.js';
import { record } from './lib/report.js';
import { FINISHED } from './lib/rows.js';
import { round } from './lib/stats.js';
import { once } from './measure/postgres/bench.js';

const QUICK = process.argv.includes('--quick');
const FINISHED_JOBS = QUICK ? 20_000 : 300_000;
/** For each of the three. */
const PER_SECOND = 600;
const BATCH = 200;
const [SAMPLES, SAMPLE_MS] = QUICK ? [2, 5_000] : [8, 10_000];
const HELD_MS = 7 * 86_400_000;

/** Settings of the table of jobs; the last is what the migrations set. */
const SETTINGS = {
  "PostgreSQL's": 'reset (autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold)',
  'factor 0, threshold 5,000': 'set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000)',
  'factor 0.02, threshold 5,000':
    'set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000)',
};

interface Sample {
  readonly dead: number;
  readonly vacuums: number;
  readonly claimIndexMb: number;
}

const SAMPLE = `
  select n_dead_tup::integer as dead, autovacuum_count::integer as vacuums,
    pg_relation_size('tidemill.jobs_claim') / 1048576::double precision as "claimIndexMb"
  from pg_stat_user_tables where relid = 'tidemill.jobs'::regclass`;

interface Variant {
  readonly setting: string;
  readonly url: string;
  readonly store: PostgresStore;
  readonly samples: Sample[];
  jobs: number;
}

const { postgres } = await built('postgres');
await using server = await startPostgres({ settings: { autovacuum_naptime: '10s' } });

async function prepared(setting: string, change: string, at: number): Promise<Variant> {
  const database = `vacuum_${at}`;
  await once(server.url, `create database ${database}`);
  const url = Object.assign(new URL(server.url), { pathname: `/${database}` }).href;
  const store = postgres({ url });
  await store.acquire(store);
  await once(url, `alter table tidemill.jobs ${change}`);
  await once(url, FINISHED, [FINISHED_JOBS]);
  await once(url, 'vacuum analyze');
  return { setting, url, store, samples: [], jobs: 0 };
}

const life = 'vacuum0123456789';
const instance = { instanceId: 'bench', life };
const limits = new Map([['noop', { max: BATCH, rank: 0, of: 1 }]]);

function aBatch(): NewJob[] {
  const now = new Date();
  const job = {
    name: 'noop',
    data: {},
    status: 'pending',
    priority: 0,
    nextRunAt: now,
    createdAt: now,
  } as const;
  return Array.from({ length: BATCH }, () => job);
}

/** Enqueues, claims and completes one batch. */
async function turn(variant: Variant, serial: number): Promise<void> {
  const { jobs: store } = variant.store;
  await store.insert(aBatch());
  const token = `${life}.${serial}`;
  const { jobs } = await store.claim({ instance, token, heartbeatMs: 10_000, limits, total: BATCH });
  const finishedAt = new Date();
  const set = { finishedAt, expiresAt: new Date(finishedAt.getTime() + HELD_MS) };
  const ended = { status: 'completed', set, historyLimit: 5, by: 'holder' } as const;
  await store.settle(jobs.map((job) => ({ ...ended, lease: leaseOf(job) })));
  variant.jobs += jobs.length;
}

async function run(variant: Variant, until: number): Promise<void> {
  const began = nanos();
  for (let serial = 0; sinceMs(began) < until; serial += 1) {
    await turn(variant, serial);
    await sleep(Math.max(0, (serial + 1) * (BATCH / PER_SECOND) * 1_000 - sinceMs(began)));
  }
}

async function sample(variant: Variant): Promise<void> {
  const [row] = await once<Sample>(variant.url, SAMPLE);
  variant.samples.push({ ...row!, claimIndexMb: round(row!.claimIndexMb, 1) });
}

const variants: Variant[] = [];
for (const [at, [setting, change]] of Object.entries(SETTINGS).entries())
  variants.push(await prepared(setting, change, at));
const running = Promise.all(variants.map((variant) => run(variant, SAMPLES * SAMPLE_MS)));
for (let n = 0; n < SAMPLES; n += 1) {
  await sleep(SAMPLE_MS);
  for (const variant of variants) await sample(variant);
}
await running;
for (const { store } of variants) await store.release(store);

const lines = variants.map(({ setting, jobs, samples }) => {
  const dead = samples.map((one) => one.dead.toLocaleString('en-US')).join(' · ');
  const last = samples.at(-1)!;
  return `| ${setting} | ${jobs.toLocaleString('en-US')} | ${dead} | ${last.vacuums} | ${last.claimIndexMb} MB |`;
});
console.log(
  [
    `| setting | jobs run | dead rows, every ${SAMPLE_MS / 1_000} s | autovacuums | \`jobs_claim\` at the end |`,
    '|---|---|---|---|---|',
    ...lines,
  ].join('\n'),
);
const figures = variants.map(({ setting, jobs, samples }) => ({ setting, jobs, samples }));
record('vacuum', { perSecond: PER_SECOND, figures }, QUICK);
