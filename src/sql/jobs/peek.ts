import { setOf } from '../../core/set-of.js';
import type { DueSummary } from '../../store/port.js';
import { briefJson, readBrief, type BriefRow } from '../cluster/cluster.js';
import type { Sql } from '../connection/connection.js';
import { run } from '../connection/errors.js';
import { ms } from './record.js';
import { rows } from '../connection/rows.js';
import { isStorable } from '../connection/values.js';

/** An instance that runs more names than this asks for all names with pending jobs, instead of sending its own. */
const MOST_SENT = 100;

interface PeekRow {
  readonly cluster: BriefRow;
  readonly due: readonly (readonly [name: string, at: number])[];
  readonly expires: number | null;
}

/** The first time at which a pending job of any name expires: one key of an index of those that do. */
const expiresJson = ({ names: { jobs } }: Sql): string => `(
    select ${ms('start_by')} from ${jobs} where start_by is not null and status = 'pending' order by start_by limit 1)`;

/**
 * Reads one index key per name: the earliest time that a pending job of it runs at, due or not.
 *
 * $1 names
 */
export const dueStatement = (sql: Sql): string => `
  select json_build_object('cluster', ${briefJson(sql)}, 'expires', ${expiresJson(sql)}, 'due', (
    select coalesce(json_agg(json_build_array(n.name, ${ms('j.next_run_at')})), '[]')
    from json_array_elements_text($1::text::json) as n(name)
    cross join lateral (
      select next_run_at from ${sql.names.jobs}
      where name = n.name and status = 'pending' and next_run_at > '-infinity'
      order by next_run_at, id limit 1
    ) j))::text as json`;

/**
 * The same for all names that have pending jobs, of this instance or not: goes from each name to the next one in the
 * index. Its cost does not depend on how many names are defined.
 *
 * $1 the most names to return
 */
export const allDueStatement = (sql: Sql): string => {
  const head = (beyond: string): string => `select name, next_run_at from ${sql.names.jobs}
    where ${beyond} status = 'pending' and next_run_at > '-infinity' order by name, next_run_at, id limit 1`;
  return `
  with recursive heads as (
    (${head('')})
    union all
    select j.name, j.next_run_at from heads h cross join lateral (${head('name > h.name and')}) j
  )
  select json_build_object('cluster', ${briefJson(sql)}, 'expires', ${expiresJson(sql)}, 'due', (
    select coalesce(json_agg(json_build_array(h.name, ${ms('h.next_run_at')})), '[]')
    from (select * from heads limit $1::integer) h))::text as json`;
};

/** What an idle instance needs to know, in one statement. */
export async function peek(sql: Sql, names: readonly string[]): Promise<DueSummary> {
  const all = names.length > MOST_SENT ? await peekAtAll(sql, names) : undefined;
  const { cluster, due, expires } = all ?? (await peekAt(sql, names));
  return {
    cluster: readBrief(sql, cluster),
    nextDue: new Map(due.map(([name, at]) => [name, new Date(at)])),
    // A newer schema opens only if it says that this version works with it, so every job there is understood.
    foreign: false,
    ...(expires === null ? {} : { expiresAt: new Date(expires) }),
  };
}

async function peekAt(sql: Sql, names: readonly string[]): Promise<PeekRow> {
  const values = [JSON.stringify(names.filter(isStorable))];
  const [row] = await run('look', () => rows<PeekRow>(sql.driver, dueStatement(sql), values));
  return row as PeekRow;
}

/** Undefined if more names have pending jobs than this instance runs: then its own are fewer. */
async function peekAtAll(sql: Sql, names: readonly string[]): Promise<PeekRow | undefined> {
  const [row] = await run('look', () => rows<PeekRow>(sql.driver, allDueStatement(sql), [names.length + 1]));
  const { due, ...rest } = row as PeekRow;
  const own = setOf(names);
  return due.length > names.length ? undefined : { ...rest, due: due.filter(([name]) => own.has(name)) };
}
