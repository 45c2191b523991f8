import { grantStarts, NO_STARTS } from '../../time/rate.js';
import type { KeyedScope, KeyRule, KeyUse } from '../../store/port.js';
import type { Sql } from '../connection/connection.js';
import { rows } from '../connection/rows.js';
import { isStorable } from '../connection/values.js';
import { ms } from '../jobs/record.js';
import { HOLDS } from '../schema/migrations/0012-keys.js';
import {
  KEY,
  KEY_OF_NAME,
  keyedJobs,
  keyedTasks,
  type KeyedTable,
} from '../schema/migrations/keyed-table.js';

const MOST_DUE = 1_000;
/** People look at the keys that wait longest, among at most so many. */
const MOST_KEYS = 20_000;
const ADOPTED_AT_ONCE = 1_000;

const tableOf = ({ names }: Sql, { kind }: KeyedScope): KeyedTable =>
  kind === 'job' ? keyedJobs(names) : keyedTasks(names);

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
function waitingKeys({ rows: table, ofName }: KeyedTable): string {
  const prefix = KEY_OF_NAME('$1::text', `''`);
  // The text after all that begin with the prefix, which ends in a colon.
  const end = `octet_length($1::text)::text || ':' || $1::text || ';'`;
  const next = (beyond: string): string => `select ${ofName} as id from ${table}
    where ${WAITING} and (${ofName}) ${beyond} and (${ofName}) < (${end}) collate "C"
    order by (${ofName}) limit 1`;
  return `with recursive waiting as (
      (${next(`>= (${prefix}) collate "C"`)})
      union all
      select n.id from waiting w cross join lateral (${next('> w.id')}) n
    ) select id from waiting limit ${String(MOST_KEYS)}`;
}

/** What waits under a key by priority, if the work has priorities: each of them is a range of the index. */
const byLevel = (of: (level: string) => string, { level }: KeyedTable): string =>
  level === ''
    ? `(${of('')}) l`
    : `generate_series(10, -10, -1) as level cross join lateral (${of(level)}) l`;

/** When the first work of a key is due. */
function first(work: KeyedTable, id: string): string {
  const { rows: table, ofName, due, id: tie } = work;
  const head = (level: string): string => `select ${due} as at from ${table}
      where ${WAITING} and (${ofName}) = ${id}${level} order by ${due}, ${tie} limit 1`;
  return `(select min(l.at) from ${byLevel(head, work)})`;
}

const GIVEN = `select ${KEY_OF_NAME('$1::text', `(${KEY('k')})`)} as id, k as key, at
  from json_array_elements_text($2::text::json) with ordinality as g(k, at)`;

const chosenOf = (
  work: KeyedTable,
): string => `select c.id, j.limit_key as key, row_number() over (order by c.since) as at
  from (
    select w.id, ${first(work, 'w.id')} as since from (${waitingKeys(work)}) w
  ) c
  cross join lateral (select limit_key from ${work.rows} where ${WAITING} and (${work.ofName}) = c.id limit 1) j
  where c.since <= statement_timestamp() order by c.since limit $2::text::integer`;

/** The work that is next by an order, or that holds the key; when it is due, if it waits. $3 whether such work holds it */
const headOf = ({ rows: table, ofName, due, id, runs }: KeyedTable): string => `
    (select ${id} as id, null::bigint as at from ${table}
     where ${runs('')} and limit_key is not null and (${ofName}) = c.id limit 1)
    union all
    (select ${id}, null from ${table} where ${WAITING} and (${ofName}) = c.id and limit_order is null
       and ${due} <= statement_timestamp() order by limit_order, ${due}, ${id} limit 1)
    union all
    (select ${id}, ${ms(due)} from ${table} where ${WAITING} and (${ofName}) = c.id and ${HOLDS}
       and ($3::text = 'hold' or ${due} <= statement_timestamp())
     order by limit_order, ${due}, ${id} limit 1)
    limit 1`;

function usesStatement(work: KeyedTable, chosen: string): string {
  const { rows: table, ofName, due, runs, keys, hasOrder } = work;
  const dueOf = (
    level: string,
  ): string => `select from ${table} where ${WAITING} and (${ofName}) = c.id${level}
          and ${due} <= statement_timestamp() limit ${String(MOST_DUE)}`;
  return `
  select json_build_object('key', c.key, 'now', floor(extract(epoch from statement_timestamp()) * 1000),
    'running', (select count(*) from ${table} where ${runs('')} and limit_key is not null and (${ofName}) = c.id),
    'due', (select count(*) from (select from ${byLevel(dueOf, work)} limit ${String(MOST_DUE)}) d),
    'since', ${ms(first(work, 'c.id'))},
    'starts', (select starts from ${keys} k where k.name = $1::text and k.key = ${KEY('c.key')}),
    'head', h.id, 'head_at', h.at)::text as json
  from (${chosen}) c
  left join lateral (${hasOrder ? headOf(work) : 'select null as id, null as at'}) h on true
  order by c.at`;
}

export async function keyUses(
  sql: Sql,
  scope: KeyedScope,
  rule: KeyRule,
  which: { readonly limit: number } | readonly string[],
): Promise<readonly KeyUse[]> {
  const { name } = scope;
  if (!isStorable(name)) return [];
  const work = tableOf(sql, scope);
  const isList = (value: typeof which): value is readonly string[] => Array.isArray(value);
  const [chosen, what] = isList(which)
    ? [GIVEN, JSON.stringify(which.filter(isStorable))]
    : [chosenOf(work), String(which.limit)];
  const holds = rule.order !== undefined && rule.whileRetrying !== 'pass' ? 'hold' : 'pass';
  const found = await rows<UseRow>(sql.driver.unhurried, usesStatement(work, chosen), [
    name,
    what,
    ...(work.hasOrder ? [holds] : []),
  ]);
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

/** Work that was stored without a key, such as by an older process, gets the empty one. */
async function adopt(
  { driver }: Sql,
  { rows: table, name: column, due }: KeyedTable,
  name: string,
): Promise<number> {
  const text = `with adopted as (
      update ${table} set limit_key = '' where ctid = any(array(
        select ctid from ${table}
        where ${column} = $1::text and status = 'pending' and ${due} > '-infinity' and limit_key is null
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
 * work although none runs that holds them up, and those that wait for a time although something is due.
 *
 * $1 the name · $2 how much of a key may run
 */
const wakeStatement = (work: KeyedTable): string => {
  const { rows: table, ofName, runs, keys, wakes } = work;
  return `
  with told as (
    insert into ${wakes} (name, key, at, adds, frees)
    select $1::text, l.key, '-infinity', true, true
    from (${waitingKeys(work)}) w
    cross join lateral (
      select ${KEY('limit_key')} as key from ${table} where ${WAITING} and (${ofName}) = w.id limit 1) l
    left join ${keys} k on k.name = $1::text and k.key = l.key
    where (k.key is null
        or (k.at = 'infinity' and ($2::text is null or $2::text::integer > (
          select count(*) from ${table} where ${runs('')} and limit_key is not null and (${ofName}) = w.id)))
        or (k.at < 'infinity' and k.at > statement_timestamp() + interval '1 second' and not k.held
          and ${first(work, 'w.id')} <= statement_timestamp()))
      and not exists (select from ${wakes} n where n.name = $1::text and n.key = l.key)
    returning 1)
  select count(*)::text as json from told`;
};

export async function repairKeys(sql: Sql, scope: KeyedScope, rule: KeyRule): Promise<number> {
  const { name } = scope;
  if (!isStorable(name)) return 0;
  const work = tableOf(sql, scope);
  const adopted = await adopt(sql, work, name);
  const most = rule.order === undefined ? (rule.concurrency ?? null) : 1;
  const [woken = 0] = await rows<number>(sql.driver.unhurried, wakeStatement(work), [
    name,
    most === null ? null : String(most),
  ]);
  return adopted + woken;
}
