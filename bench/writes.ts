/**
 * What one job's life (enqueue, claim, complete, kept) writes on PostgreSQL: bytes of WAL, index and table, and how many
 * updates were HOT. In one run: the indexes and ids of schema version 6, and those of today. Takes half a minute.
 */
import { startPostgres } from '@tidemill/servers';
import { postgres } from '../src/postgres/index.js';
import { leaseOf, type NewJob } from '../src/store/port.js';
import { record } from './lib/report.js';
import { once } from './measure/postgres/bench.js';

const JOBS = process.argv.includes('--quick') ? 2_000 : 20_000;
const BATCH = 500;
const NAMES = Array.from({ length: 10 }, (_, n) => `send-email-${n}`);
const WEEK_MS = 7 * 86_400_000;

/** The indexes of version 6. */
const VERSION_6 = `
  drop index tidemill.jobs_by_name, tidemill.jobs_by_status, tidemill.jobs_by_age, tidemill.jobs_held, tidemill.jobs_completed;
  create index jobs_by_name on tidemill.jobs (name, status, created_at desc, id desc) where status <> 'processing';
  create index jobs_by_status on tidemill.jobs (status, updated_at desc, id desc) where status <> 'processing';
  create index jobs_by_age on tidemill.jobs (created_at desc, id desc) where status <> 'processing';
  create index jobs_held on tidemill.jobs (claimed_by, locked_at) where status = 'processing';
  alter table tidemill.jobs reset (fillfactor)`;

interface Variant {
  readonly label: string;
  readonly change?: string;
  readonly newId?: () => string;
}

let serial = 0;
/** 26 digits, as version 6 made them. */
const longId = (): string =>
  Date.now().toString(16).padStart(11, '0') + (serial += 1).toString(16).padStart(5, '0') + '0123456789';

const VARIANTS: readonly Variant[] = [
  { label: 'version 6', change: VERSION_6, newId: longId },
  { label: 'today' },
];

const SIZES = `
  select pg_relation_size('tidemill.jobs')::integer as heap, pg_indexes_size('tidemill.jobs')::integer as indexes`;
const HOT = `
  select n_tup_upd::integer as updates, n_tup_hot_upd::integer as hot from pg_stat_user_tables
  where relid = 'tidemill.jobs'::regclass`;
const WAL = `select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 as bytes`;

await using server = await startPostgres({ settings: { autovacuum: 'off', max_wal_size: '4GB' } });

async function measure({ label, change, newId }: Variant, at: number): Promise<string[]> {
  const database = `writes_${at}`;
  await once(server.url, `create database ${database}`);
  const url = Object.assign(new URL(server.url), { pathname: `/${database}` }).href;
  const ask = async <T extends object>(text: string): Promise<T> => (await once<T>(url, text))[0]!;
  const perJob = (bytes: number): number => Math.round(bytes / JOBS);
  const store = postgres({ url });
  await store.acquire(store);
  if (change !== undefined) await once(url, change);
  await once(url, 'checkpoint');
  const wal = [(await ask<{ bytes: number }>(WAL)).bytes];
  const mark = async (): Promise<number> => wal.push((await ask<{ bytes: number }>(WAL)).bytes);

  for (let sent = 0; sent < JOBS; sent += BATCH) {
    const now = new Date();
    await store.jobs.insert(
      Array.from({ length: BATCH }, (_, n): NewJob => {
        const id = newId?.() ?? store.jobs.newId(now);
        const name = NAMES[n % NAMES.length]!;
        const data = { to: 'ada@example.com', n: sent + n };
        return { id, name, data, status: 'pending', priority: 0, nextRunAt: now, createdAt: now };
      }),
    );
  }
  await mark();
  const waiting = await ask<{ heap: number; indexes: number }>(SIZES);

  const instance = { instanceId: 'host-1234-abcdef', life: '0123456789abcdef' };
  const limits = new Map(NAMES.map((name) => [name, { max: BATCH / NAMES.length, rank: 0, of: 1 }]));
  for (let claim = 1, ended = 0; ended < JOBS; claim += 1) {
    const token = `${instance.life}.${claim}`;
    const { jobs } = await store.jobs.claim({ instance, token, heartbeatMs: 10_000, limits, total: BATCH });
    const finishedAt = new Date();
    const times = { startedAt: finishedAt, finishedAt, durationMs: 0 };
    await store.jobs.settle(
      jobs.map((job) => ({
        lease: leaseOf(job),
        status: 'completed',
        set: { finishedAt, expiresAt: new Date(finishedAt.getTime() + WEEK_MS) },
        entry: { attempt: 1, status: 'completed', instanceId: instance.instanceId, ...times },
        historyLimit: 5,
        by: 'holder',
      })),
    );
    ended += jobs.length;
  }
  await mark();
  const finished = await ask<{ heap: number; indexes: number }>(SIZES);
  await once(url, 'vacuum tidemill.jobs');
  const { updates, hot } = await ask<{ updates: number; hot: number }>(HOT);
  await store.release(store);
  const [began = 0, enqueued = 0, run = 0] = wal;
  const figures = [enqueued - began, run - enqueued, run - began, waiting.indexes, waiting.heap];
  const all = [...figures, finished.indexes, finished.heap].map((bytes) => `${perJob(bytes)} B`);
  return [label, ...all, `${hot} of ${updates}`];
}

const HEAD = [
  '',
  'WAL: enqueue',
  'claim and complete',
  'all',
  'waiting: indexes',
  'table',
  'finished: indexes',
  'table',
  'HOT updates',
];
const rows: string[][] = [];
for (const [at, variant] of VARIANTS.entries()) rows.push(await measure(variant, at));
console.log([HEAD, HEAD.map(() => '---'), ...rows].map((row) => `| ${row.join(' | ')} |`).join('\n'));
record('writes', { head: HEAD, rows }, process.argv.includes('--quick'));
