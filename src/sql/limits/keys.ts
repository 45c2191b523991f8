import { grantStarts, NO_STARTS } from '../../time/rate.js';
import type { KeyRule, KeyUse } from '../../store/port.js';
import type { Sql } from '../connection/connection.js';
import { rows } from '../connection/rows.js';
import { isStorable } from '../connection/values.js';
import { ms } from '../jobs/record.js';
import { HOLDS } from '../schema/migrations/0012-keys.js';
import { JOB_KEY, KEY, KEY_OF_NAME } from '../schema/migrations/0012-triggers.js';

const MOST_DUE = 1_000;
/** People look at the keys that wait longest, among at most so many. */
const MOST_KEYS = 20_000;
const ADOPTED_AT_ONCE = 1_000;

interface UseRow {
  readonly key: string;
  readonly now: number;
  readonly running: number;
  readonly due: number;
  readonly since: number | null;
  readonly starts: { readonly next: number; readonly starts: readonly (readonly [number, number])[] } | null;
  readonly head: string | null;
  /** When `head` is due, if it waits. */
  readonly head_at: number | null;
}

const WAITING = `status = 'pending' and limit_key is not null`;

/**
 * A query for the keys of which something waits, as they are indexed: goes from each to the next one in the index.
 *
 * $1 the name
 */
function waitingKeys(jobs: string): string {
  const prefix = KEY_OF_NAME('$1::text', `''`);
  // The text after all that begin with the prefix, which ends in a colon.
  const end = `octet_length($1::text)::text || ':' || $1::text || ';'`;
  const next = (beyond: string): string => `select ${JOB_KEY} as id from ${jobs}
    where ${WAITING} and (${JOB_KEY}) ${beyond} and (${JOB_KEY}) < (${end}) collate "C"
    order by (${JOB_KEY}) limit 1`;
  return `with recursive waiting as (
      (${next(`>= (${prefix}) collate "C"`)})
      union all
      select n.id from waiting w cross join lateral (${next('> w.id')}) n
    ) select id from waiting limit ${String(MOST_KEYS)}`;
}

/** When the first job of a key is due. */
const first = (jobs: string, id: string): string => `(select min(l.next_run_at)
  from generate_series(10, -10, -1) as level cross join lateral (
    select next_run_at from ${jobs} where ${WAITING} and (${JOB_KEY}) = ${id} and priority = level
    order by next_run_at, id limit 1) l)`;

const GIVEN = `select ${KEY_OF_NAME('$1::text', `(${KEY('k')})`)} as id, k as key, at
  from json_array_elements_text($2::text::json) with ordinality as g(k, at)`;

const chosenOf = (
  jobs: string,
): string => `select c.id, j.limit_key as key, row_number() over (order by c.since) as at
  from (
    select w.id, ${first(jobs, 'w.id')} as since from (${waitingKeys(jobs)}) w
  ) c
  cross join lateral (select limit_key from ${jobs} where ${WAITING} and (${JOB_KEY}) = c.id limit 1) j
  where c.since <= statement_timestamp() order by c.since limit $2::text::integer`;

const usesStatement = ({ jobs, table }: Sql['names'], chosen: string): string => `
  select json_build_object('key', c.key, 'now', floor(extract(epoch from statement_timestamp()) * 1000),
    'running', (select count(*) from ${jobs} where status = 'processing' and limit_key is not null and (${JOB_KEY}) = c.id),
    'due', (select count(*) from (
      select from generate_series(10, -10, -1) as level cross join lateral (
        select from ${jobs} where ${WAITING} and (${JOB_KEY}) = c.id and priority = level
          and next_run_at <= statement_timestamp() limit ${String(MOST_DUE)}) l limit ${String(MOST_DUE)}) d),
    'since', ${ms(first(jobs, 'c.id'))},
    'starts', (select starts from ${table('job_keys')} k where k.name = $1::text and k.key = ${KEY('c.key')}),
    'head', h.id, 'head_at', h.at)::text as json
  from (${chosen}) c
  left join lateral (
    (select id, null::bigint as at from ${jobs}
     where status = 'processing' and limit_key is not null and (${JOB_KEY}) = c.id limit 1)
    union all
    (select id, null from ${jobs} where ${WAITING} and (${JOB_KEY}) = c.id and limit_order is null
       and next_run_at <= statement_timestamp() order by limit_order, next_run_at, id limit 1)
    union all
    (select id, ${ms('next_run_at')} from ${jobs} where ${WAITING} and (${JOB_KEY}) = c.id and ${HOLDS}
       and ($3::text = 'hold' or next_run_at <= statement_timestamp())
     order by limit_order, next_run_at, id limit 1)
    limit 1
  ) h on true
  order by c.at`;

export async function keyUses(
  { driver, names }: Sql,
  name: string,
  rule: KeyRule,
  which: { readonly limit: number } | readonly string[],
): Promise<readonly KeyUse[]> {
  if (!isStorable(name)) return [];
  const isList = (value: typeof which): value is readonly string[] => Array.isArray(value);
  const [chosen, what] = isList(which)
    ? [GIVEN, JSON.stringify(which.filter(isStorable))]
    : [chosenOf(names.jobs), String(which.limit)];
  const holds = rule.order !== undefined && rule.whileRetrying !== 'pass' ? 'hold' : 'pass';
  const found = await rows<UseRow>(driver.unhurried, usesStatement(names, chosen), [name, what, holds]);
  return found.map((row) => useOf(row, rule));
}

function useOf({ key, now, running, due, since, starts, head, head_at }: UseRow, rule: KeyRule): KeyUse {
  const state =
    starts === null
      ? NO_STARTS
      : { next: starts.next, starts: starts.starts.map(([end, count]) => ({ end, count })) };
  const freeAt =
    rule.rate === undefined ? 0 : grantStarts(state, rule.rate, { wanted: 0, now, withinMs: 0 }).freeAt;
  return {
    key,
    running,
    due,
    ...(since === null || since > now ? {} : { dueSince: new Date(since) }),
    ...(freeAt > now ? { rateFreeAt: new Date(freeAt) } : {}),
    ...(rule.order === undefined || head === null ? {} : { head }),
    ...(rule.order === undefined || head_at === null || head_at <= now ? {} : { headAt: new Date(head_at) }),
  };
}

/** Jobs that were stored without a key, such as by an older process, get the empty one. */
async function adopt({ driver, names: { jobs } }: Sql, name: string): Promise<number> {
  const text = `with adopted as (
      update ${jobs} set limit_key = '' where ctid = any(array(
        select ctid from ${jobs}
        where name = $1::text and status = 'pending' and next_run_at > '-infinity' and limit_key is null
        limit ${String(ADOPTED_AT_ONCE)} for update skip locked))
      returning 1)
    select count(*)::text as json from adopted`;
  for (let total = 0; ;) {
    const [count = 0] = await rows<number>(driver.unhurried, text, [name]);
    total += count;
    if (count < ADOPTED_AT_ONCE) return total;
  }
}

/**
 * Wakes the keys of which something waits and that no claim would look at: unknown ones, those that wait for the end of
 * a job although none runs that holds them up, and those that wait for a time although something is due.
 *
 * $1 the name · $2 how much of a key may run
 */
const wakeStatement = ({ jobs, table }: Sql['names']): string => `
  with told as (
    insert into ${table('key_wakes')} (name, key, at, adds, frees)
    select $1::text, l.key, '-infinity', true, true
    from (${waitingKeys(jobs)}) w
    cross join lateral (
      select ${KEY('limit_key')} as key from ${jobs} where ${WAITING} and (${JOB_KEY}) = w.id limit 1) l
    left join ${table('job_keys')} k on k.name = $1::text and k.key = l.key
    where (k.key is null
        or (k.at = 'infinity' and ($2::text is null or $2::text::integer > (
          select count(*) from ${jobs} where status = 'processing' and limit_key is not null and (${JOB_KEY}) = w.id)))
        or (k.at < 'infinity' and k.at > statement_timestamp() + interval '1 second' and not k.held
          and ${first(jobs, 'w.id')} <= statement_timestamp()))
      and not exists (select from ${table('key_wakes')} n where n.name = $1::text and n.key = l.key)
    returning 1)
  select count(*)::text as json from told`;

export async function repairKeys(sql: Sql, name: string, rule: KeyRule): Promise<number> {
  if (!isStorable(name)) return 0;
  const adopted = await adopt(sql, name);
  const most = rule.order === undefined ? (rule.concurrency ?? null) : 1;
  const [woken = 0] = await rows<number>(sql.driver.unhurried, wakeStatement(sql.names), [
    name,
    most === null ? null : String(most),
  ]);
  return adopted + woken;
}
