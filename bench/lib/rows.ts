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
const EXPIRY = "now() + interval '7 days'";

/**
 * The time of the statement, and where ids of that time begin: as the library makes them, with 9 digits to the base 32.
 * The serial number follows, and 8 digits that say what the job is for. At most a million
 * jobs per statement.
 */
const NOW = `now as materialized (
  select at, string_agg(substr('0123456789abcdefghijklmnopqrstuv', ((ms >> (5 * place)) & 31)::integer + 1, 1), ''
    order by place desc) as prefix
  from (select at, (extract(epoch from at) * 1000)::bigint as ms
    from (select date_trunc('milliseconds', clock_timestamp()) as at) t) t
  cross join generate_series(0, 8) place group by at)`;
const id = (own: string): string => `now.prefix || lpad(to_hex(n), 5, '0') || '${own}'`;

/** Inserts $1 finished jobs. */
export const FINISHED = `
  with ${NOW}
  insert into tidemill.jobs (id, timed, created_at, updated_at, next_run_at, name, data, status, finished_at, expires_at,
    lease_token, history)
  select ${id('finished')}, true, now.at, now.at, now.at, 'noop', jsonb_build_object('n', n), 'completed', now.at, ${EXPIRY}, 'gone.' || n,
    jsonb_build_array(jsonb_build_object('attempt', 1, 'status', 'completed', 'durationMs', 0, 'startedAt', now.at,
      'finishedAt', now.at, 'instanceId', 'host-1-00000000'))
  from now, generate_series(1, $1::integer) n`;

/** Inserts $1 jobs for tomorrow and later. */
export const FUTURE = `
  with ${NOW}
  insert into tidemill.jobs (id, timed, created_at, updated_at, next_run_at, name, data)
  select ${id('future00')}, true, now.at, now.at, now.at + interval '1 day' + n * interval '1 millisecond', 'noop',
    jsonb_build_object('n', n)
  from now, generate_series(1, $1::integer) n`;

/** Inserts $1 due jobs. */
export const DUE = `
  with ${NOW}
  insert into tidemill.jobs (id, timed, created_at, updated_at, next_run_at, name, data)
  select ${id('due00000')}, true, now.at, now.at, now.at, 'noop', jsonb_build_object('n', n)
  from now, generate_series(1, $1::integer) n`;

/** Inserts jobs as Tidemill stores them. The raw contender uses the same shape. */
export async function insertJobs(pool: Pool, count: number): Promise<void> {
  await pool.query(DUE, [count]);
}

/** One job, with id and payload. */
export const INSERT = `insert into tidemill.jobs (id, timed, name, data) values ($1, true, 'noop', $2)`;
export const INSERT_MANY = `insert into tidemill.jobs (id, timed, name, data)
  select id, true, 'noop', data from unnest($1::text[], $2::jsonb[]) as given(id, data)`;

/** Claims up to $1 jobs with a token. */
export const CLAIM = `
  with head as (
    select id from tidemill.jobs
    where name = 'noop' and status = 'pending' and next_run_at <= now()
    order by priority desc, next_run_at, id limit $1 for update skip locked
  )
  update tidemill.jobs j set status = 'processing', claimed_by = 'raw', lease_token = $2,
    locked_at = now(), updated_at = now()
  from head where j.id = head.id returning j.id, j.data`;

const OURS = `where id = any($1::text[]) and lease_token = $2 and status = 'processing'`;
/** Completes the jobs of a claim, given their ids and its token. */
export const COMPLETE = `update tidemill.jobs set status = 'completed', locked_at = null, claimed_by = null,
    finished_at = now(), updated_at = now(), expires_at = ${EXPIRY} ${OURS}`;
/** Deletes them, as queues do that keep no finished jobs. */
export const DELETE = `delete from tidemill.jobs ${OURS}`;

interface Queryable {
  query(text: string): Promise<{ readonly rows: readonly unknown[] }>;
}

/** Returns true if nothing is left to run or to record. */
export async function drained(on: Queryable): Promise<boolean> {
  const { rows } = await on.query(
    `(select 1 from tidemill.jobs where name = 'noop' and status = 'pending' limit 1)
     union all (select 1 from tidemill.jobs where status = 'processing' limit 1)`,
  );
  return rows.length === 0;
}
