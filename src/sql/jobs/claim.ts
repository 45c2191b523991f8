import { byJobOrder } from '../../core/records/claim-order.js';
import type { JobRecord } from '../../core/records/job.js';
import type { ClaimAnswer, ClaimRequest, Instance, NameLimit } from '../../store/port.js';
import { briefJson, readBrief, type BriefRow } from '../cluster/cluster.js';
import type { Sql } from '../connection/connection.js';
import type { Queryable } from '../connection/driver.js';
import { run } from '../connection/errors.js';
import { claimByKeys, claimParts, heldUpOf, quotedText } from '../limits/claim-keyed.js';
import { keyedJobs } from '../schema/migrations/keyed-table.js';
import { CLAIMED, CLAIMED_BY_KEY, claimedRecord, recordColumns, records } from './record.js';
import { answering } from '../connection/rows.js';
import { isStorable, timeText } from '../connection/values.js';

/** Of few jobs, the time in which they may start is limited. */
const IN_TIME = `(start_by is null or start_by > statement_timestamp())`;

/**
 * Claims jobs in one statement. Each priority of each name is a range of its own in the index, so jobs of a higher
 * priority that are not due yet are never read. Only names with a due job are searched this way. Rows that other
 * transactions hold are skipped. The names then take turns, and rows beyond a name's share are released.
 *
 * The rows are locked, so they stay where they are. The update addresses them by ctid, so that PostgreSQL never
 * searches for them again, whatever its planner estimates. A row that moved between the start of the statement and its
 * lock is left for the next claim.
 *
 * $1 names with their limits · $2 limit over all names · $3 instance · $4 token · $5 heartbeat
 *
 * `ends`: a name has an end, after which none of it is taken.
 */
export const claimStatement = (sql: Sql, ends = false): string => {
  const { jobs, pauses } = sql.names;
  return `
  with open as materialized (
    select n.name, n.max, n.turn
    from json_to_recordset($1::text::json) as n(name text, max integer, turn integer${ends ? ', until timestamptz' : ''})
    cross join lateral (
      select from ${jobs}
      where name = n.name and status = 'pending' and next_run_at > '-infinity'
        and next_run_at <= statement_timestamp()
      order by next_run_at, id
      limit 1
    ) due
    where not exists (select from ${pauses} p where p.kind = 'jobs' and p.name in (n.name, ''))${ends ? " and clock_timestamp() <= coalesce(n.until, 'infinity')" : ''}
  ), offered as materialized (
    select j.place_in_table, o.turn, row_number() over (partition by o.turn order by j.priority desc, j.next_run_at, j.id) as place
    from open o
    cross join lateral (
      select head.place_in_table, head.id, head.priority, head.next_run_at
      from generate_series(10, -10, -1) as level
      cross join lateral (
        select ctid as place_in_table, id, priority, next_run_at from ${jobs}
        where name = o.name and status = 'pending' and priority = level
          and next_run_at <= statement_timestamp() and ${IN_TIME}
        order by next_run_at, id
        limit o.max
        for update skip locked
      ) head
      limit o.max
    ) j
  ), taken as materialized (
    select place_in_table from offered order by place, turn limit $2::integer
  ), ${claimed(sql, 'select place_in_table from taken')}
  ${answer(sql, '(select count(*) from offered)')}`;
};

const claimed = ({ names: { jobs } }: Sql, places: string): string => `claimed as (
    update ${jobs} j set
      status = 'processing', claimed_by = $3::text, lease_token = $4::text,
      heartbeat_interval = $5::double precision,
      locked_at = statement_timestamp(), updated_at = statement_timestamp()
    where j.ctid = any(array(${places}))
    returning ${CLAIMED} as json
  )`;

const answer = (sql: Sql, offered: string): string => `
  select json_build_object('cluster', ${briefJson(sql)}, 'offered', ${offered})::text as json
  union all
  select json from claimed`;

/**
 * Claims the jobs that a wake-up named, if they are still free. PostgreSQL plans it in a fraction of the time that the
 * claim above takes, and for an idle instance planning is most of that. The peek that follows finds whatever else is
 * due.
 *
 * $1 ids · $2 limit · the rest as above
 */
export const hintedStatement = (sql: Sql): string => {
  const { jobs, pauses } = sql.names;
  return `
  with ${claimed(
    sql,
    `select ctid from ${jobs} h
     where id = any(array(select json_array_elements_text($1::text::json)))
       and status = 'pending' and next_run_at <= statement_timestamp() and ${IN_TIME}
       and not exists (select from ${pauses} p where p.kind = 'jobs' and p.name in (h.name, ''))
     limit $2::integer for update of h skip locked`,
  )}
  ${answer(sql, '0')}`;
};

interface Summary {
  readonly cluster: BriefRow;
  readonly offered: number;
}

type Limits = readonly (readonly [string, NameLimit])[];

interface OfferedName {
  readonly name: string;
  readonly max: number;
  readonly turn: number;
  readonly until?: string;
}

/** No name needs to offer more than twice its fair share: a row that is locked and not taken is locked in vain. */
function offersOf(limits: Limits, total: number): OfferedName[] {
  const most = limits.length === 1 ? total : 2 * Math.ceil(total / limits.length);
  return limits
    .map(([name, { max, notAfter }], turn) => ({
      name,
      max: Math.min(max, most),
      turn,
      ...(notAfter === undefined ? {} : { until: timeText(notAfter) }),
    }))
    .filter(({ name }) => isStorable(name));
}

const isLimited = ({ keys, notAfter }: NameLimit): boolean => keys !== undefined || notAfter !== undefined;

/** The ids of hints whose names have room; none if limits decide about one of them. */
function hintedIds({ hints = [], limits }: ClaimRequest): string[] {
  if (hints.some(({ name }) => isLimited(limits.get(name) ?? NO_LIMIT))) return [];
  const room = new Map([...limits].map(([name, { max }]) => [name, max]));
  return hints.flatMap(({ name, key }) => {
    const left = room.get(name) ?? 0;
    room.set(name, left - 1);
    return left > 0 && isStorable(String(key)) ? [String(key)] : [];
  });
}

const NO_LIMIT: NameLimit = { max: 0, rank: 0, of: 1 };

export async function claim(sql: Sql, request: ClaimRequest): Promise<ClaimAnswer> {
  const ids = hintedIds(request);
  if (ids.length > 0) {
    const values = valuesOf(request, ids, request.total);
    return claimBy(sql, sql.driver.prepared, request, hintedStatement(sql), values, []);
  }
  return claimParts<JobRecord>(request.limits, request.total, {
    keyed: (names, total) => claimKeyed(sql, request, names, total),
    plain: (names, total) => claimPlain(sql, request, names, total),
    inOrder: byJobOrder,
  });
}

const valuesOf = (
  { instance, token, heartbeatMs }: ClaimRequest,
  what: readonly unknown[],
  total: number,
): (string | number)[] => [JSON.stringify(what), total, instance.instanceId, token, heartbeatMs];

function claimPlain(sql: Sql, request: ClaimRequest, names: Limits, total: number): Promise<ClaimAnswer> {
  const offers = offersOf(names, total);
  const ends = offers.some(({ until }) => until !== undefined);
  return claimBy(
    sql,
    sql.driver,
    request,
    claimStatement(sql, ends),
    valuesOf(request, offers, total),
    offers,
  );
}

/** What a claim by keys writes. */
const writing = ({ names: { jobs } }: Sql, { instance, token, heartbeatMs }: ClaimRequest): string => `
  update ${jobs} j set status = 'processing', claimed_by = ${quotedText(instance.instanceId)},
    lease_token = ${quotedText(token)}, heartbeat_interval = ${String(heartbeatMs)}, locked_at = $2, updated_at = $2
  where j.ctid = any($1)
  returning ${CLAIMED_BY_KEY} as json`;

async function claimKeyed(
  sql: Sql,
  request: ClaimRequest,
  keyed: Limits,
  total: number,
): Promise<ClaimAnswer> {
  sql.notifier.claimsByKeys(keyed.map(([name]) => name));
  const { cluster, at, names, texts } = await run('claim', () =>
    claimByKeys<BriefRow>(sql, {
      work: keyedJobs(sql.names),
      limits: keyed,
      total,
      brief: briefJson(sql),
      writing: writing(sql, request),
    }),
  );
  const jobs = jobsOf(texts, request, new Date(at));
  return {
    jobs,
    asked: jobs.length,
    more: names.some(({ more }) => more),
    ...heldUpOf(names),
    cluster: readBrief(sql, cluster),
  };
}

const jobsOf = (
  texts: readonly string[],
  { instance, token, heartbeatMs }: ClaimRequest,
  at: Date,
): JobRecord[] => {
  const { instanceId: claimedBy } = instance;
  const holding = { claimedBy, leaseToken: token, heartbeatInterval: heartbeatMs, at };
  return texts.map((json) => claimedRecord(json, holding)).sort(byJobOrder);
};

async function claimBy(
  sql: Sql,
  on: Queryable,
  request: ClaimRequest,
  text: string,
  values: (string | number)[],
  limits: readonly { readonly name: string; readonly max: number }[],
): Promise<ClaimAnswer> {
  const { rows } = await run('claim', () => on.query(text, values));
  const texts = rows.map(({ json }) => json as string);
  const { cluster, offered } = JSON.parse(texts[0] ?? '') as Summary;
  const jobs = jobsOf(texts.slice(1), request, new Date(cluster.now));
  const full = ({ name, max }: { name: string; max: number }): boolean =>
    jobs.filter((job) => job.name === name).length >= max;
  return {
    jobs,
    asked: jobs.length,
    more: offered > jobs.length || (jobs.length > 0 && limits.some(full)),
    cluster: readBrief(sql, cluster),
  };
}

export async function claimedUnder(
  { driver, names }: Sql,
  instance: Instance,
  token: string,
): Promise<readonly JobRecord[]> {
  const text = answering(
    recordColumns(names),
    `${names.jobs} where claimed_by = $1::text and status = 'processing' and lease_token = $2::text`,
  );
  return run('read a claim again', async () =>
    (await records(driver, text, [instance.instanceId, token])).sort(byJobOrder),
  );
}
