import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import { postgres } from '../../src/postgres/index.js';
import { keyedJobs, keyedTasks, type KeyedTable } from '../../src/sql/schema/migrations/keyed-table.js';
import { namesIn } from '../../src/sql/schema/names.js';
import { opened } from '../support/port.js';
import { freshSchema } from '../support/stores.js';
import { until } from '../support/mills.js';

// In a database of its own: a vacuum keeps dead rows that any transaction of a database may still see.
const NAME = `test_keys_${randomUUID().replaceAll('-', '')}`;
const url = inject('postgresUrl').replace(/postgres$/u, NAME);
const pool = new pg.Pool({ connectionString: url, max: 4 });
/** Only for claims: what else a connection did would count, too. */
const claimers = new pg.Pool({ connectionString: url, max: 4 });

const ask = async (text: string): Promise<void> => {
  const client = new pg.Client({ connectionString: inject('postgresUrl') });
  await client.connect();
  await client.query(text).finally(() => client.end());
};
beforeAll(() => ask(`create database ${NAME}`));
afterAll(async () => {
  await Promise.all([pool.end(), claimers.end()]);
  await ask(`drop database ${NAME} with (force)`);
});
const KEYS = 10_000;
const BACKLOG = 100_000;

interface Cost {
  readonly taken: number;
  /** Index entries that were read, of all tables of the schema. */
  readonly entries: number;
  /** Scans of whole tables. */
  readonly scans: number;
}

const COUNTED = `select json_build_object(
    'entries', (select sum(pg_stat_get_xact_tuples_returned(i.indexrelid)) from pg_index i where i.indrelid = t.oid),
    'scans', pg_stat_get_xact_numscans(t.oid))::text as json
  from pg_class t where t.relnamespace = $1::regnamespace and t.relname in ('jobs', 'job_keys', 'key_wakes', 'tasks', 'task_keys', 'task_key_wakes')`;

/** One claim of a key rule with a concurrency of 1, and what the server counted for its transaction. */
async function claimOn(
  client: pg.PoolClient,
  schema: string,
  { rows, id, call }: KeyedTable,
  most: number,
): Promise<Cost & { more: boolean }> {
  const wanted = [{ name: 'work', most, by_rule: 'one', rule: { most: 1 } }];
  const writing = `update ${rows} set status = 'processing', claimed_by = 'x', lease_token = 'y.1', locked_at = $2
    where ctid = any($1) returning ${id} as json`;
  await client.query('begin');
  const claimed = await client.query<{ c: string }>(`select c from ${call('claim_by_keys')}($1, $2, $3) c`, [
    JSON.stringify(wanted),
    most,
    writing,
  ]);
  const counts = await client.query<{ json: string }>(COUNTED, [schema]);
  await client.query('commit');
  const parts = counts.rows.map(({ json }) => JSON.parse(json) as Cost);
  const { names } = JSON.parse(claimed.rows[0]?.c ?? '') as { names: [{ more: boolean }] };
  return {
    taken: claimed.rows.length - 1,
    more: names[0].more,
    entries: parts.reduce((sum, { entries }) => sum + entries, 0),
    scans: parts.reduce((sum, { scans }) => sum + scans, 0),
  };
}

/** On a new connection: the counters of one include those of its last transactions. */
async function claim(schema: string, work: KeyedTable, most: number): Promise<Cost & { more: boolean }> {
  const client = await claimers.connect();
  try {
    return await claimOn(client, schema, work, most);
  } finally {
    client.release(true);
  }
}

type Fill = (key: string, status: 'pending' | 'processing', due: string, count: number) => string;

const KINDS: readonly (readonly [string, (schema: string) => KeyedTable, (rows: string) => Fill])[] = [
  [
    'jobs',
    (schema) => keyedJobs(namesIn(schema)),
    (rows) =>
      (
        key,
        status,
        due,
        count,
      ) => `insert into ${rows} (name, limit_key, status, claimed_by, locked_at, next_run_at)
      select 'work', ${key}, '${status}', 'other', now(), ${due} from generate_series(1, ${String(count)}) n`,
  ],
  [
    'tasks',
    (schema) => keyedTasks(namesIn(schema)),
    (rows) =>
      (
        key,
        status,
        due,
        count,
      ) => `insert into ${rows} (task, key, source_doc_id, limit_key, status, claimed_by, locked_at,
        scheduled_at, initial_scheduled_at, created_at, updated_at, matched)
      select 'work', gen_random_uuid()::text, '1', ${key}, '${status}', 'other', now(), ${due}, ${due}, now(), now(), true
      from generate_series(1, ${String(count)}) n`,
  ],
];

it.each(KINDS)(
  'a claim among 10,000 keys at their limit and 100,000 %s behind them reads only what it takes',
  async (_kind, workOf, fillOf) => {
    const schema = freshSchema();
    await opened(postgres({ url, schema }));
    const work = workOf(schema);
    const textOf = fillOf(work.rows);
    const fill = (...given: Parameters<Fill>): Promise<unknown> => pool.query(textOf(...given));
    await fill(`'key-' || n`, 'processing', 'now()', KEYS);
    await fill(`'key-' || n % ${String(KEYS)}`, 'pending', `now() - interval '1 hour'`, BACKLOG);
    // The first claims learn that the keys are at their limit.
    while ((await claim(schema, work, 1_000)).more);
    await until('no older transaction of another test keeps dead rows', async () => {
      await pool.query(`vacuum ${work.wakes}, ${work.keys}`);
      const { rows } = await pool.query(
        'select from pg_stat_all_tables where relid in ($1::regclass, $2::regclass) and n_dead_tup > 0',
        [work.wakes, work.keys],
      );
      return rows.length === 0;
    });
    await fill(`'free-' || n % 10`, 'pending', 'now()', 100);
    const first = await claim(schema, work, 10);
    const second = await claim(schema, work, 10);
    expect(first).toMatchObject({ taken: 10, scans: 0 });
    expect(second).toMatchObject({ taken: 0, scans: 0, more: false });
    // 100 wakes are taken in, about ten entries belong to each row that is taken, and 50 rows are asked for a key.
    expect(first.entries).toBeLessThan(100 + 10 * 20 + 100);
    expect(second.entries).toBeLessThan(250);
    await pool.query(
      `update ${work.rows} set status = 'completed' where status = 'processing' and limit_key = 'key-77'`,
    );
    const freed = await claim(schema, work, 10);
    expect(freed).toMatchObject({ taken: 1, scans: 0 });
    expect(freed.entries).toBeLessThan(300);
  },
  180_000,
);
