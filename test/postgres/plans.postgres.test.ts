import { beforeAll, describe, expect, it } from 'vitest';
import type { JobFilter, Page } from '../../src/store/port.js';
import { claimStatement, hintedStatement } from '../../src/sql/jobs/claim.js';
import type { Sql } from '../../src/sql/connection/connection.js';
import { depthsStatement } from '../../src/sql/jobs/find/depths.js';
import { statsStatement } from '../../src/sql/jobs/find/find.js';
import { newId } from '../../src/sql/jobs/enqueue/ids.js';
import { findStatement } from '../../src/sql/jobs/find/list.js';
import { winnersStatement } from '../../src/sql/jobs/enqueue/new-jobs.js';
import { allDueStatement, dueStatement } from '../../src/sql/jobs/peek.js';
import { namesIn } from '../../src/sql/schema/names.js';
import { sweepStatement } from '../../src/sql/jobs/sweep.js';
import { rowsOf, scansOf, type Plan } from '../support/explain.js';
import { freshPostgres, rawPool } from '../support/stores.js';

const NAMES = ['mail', 'report', 'sync', 'thumb', 'push'];
const schema = `test_plans_${Math.random().toString(36).slice(2)}`;
const names = namesIn(schema);
const pool = rawPool();
/** What statements need to know of a store. */
const sql = { names, leaseNow: () => 'statement_timestamp()' } as Sql;

async function fill(count: number, columns: string, values: string): Promise<void> {
  const name = `(array['${NAMES.join(`','`)}'])[1 + n % 5]`;
  await pool.query(`insert into ${names.jobs} (name, priority, data, created_at, updated_at, ${columns})
    select ${name}, n % 3 - 1, '{}', now() - n * interval '1 ms', now() - n * interval '1 ms', ${values}
    from generate_series(1, ${String(count)}) n`);
}

beforeAll(async () => {
  const holder = {};
  const store = freshPostgres({ schema });
  await store.acquire(holder);
  await store.release(holder);
  await fill(30_000, 'status, next_run_at', `'pending', now() + interval '1 day' + n * interval '1 ms'`);
  await fill(30_000, 'status, expires_at', `'completed', now() + interval '1 day'`);
  await fill(
    2_000,
    'status, locked_at, claimed_by, lease_token',
    `'processing', now(), 'somebody', 'life.1'`,
  );
  await pool.query(`analyze ${names.jobs}`);
});

/** Rows of jobs that a statement read, whether it kept them or not, and the indexes it used. */
interface Reading {
  readonly read: number;
  readonly indexes: readonly string[];
}

function readingOf(plan: Plan): Reading {
  const scans = scansOf(plan, ['jobs']);
  const used = scans.filter((scan) => scan.plan['Actual Loops'] > 0);
  const indexes = used.map((scan) => scan.plan['Index Name'] ?? scan.plan['Node Type']);
  return { read: rowsOf(scans), indexes: [...new Set(indexes)].sort() };
}

/** Runs the statement, and rolls it back. */
async function explained(text: string, values: (string | number | null)[]): Promise<Reading> {
  const client = await pool.connect();
  try {
    await client.query('begin');
    const answer = await client.query<{ 'QUERY PLAN': [{ Plan: Plan }] }>(
      `explain (analyze, format json) ${text}`,
      values,
    );
    return readingOf(answer.rows[0]!['QUERY PLAN'][0].Plan);
  } finally {
    await client.query('rollback');
    client.release();
  }
}

const limits = (max: number): string => JSON.stringify(NAMES.map((name, turn) => ({ name, max, turn })));
const claiming = (max: number): Promise<Reading> =>
  explained(claimStatement(sql), [limits(max), max * NAMES.length, 'i', 'life.2', 1_000]);

describe('query plans among 30,000 future, 30,000 finished and 2,000 running jobs on PostgreSQL', () => {
  it('a peek reads one row per name', async () => {
    const { read, indexes } = await explained(dueStatement(sql), [JSON.stringify([...NAMES, 'unknown'])]);
    expect(indexes).toEqual(['jobs_due', 'jobs_start_by']);
    // Older servers round what was read for each name, and so count one for the unknown name, too.
    expect(read).toBeLessThanOrEqual(NAMES.length + 1);
  });

  it('a peek of many names reads one row per name that has pending jobs', async () => {
    const { read, indexes } = await explained(allDueStatement(sql), [10_000]);
    expect(indexes).toEqual(['jobs_due', 'jobs_start_by']);
    // Older servers round what was read after each name, and so count one after the last, too.
    expect(read).toBeLessThanOrEqual(NAMES.length + 1);
  });

  it('a peek reads one row more if jobs expire, however many of them', async () => {
    const limited = `'pending', now() + n * interval '1 day', now() + n * interval '2 days'`;
    await fill(2_000, 'status, next_run_at, start_by', limited);
    const { read, indexes } = await explained(dueStatement(sql), [JSON.stringify(NAMES)]);
    expect(indexes).toEqual(['jobs_due', 'jobs_start_by']);
    expect(read).toBeLessThanOrEqual(NAMES.length + 2);
  });

  it('a claim reads at most one row per name if nothing is due', async () => {
    const { read } = await claiming(100);
    expect(read).toBeLessThanOrEqual(NAMES.length);
  });

  it('a claim among 30,000 due jobs reads only what it takes, twice', async () => {
    await fill(30_000, 'status, next_run_at', `'pending', now() - n * interval '1 ms'`);
    const { read, indexes } = await claiming(20);
    expect(indexes).toEqual(['Tid Scan', 'jobs_claim', 'jobs_due']);
    expect(read).toBeLessThanOrEqual(2 * 100 + NAMES.length);
    await pool.query(`delete from ${names.jobs} where status = 'pending' and next_run_at < now()`);
    await pool.query(`vacuum analyze ${names.jobs}`);
  });

  it('a claim of a job named by a wake-up reads only that job', async () => {
    const { rows } = await pool.query<{ id: string }>(`select id from ${names.jobs} limit 1`);
    const values = [JSON.stringify(rows.map(({ id }) => id)), 10, 'i', 'life.2', 1_000];
    const { read } = await explained(hintedStatement(sql), values);
    expect(read).toBeLessThanOrEqual(2);
  });

  const page = (field: Page['field'], direction: 1 | -1 = -1): Page => ({ field, direction, limit: 50 });
  const later: Page = { ...page('createdAt'), after: { at: new Date(Date.now() - 20_000), key: 'x' } };
  it.each<[string, JobFilter, Page, number]>([
    ['everything by age', {}, page('createdAt'), 1],
    ['everything by age, from the end', {}, page('createdAt', 1), 1],
    ['a later page', {}, later, 1],
    ['a name and a status by age', { name: ['mail'], status: ['completed'] }, page('createdAt'), 1],
    [
      'two names and two statuses by age',
      { name: ['mail', 'sync'], status: ['completed', 'pending'] },
      page('createdAt'),
      4,
    ],
    ['a name by age', { name: ['mail'] }, page('createdAt'), 4],
    ['a status by its last change', { status: ['completed'] }, page('updatedAt'), 1],
    ['what waits by its due time', { status: ['pending'] }, page('nextRunAt', 1), 5],
    [
      'what waits of a name by its due time',
      { name: ['mail'], status: ['pending'] },
      page('nextRunAt', 1),
      1,
    ],
  ])('find reads one page of each index range: %s', async (_what, filter, wanted, ranges) => {
    const { text, values } = findStatement(sql, filter, wanted);
    const { read } = await explained(text, values);
    const running = filter.status === undefined ? 2_000 : 0;
    expect(read).toBeLessThanOrEqual((ranges + 1) * 51 + running + 2 * NAMES.length);
  });

  it('stats read no more than their cap, and one key per name', async () => {
    const { read } = await explained(statsStatement(sql), [5_000, names.jobs]);
    expect(read).toBeLessThanOrEqual(NAMES.length * 2 * 1_001 + 2_000 + 2 * NAMES.length);
  });

  it('queue depths for a scrape read no more than their cap, and no finished jobs', async () => {
    const { read } = await explained(depthsStatement(sql), [5_000]);
    expect(read).toBeLessThanOrEqual(NAMES.length * 1_001 + 2_000 + 4 * NAMES.length);
  });

  it('the holder of a unique key is found by its index', async () => {
    const given = JSON.stringify([{ at: 0, id: 'none', name: 'mail', unique_key: 'k' }]);
    const { read, indexes } = await explained(winnersStatement(sql), [given]);
    expect(read).toBe(0);
    expect(indexes).toEqual(['jobs_pkey', 'jobs_unique']);
  });

  it('a sweep reads nothing if nothing has expired', async () => {
    const { read } = await explained(sweepStatement(sql), [new Date().toISOString(), 1_000]);
    expect(read).toBe(0);
  });
});

describe('query plans among 100,000 finished jobs with ids of the store on PostgreSQL', () => {
  const timed = namesIn(`${schema}_timed`);
  const at = Date.now() - 3_600_000;
  /** A thousand jobs are created in each millisecond, and a hundred end in each. */
  const createdAt = (n: number): Date => new Date(at + Math.floor(n / 1_000));
  const endedAt = (n: number): Date => new Date(at + 60_000 + Math.floor(n / 100));
  const ids = Array.from({ length: 101_500 }, (_, n) => newId(createdAt(n).getTime()));

  beforeAll(async () => {
    const holder = {};
    const store = freshPostgres({ schema: timed.schema });
    await store.acquire(holder);
    await store.release(holder);
    const status = (from: number, to: number, columns: string, values: string): Promise<unknown> =>
      pool.query(
        `insert into ${timed.jobs} (id, name, data, timed, created_at, ${columns})
         select id, 'mail', '{}', true, created, ${values} from unnest($1::text[], $2::timestamptz[], $3::timestamptz[])
           as g(id, created, ended)`,
        [
          ids.slice(from, to),
          ...[createdAt, endedAt].map((time) =>
            ids.slice(from, to).map((_id, n) => time(from + n).toISOString()),
          ),
        ],
      );
    await status(
      0,
      100_000,
      'status, updated_at, expires_at',
      `'completed', ended, now() + interval '1 day'`,
    );
    await status(100_000, 100_500, 'status, updated_at', `'failed', ended`);
    await status(100_500, 101_000, 'status, updated_at', `'pending', ended`);
    await status(101_000, 101_500, 'status, updated_at', `'pending', created`);
    await pool.query(`analyze ${timed.jobs}`);
  });

  const listed = (filter: JobFilter, page: Page): Promise<Reading> => {
    const { text, values } = findStatement({ names: timed }, filter, page);
    return explained(text, values);
  };
  const page = (field: Page['field'], more: Partial<Page> = {}): Page => ({
    field,
    direction: -1,
    limit: 50,
    ...more,
  });
  const inTheMiddle = { at: createdAt(50_500), key: ids[50_500]! };
  const between = { from: createdAt(20_000), to: createdAt(20_999) };

  it.each<[string, JobFilter, Page, number]>([
    ['everything by age', {}, page('createdAt'), 51],
    ['everything by age, from the end', {}, page('createdAt', { direction: 1 }), 51],
    ['a later page by age', {}, page('createdAt', { after: inTheMiddle }), 51],
    ['an earlier page by age', {}, page('createdAt', { direction: 1, after: inTheMiddle }), 51],
    ['what was created in a millisecond', { createdAt: between }, page('createdAt'), 51],
    ['completed jobs by age', { status: ['completed'] }, page('createdAt'), 1_551],
    ['a name and a status by age', { name: ['mail'], status: ['completed'] }, page('createdAt'), 51],
    ['completed jobs by their last change', { status: ['completed'] }, page('updatedAt'), 200],
    ['failed jobs by their last change', { status: ['failed'] }, page('updatedAt'), 51],
    ['waiting jobs by their last change', { status: ['pending'] }, page('updatedAt'), 51 + 551 + 2],
  ])('find reads about one page: %s', async (_what, filter, wanted, most) => {
    const { read, indexes } = await listed(filter, wanted);
    expect(indexes).not.toContain('Seq Scan');
    expect(read).toBeLessThanOrEqual(most + 1);
  });
});
