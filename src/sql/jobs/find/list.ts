/** The statement behind lists of jobs: which index serves which filter and order. */
import type { FieldValues } from '../../../core/fields.js';
import { JOB_STATUSES, type JobStatus } from '../../../core/records/job.js';
import type { JobFilter, Page, TimeRange } from '../../../store/port.js';
import type { Sql } from '../../connection/connection.js';
import { answering } from '../../connection/rows.js';
import { isStorable, timeText } from '../../connection/values.js';
import { idTime, isTimed, TIMED_IDS } from '../enqueue/ids.js';
import { recordColumns } from '../record.js';

const COLUMN = { createdAt: 'created_at', updatedAt: 'updated_at', nextRunAt: 'next_run_at' } as const;

/** Collects the values of a statement, and numbers them. */
export class JobParameters {
  readonly values: (string | number | null)[] = [];

  add(value: string | number, type: string): string {
    this.values.push(value);
    return `$${String(this.values.length)}::${type}`;
  }

  list(texts: readonly string[]): string {
    return `array(select json_array_elements_text(${this.add(JSON.stringify(texts.filter(isStorable)), 'text')}::json))`;
  }
}

/** All statuses but `processing`, which the indexes for lists leave out. */
export const RESTING: readonly JobStatus[] = JOB_STATUSES.filter((status) => status !== 'processing');
export const literal = (statuses: readonly JobStatus[]): string =>
  statuses.map((status) => `'${status}'`).join(', ');

function range(column: string, { from, to }: TimeRange, parameters: JobParameters): string[] {
  return [
    ...(from === undefined ? [] : [`${column} >= ${parameters.add(timeText(from), 'text')}::timestamptz`]),
    ...(to === undefined ? [] : [`${column} <= ${parameters.add(timeText(to), 'text')}::timestamptz`]),
  ];
}

/** A successor that waits has its key in another column. */
const keyIn = (list: string): string => `(unique_key = any(${list}) or successor_key = any(${list}))`;

/** An allow-list of columns; every value is a parameter. Statuses are added by the caller: they are a closed set. */
export function conditions(filter: JobFilter, parameters: JobParameters): string[] {
  const { ids, name, uniqueKey, createdAt, updatedAt, nextRunAt, error, data } = filter;
  return [
    ...(ids === undefined ? [] : [`id = any(${parameters.list(ids)})`]),
    ...(name === undefined ? [] : [`name = any(${parameters.list(name)})`]),
    ...(uniqueKey === undefined ? [] : [keyIn(parameters.list(uniqueKey))]),
    ...(createdAt === undefined ? [] : range('created_at', createdAt, parameters)),
    ...(updatedAt === undefined ? [] : range('updated_at', updatedAt, parameters)),
    ...(nextRunAt === undefined ? [] : range('next_run_at', nextRunAt, parameters)),
    ...(error === undefined
      ? []
      : [
          isStorable(error)
            ? `strpos(lower(fail_reason), lower(${parameters.add(error, 'text')})) > 0`
            : 'false',
        ]),
    ...(data === undefined ? [] : fieldConditions('data', data, parameters)),
  ];
}

/**
 * Conditions on parts of a JSON column. The path is a jsonpath text, so its keys are written as JSON texts. In lax mode
 * it looks into arrays on the path and at its end. The value is a jsonpath variable.
 */
function fieldConditions(column: string, fields: FieldValues, parameters: JobParameters): string[] {
  return Object.entries(fields).map(([path, value]) => {
    if (!isStorable(path) || (typeof value === 'string' && !isStorable(value))) return 'false';
    const keys = path.split('.').map((key) => `.${JSON.stringify(key)}`);
    const test = parameters.add(`$${keys.join('')} ? (@ == $value)`, 'text');
    return `jsonb_path_exists(${column}, ${test}::jsonpath, ${parameters.add(JSON.stringify({ value }), 'text')}::jsonb, true)`;
  });
}

export const where = (all: readonly string[]): string =>
  all.length === 0 ? '' : `where ${all.join(' and ')}`;

/** A condition: later in the sort order than the last job of the previous page; ties are broken by id. */
function after({ after: last, field, direction }: Page, parameters: JobParameters): string[] {
  if (last === undefined) return [];
  const at = parameters.add(timeText(last.at), 'text');
  const id = parameters.add(last.key, 'text');
  return [`(${COLUMN[field]}, id) ${direction === 1 ? '>' : '<'} (${at}::timestamptz, ${id})`];
}

/** A range that an index has in order. */
interface Branch {
  readonly own: readonly string[];
  /** The names that each get a range of their own. */
  readonly among?: string;
  /** The columns of an order that is the same here as that of the page. */
  readonly order?: readonly string[];
}

/**
 * The statement of `find`. Each branch is a range that an index has in order, and returns one page at most: one branch
 * for each name and resting status, or for each status, and one for running jobs, which are few. The statement returns
 * the first page of all branches together.
 */
export function findStatement(
  { names }: Pick<Sql, 'names'>,
  filter: JobFilter,
  page: Page,
): { text: string; values: (string | number | null)[] } {
  const { jobs } = names;
  const parameters = new JobParameters();
  const among = byName(jobs, filter, page, parameters);
  const { name, ...rest } = filter;
  const shared = [...conditions(among === undefined ? filter : rest, parameters), ...after(page, parameters)];
  const limit = parameters.add(page.limit + 1, 'integer');
  const direction = page.direction === 1 ? 'asc' : 'desc';
  const ordered = (columns: readonly string[] = [COLUMN[page.field], 'id']): string =>
    `order by ${columns.map((column) => `${column} ${direction}`).join(', ')} limit ${limit}`;
  const render = (branch: Branch): string => {
    const source = branch.among ?? among;
    const own = source === undefined ? branch.own : [...branch.own, 'j.name = n.name'];
    const pageOf = `select j.* from ${jobs} j ${where([...own, ...shared])} ${ordered(branch.order)}`;
    return source === undefined
      ? `(${pageOf})`
      : `(select p.* from ${source} n cross join lateral (${pageOf}) p)`;
  };
  const branches = branchesOf(jobs, filter, page, parameters);
  const all = (branches.length === 0 ? [{ own: ['false'] }] : branches).map(render).join(' union all ');
  return {
    text: answering(recordColumns(names), `(select * from (${all}) b ${ordered()}) page`),
    values: parameters.values,
  };
}

/** The names that each get their own range, if an index begins with the name. */
function byName(jobs: string, filter: JobFilter, page: Page, parameters: JobParameters): string | undefined {
  const pendingOnly = filter.status?.length === 1 && filter.status[0] === 'pending';
  if (page.field === 'updatedAt') return undefined;
  if (filter.name !== undefined) return givenNames(filter.name, parameters);
  return page.field === 'nextRunAt' && pendingOnly ? `(${pendingNames(jobs)})` : undefined;
}

const givenNames = (names: readonly string[], parameters: JobParameters): string =>
  `(select unnest(${parameters.list([...new Set(names)])}) as name)`;

function branchesOf(
  jobs: string,
  filter: JobFilter,
  page: Page,
  parameters: JobParameters,
): readonly Branch[] {
  const statuses = filter.status ?? JOB_STATUSES;
  const byAge = page.field === 'createdAt' && filter.name === undefined;
  if (byAge && JOB_STATUSES.every((status) => statuses.includes(status)))
    return byAgeOf([], filter, page, parameters);
  const branches = RESTING.filter((status) => statuses.includes(status)).flatMap((status) => {
    const own = [`status = '${status}'`];
    if (byAge) return byAgeOf(own, filter, page, parameters);
    if (status !== 'pending' || page.field === 'createdAt') return [{ own }];
    if (page.field === 'nextRunAt') return [{ own: [...own, `next_run_at > '-infinity'`] }];
    return pendingByChange(jobs, filter, page, parameters);
  });
  return statuses.includes('processing') ? [...branches, { own: [`status = 'processing'`] }] : branches;
}

/** Pending jobs that were changed have an index by that time. For the others it is the time of their creation. */
function pendingByChange(
  jobs: string,
  filter: JobFilter,
  page: Page,
  parameters: JobParameters,
): readonly Branch[] {
  const { name, updatedAt = {} } = filter;
  const unchanged = [
    'updated_at = created_at',
    ...range('created_at', updatedAt, parameters),
    ...after({ ...page, field: 'createdAt' }, parameters),
  ];
  return [
    { own: [`status = 'pending'`, 'updated_at <> created_at'] },
    {
      own: [`status = 'pending'`, ...unchanged],
      among: name === undefined ? `(${pendingNames(jobs)})` : givenNames(name, parameters),
      order: ['created_at', 'id'],
    },
  ];
}

/** Jobs whose ids have the order of their creation, and the others. */
const byAgeOf = (
  own: readonly string[],
  filter: JobFilter,
  page: Page,
  parameters: JobParameters,
): readonly Branch[] => [
  { own: [...own, 'timed', ...idRange(filter, page, parameters)], order: ['id'] },
  { own: [...own, 'timed is not true'] },
];

/** What the range of creation times and the end of the previous page mean for ids that begin with a time. */
function idRange({ createdAt = {} }: JobFilter, page: Page, parameters: JobParameters): string[] {
  const { from, to } = createdAt;
  const { after: last, direction } = page;
  const bound = (operator: string, id: string): string => `id ${operator} ${parameters.add(id, 'text')}`;
  return [
    bound('>=', TIMED_IDS[0]),
    bound('<', TIMED_IDS[1]),
    ...(from === undefined ? [] : [bound('>=', idTime(from.getTime()))]),
    ...(to === undefined ? [] : [bound('<', idTime(to.getTime() + 1))]),
    ...(last === undefined ? [] : [bound(...afterId(last, direction))]),
  ];
}

/** Ids of the same millisecond may be many, so the last id itself is the bound if it begins with its time. */
function afterId({ at, key }: { at: Date; key: string }, direction: 1 | -1): [operator: string, id: string] {
  if (isTimed(key, at)) return [direction === 1 ? '>' : '<', key];
  return direction === 1 ? ['>=', idTime(at.getTime())] : ['<', idTime(at.getTime() + 1)];
}

/** The names in a range of an index, reading one key for each. */
export const distinctNames = (jobs: string, condition: string): string => `
  with recursive named as (
    (select name from ${jobs} where ${condition} order by name limit 1)
    union all
    select (select j.name from ${jobs} j where ${condition} and j.name > n.name order by j.name limit 1)
    from named n where n.name is not null
  )
  select name from named where name is not null`;

const pendingNames = (jobs: string): string =>
  distinctNames(jobs, `status = 'pending' and next_run_at > '-infinity'`);
