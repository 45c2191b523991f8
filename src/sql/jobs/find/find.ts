import type { FailureLine } from '../../../core/records/failure-groups.js';
import { FINISHED, JOB_STATUSES, type JobRecord, type JobStatus } from '../../../core/records/job.js';
import type { Ends, Found, JobFilter, NameCounts, Page, StatusCounts } from '../../../store/port.js';
import type { Sql } from '../../connection/connection.js';
import type { Queryable } from '../../connection/driver.js';
import { isTimeLimit, run } from '../../connection/errors.js';
import { conditions, distinctNames, findStatement, literal, JobParameters, RESTING, where } from './list.js';
import { LEAN_COLUMNS, ms, recordColumns, recordOf, records } from '../record.js';
import { answering, rows } from '../../connection/rows.js';
import { limited, withinLimit } from '../../connection/time-limit.js';
import { isStorable } from '../../connection/values.js';

/** Time limit for filters that no index serves. */
const TIME_LIMIT_MS = 5_000;

export async function get({ driver, names }: Sql, id: string): Promise<JobRecord | undefined> {
  const parameters = new JobParameters();
  const text = answering(recordColumns(names), `${names.jobs} where id = any(${parameters.list([id])})`);
  return (await run('read job', () => records(driver, text, parameters.values)))[0];
}

/** One statement, so that a job that ends meanwhile is neither in both lists nor missing from both. */
export async function ends({ driver, names }: Sql, ids: readonly string[]): Promise<Ends> {
  const parameters = new JobParameters();
  const asked = `${names.jobs} where id = any(${parameters.list(ids)}) and status`;
  const finished = `in (${FINISHED.map((status) => `'${status}'`).join(', ')})`;
  const live = `select json_build_object('live', id)::text from ${asked} not ${finished}`;
  const text = `${answering(recordColumns(names), `${asked} ${finished}`)} union all ${live}`;
  const { rows } = await run('read jobs', () => driver.query(text, parameters.values));
  const texts = rows.map(({ json }) => json as string);
  const isLive = (json: string): boolean => json.startsWith('{"live"');
  return {
    ended: texts.filter((json) => !isLive(json)).map(recordOf),
    live: texts.filter(isLive).map((json) => (JSON.parse(json) as { readonly live: string }).live),
  };
}

export async function find(sql: Sql, filter: JobFilter, page: Page): Promise<Found> {
  const { text, values } = findStatement(sql, filter, page);
  return run('find', async () => {
    try {
      const found = await limited(sql.driver, TIME_LIMIT_MS, (transaction) =>
        records(transaction, text, values),
      );
      return {
        jobs: inOrder(found, page).slice(0, page.limit),
        more: found.length > page.limit,
        partial: false,
      };
    } catch (error) {
      if (isTimeLimit(error)) return { jobs: [], more: false, partial: true };
      throw error;
    }
  });
}

/** Restores the order of the page, which the outer query that picks the columns does not guarantee. */
function inOrder(jobs: readonly JobRecord[], { field, direction }: Page): JobRecord[] {
  const byId = (a: JobRecord, b: JobRecord): number => Buffer.compare(Buffer.from(a.id), Buffer.from(b.id));
  return [...jobs].sort((a, b) => direction * (a[field].getTime() - b[field].getTime() || byId(a, b)));
}

/** Each status has an index of its own, so each is counted by itself. */
export async function count({ driver, names }: Sql, filter: JobFilter, most: number): Promise<number> {
  const parameters = new JobParameters();
  const shared = conditions(filter, parameters);
  const own: readonly string[][] =
    filter.status === undefined ? [[]] : [['false'], ...[...new Set(filter.status)].map(isStatus)];
  const matching = own.map((one) => `select 1 from ${names.jobs} ${where([...one, ...shared])}`);
  const limit = Number.isFinite(most) ? `limit ${parameters.add(most, 'bigint')}` : '';
  const text = `select count(*)::text as json from (${matching.join(' union all ')} ${limit}) counted`;
  const counted = (on: Queryable): Promise<readonly number[]> => rows<number>(on, text, parameters.values);
  const [number = 0] = await run('count', () =>
    Number.isFinite(most) ? withinLimit(driver, 'count', TIME_LIMIT_MS, counted) : counted(driver),
  );
  return number;
}

const isStatus = (status: JobStatus): string[] => [`status = '${status}'`];

const inAny = (statuses: readonly JobStatus[]): string[] =>
  statuses.length === 0 ? ['false'] : [`status in (${literal(statuses)})`];

/**
 * Reads one index key for each failed job. For a single name it takes the newest by creation, since that is the order
 * of its index.
 */
function failuresStatement({ names: { jobs } }: Sql, name?: string): string {
  const [own, order] = name === undefined ? ['', 'updated_at'] : ['and name = $2::text', 'created_at'];
  return `select json_build_object('name', name, 'message', coalesce(fail_reason, ''), 'at', at)::text as json
    from (select name, fail_reason, ${ms('updated_at')} as at from ${jobs} where status = 'failed' ${own}
      order by ${order} desc, id desc limit $1::integer) f`;
}

export async function failures(sql: Sql, limit: number, name?: string): Promise<readonly FailureLine[]> {
  if (name !== undefined && !isStorable(name)) return [];
  const values = [limit, ...(name === undefined ? [] : [name])];
  const found = await run('read failures', () =>
    rows<{ name: string; message: string; at: number }>(sql.driver, failuresStatement(sql, name), values),
  );
  return found.map((line) => ({ ...line, at: new Date(line.at) }));
}

/**
 * Reads matching jobs without their payload, ordered by id, so that a job that changes meanwhile is never read twice.
 */
export async function* each(
  { driver, names }: Sql,
  filter: JobFilter,
  size: number,
): AsyncGenerator<readonly JobRecord[]> {
  for (let last = ''; ;) {
    const parameters = new JobParameters();
    const all = [
      ...(filter.status === undefined ? [] : inAny(filter.status)),
      ...conditions(filter, parameters),
      `id > ${parameters.add(last, 'text')}`,
    ];
    const limit = parameters.add(size, 'integer');
    const text = answering(LEAN_COLUMNS, `${names.jobs} ${where(all)} order by id limit ${limit}`);
    const found = await run('find', () => records(driver, text, parameters.values));
    if (found.length > 0) yield found;
    if (found.length < size) return;
    last = found.at(-1)?.id ?? '';
  }
}

/** The running jobs of each name, all names, and how many jobs of each may be counted. $1 cap over all names */
export const namesWithBudget = (jobs: string): string => `
  with running as materialized (
    select name, count(*) as count from ${jobs} where status = 'processing' group by name
  ), named as materialized (
    (${distinctNames(jobs, `status <> 'processing'`)}) union select name from running
  ), budget as (select greatest(1000, $1::bigint / greatest(1, count(*))) as cap from named)`;

/**
 * Counts stop at the cap, so that a million finished jobs cost no more than that. Each status of each name is a range
 * of its own, read in index order; without the order PostgreSQL may choose to scan the table. Running jobs are few, and
 * counted once for all names.
 *
 * $1 cap over all names · $2 the table of jobs
 */
export function statsStatement({ names: { jobs } }: Sql): string {
  const counts = RESTING.map(
    (status) => `select '${status}' as status, count(*) as count from (
      select from ${jobs} where name = n.name and status = '${status}'
      order by created_at desc, id desc limit budget.cap + 1) one`,
  );
  const running = `select 'processing', coalesce((select r.count from running r where r.name = n.name), 0)`;
  return `
  ${namesWithBudget(jobs)}
  select json_build_object('name', n.name, 'status', c.status, 'count', c.count, 'cap', budget.cap,
    'rows', (select reltuples from pg_class where oid = $2::text::regclass))::text as json
  from named n cross join budget cross join lateral (${[...counts, running].join(' union all ')}) c`;
}

interface Counted {
  readonly name: string;
  readonly status: JobStatus;
  readonly count: number;
  readonly cap: number;
  readonly rows: number;
}

export async function stats(sql: Sql, cap: number): Promise<{ names: readonly NameCounts[]; total: number }> {
  const counted = await run('stats', () =>
    rows<Counted>(sql.driver, statsStatement(sql), [cap, sql.names.jobs]),
  );
  const byName = new Map<string, Counted[]>();
  for (const one of counted) byName.set(one.name, [...(byName.get(one.name) ?? []), one]);
  const names = [...byName].map(([name, ones]) => ({
    name,
    counts: Object.fromEntries(
      ones.map(({ status, count: found, cap: most }) => [status, Math.min(most, found)]),
    ) as StatusCounts,
    capped: JOB_STATUSES.filter((status) => ones.some((one) => one.status === status && one.count > one.cap)),
  }));
  const sum = counted.reduce((total, one) => total + Math.min(one.cap, one.count), 0);
  const isCapped = names.some(({ capped }) => capped.length > 0);
  return {
    names: names.sort((a, b) => (a.name < b.name ? -1 : 1)),
    // The server's own estimate, if counting all jobs would take too long.
    total: isCapped ? Math.max(sum, Math.round(counted[0]?.rows ?? 0)) : sum,
  };
}
