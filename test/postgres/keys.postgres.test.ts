import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import { postgres } from '../../src/postgres/index.js';
import { namesIn } from '../../src/sql/schema/names.js';
import { opened } from '../support/port.js';
import { freshSchema } from '../support/stores.js';

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
  from pg_class t where t.relnamespace = $1::regnamespace and t.relname in ('jobs', 'job_keys', 'key_wakes')`;

/** One claim of a key rule with a concurrency of 1, and what the server counted for its transaction. */
async function claimOn(
  client: pg.PoolClient,
  schema: string,
  most: number,
): Promise<Cost & { more: boolean }> {
  const { jobs, table } = namesIn(schema);
  const wanted = [{ name: 'work', most, by_rule: 'one', rule: { most: 1 } }];
  const writing = `update ${jobs} set status = 'processing', claimed_by = 'x', lease_token = 'y.1', locked_at = $2
    where ctid = any($1) returning id as json`;
  await client.query('begin');
  const claimed = await client.query<{ c: string }>(`select c from ${table('claim_by_keys')}($1, $2, $3) c`, [
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
async function claim(schema: string, most: number): Promise<Cost & { more: boolean }> {
  const client = await claimers.connect();
  try {
    return await claimOn(client, schema, most);
  } finally {
    client.release(true);
  }
}

it('a claim among 10,000 keys at their limit and 100,000 jobs behind them reads only what it takes', async () => {
  const schema = freshSchema();
  await opened(postgres({ url, schema }));
  const { jobs, table } = namesIn(schema);
  const fill = (key: string, columns: string, values: string, count: number): Promise<unknown> =>
    pool.query(`insert into ${jobs} (name, limit_key, ${columns})
      select 'work', ${key}, ${values} from generate_series(1, ${String(count)}) n`);
  await fill(`'key-' || n`, 'status, claimed_by, locked_at', `'processing', 'other', now()`, KEYS);
  await fill(`'key-' || n % ${String(KEYS)}`, 'next_run_at', `now() - interval '1 hour'`, BACKLOG);
  // The first claims learn that the keys are at their limit.
  while ((await claim(schema, 1_000)).more);
  await pool.query(`vacuum ${table('key_wakes')}, ${table('job_keys')}`);
  await fill(`'free-' || n % 10`, 'next_run_at', 'now()', 100);
  const first = await claim(schema, 10);
  const second = await claim(schema, 10);
  expect(first).toMatchObject({ taken: 10, scans: 0 });
  expect(second).toMatchObject({ taken: 0, scans: 0, more: false });
  // 100 wakes are taken in, about ten entries belong to each job that is taken, and 50 jobs are asked for a key.
  expect(first.entries).toBeLessThan(100 + 10 * 20 + 100);
  expect(second.entries).toBeLessThan(250);
  await pool.query(
    `update ${jobs} set status = 'completed' where status = 'processing' and limit_key = 'key-77'`,
  );
  const freed = await claim(schema, 10);
  expect(freed).toMatchObject({ taken: 1, scans: 0 });
  expect(freed.entries).toBeLessThan(300);
}, 180_000);
