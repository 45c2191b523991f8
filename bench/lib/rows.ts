import type { Pool } from 'pg';
import { postgres } from '../../src/postgres/index.js';

/** Creates Tidemill's tables, as its migrations do, in an empty database. */
export async function makeSchema(pool: Pool, url: string): Promise<void> {
  await pool.query(postgres({ url }).migrationScript());
}

/** Drops every index but the primary key and the one of the claim. */
export async function dropOtherIndexes(pool: Pool): Promise<void> {
  const { rows } = await pool.query<{ name: string }>(
    `select indexname as name from pg_indexes where schemaname = 'tidemill' and tablename = 'jobs'
     and indexname not in ('jobs_pkey', 'jobs_claim')`,
  );
  for (const { name } of rows) await pool.query(`drop index tidemill.${name}`);
}

/** A week, which is how long Tidemill keeps completed jobs by default. */
export const EXPIRY = "now() + interval '7 days'";

/** Inserts $1 finished jobs, whose ids begin with `old`, numbered from $2 on. */
export const FINISHED = `
  insert into tidemill.jobs (id, name, data, status, finished_at, expires_at, lease_token, history)
  select 'old' || lpad((n + $2::integer)::text, 23, '0'), 'noop', jsonb_build_object('n', n), 'completed', now(), ${EXPIRY}, 'gone.' || n,
    jsonb_build_array(jsonb_build_object('attempt', 1, 'status', 'completed', 'durationMs', 0, 'startedAt', now(),
      'finishedAt', now(), 'instanceId', 'host-1-00000000'))
  from generate_series(1, $1::integer) n`;

/** Inserts $1 jobs for tomorrow and later, whose ids begin with `new`, numbered from $2 on. */
export const FUTURE = `
  insert into tidemill.jobs (id, name, data, next_run_at)
  select 'new' || lpad((n + $2::integer)::text, 23, '0'), 'noop', jsonb_build_object('n', n),
    now() + interval '1 day' + n * interval '1 millisecond'
  from generate_series(1, $1::integer) n`;

/** Ids as long as those that the library makes, and ascending like them. */
const DUE = `
  insert into tidemill.jobs (id, name, data)
  select lpad(to_hex((extract(epoch from now()) * 1000)::bigint), 11, '0') || lpad(to_hex(n), 5, '0') || '0123456789',
    'noop', jsonb_build_object('n', n)
  from generate_series(1, $1::integer) n`;

/** Inserts jobs as Tidemill stores them. The raw contender uses the same shape. */
export async function insertJobs(pool: Pool, count: number): Promise<void> {
  await pool.query(DUE, [count]);
}

/** Returns true if nothing is left to run or to record. */
export async function drained(pool: Pool): Promise<boolean> {
  const { rowCount } = await pool.query(
    `(select from tidemill.jobs where name = 'noop' and status = 'pending' limit 1)
     union all (select from tidemill.jobs where status = 'processing' limit 1)`,
  );
  return rowCount === 0;
}
