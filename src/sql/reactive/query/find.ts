/** Manages tasks: finds, counts and retries them. */
import { OptionError } from '../../../core/errors.js';
import { TASK_STATUSES, type TaskRecord } from '../../../core/records/task.js';
import type { TimeRange } from '../../../store/port.js';
import type { Source, TaskFilter, TaskPageRequest } from '../../../store/reactive/reactive.js';
import type { Sql } from '../../connection/connection.js';
import type { Queryable } from '../../connection/driver.js';
import { isTimeLimit, isUnstorable, run } from '../../connection/errors.js';
import { withinLimit } from '../../connection/time-limit.js';
import { isStorable, timeText } from '../../connection/values.js';
import { Arguments, pinnedTexts } from '../../tables/arguments.js';
import { RESET, RESETTABLE } from '../plan/clean.js';
import { checkFilter } from '../plan/filter.js';
import { distinctTasks } from './insight.js';
import { found, given, holds, namesOf } from '../place.js';
import { COLUMNS, leaseKey, toRecord, type ShapeOf } from '../record.js';
import { answering } from '../../connection/rows.js';
import type { Shape } from '../../tables/shape.js';
import type { SqlSources } from '../sources.js';
import { conditionOf } from '../../tables/translate.js';

/** Time limit for filters that no index serves; `find` then returns what it found so far. */
const LIMIT_MS = 10_000;
const BATCH = 1_000;

/** Tasks with their sources. */
export type Located = readonly { readonly task: string; readonly source: Source }[];

const COLUMN = { scheduledAt: 'scheduled_at', createdAt: 'created_at', updatedAt: 'updated_at' } as const;

const texts = (list: readonly string[], args: Arguments): string =>
  `array(select json_array_elements_text(${args.json(list.filter(isStorable))}))`;

/** Compares the ids of tasks as users see them: `{ task, id }`. */
function idCondition(ids: readonly unknown[], args: Arguments): string {
  const list = ids.map((one) => {
    const { task, id } = (typeof one === 'object' && one !== null ? one : {}) as {
      task?: unknown;
      id?: unknown;
    };
    return { task: String(task), id: id ?? null };
  });
  return `exists (select from json_to_recordset(${args.json(list)}) as i(task text, id jsonb)
    where i.task = k.task and i.id = k.source_doc_id)`;
}

/** Texts of `cursorKey`. Any other text matches nothing. */
function keysCondition(keys: readonly string[], args: Arguments): string {
  const list = keys.flatMap((text) => {
    try {
      const { task, key } = JSON.parse(text) as { task: unknown; key: unknown };
      const known = typeof task === 'string' && typeof key === 'string';
      return known && isStorable(task) && isStorable(key) ? [{ task, key }] : [];
    } catch {
      return [];
    }
  });
  return `(k.task, k.key) in (select i.task, i.key from json_to_recordset(${args.json(list)}) as i(task text, key text))`;
}

const TIMES = ['scheduledAt', 'createdAt', 'updatedAt'] as const;

function rangeConditions(column: string, { from, to }: TimeRange = {}, args: Arguments): string[] {
  return [
    ...(from === undefined ? [] : [`${column} >= ${args.add(timeText(from), 'timestamptz')}`]),
    ...(to === undefined ? [] : [`${column} <= ${args.add(timeText(to), 'timestamptz')}`]),
  ];
}

/** The conditions on the task itself. A regular expression on errors is checked elsewhere, in JavaScript. */
function conditions(filter: TaskFilter, args: Arguments): string[] {
  const { task, status, errorMessage, hasError, _id, keys } = filter;
  return [
    ...(task === undefined ? [] : [`k.task = any(${texts(task, args)})`]),
    ...(status === undefined ? [] : [`k.status = any(${texts(status, args)})`]),
    ...(typeof errorMessage !== 'string'
      ? []
      : [
          isStorable(errorMessage)
            ? `strpos(lower(k.last_error), lower(${args.add(errorMessage, 'text')})) > 0`
            : 'false',
        ]),
    ...(errorMessage instanceof RegExp ? ['k.last_error is not null'] : []),
    ...(hasError === undefined ? [] : [`k.last_error is ${hasError ? 'not ' : ''}null`]),
    ...(_id === undefined ? [] : [idCondition(_id, args)]),
    ...(keys === undefined ? [] : [keysCondition(keys, args)]),
    ...TIMES.flatMap((time) => rangeConditions(`k.${COLUMN[time]}`, filter[time], args)),
  ];
}

/** Tasks whose row matches a filter of the user. Each table is searched for the rows of its own tasks. */
function sourceCondition(tables: readonly Table[], filter: unknown, args: Arguments): string {
  const parts = tables.map(({ shape, tasks }) => {
    const condition = holds(shape, conditionOf('sourceDocFilter', shape, filter, args));
    return `(k.task = any(${texts(tasks, args)}) and exists (
      with ${given(shape, 'json_build_array(k.key)')}, ${found(shape)} select from found f where ${condition}))`;
  });
  return parts.length === 0 ? 'false' : `(${parts.join(' or ')})`;
}

interface Table {
  readonly shape: Shape;
  readonly tasks: string[];
}

/**
 * The tables that a filter on rows applies to. A table without its columns has no such rows; if that holds for all
 * tables, the filter is rejected.
 */
async function tablesOf(
  sources: SqlSources,
  filter: TaskFilter,
  located: Located,
): Promise<readonly Table[]> {
  const tables = new Map<string, Table>();
  let refusal: OptionError | undefined;
  for (const { task, source } of located.filter((one) => filter.task?.includes(one.task) ?? true)) {
    const shape = await sources.open(source);
    if (shape === undefined) continue;
    try {
      conditionOf('sourceDocFilter', shape, filter.sourceDocFilter, new Arguments());
    } catch (error) {
      if (!(error instanceof OptionError)) throw error;
      refusal ??= error;
      continue;
    }
    const table = tables.get(shape.name) ?? { shape, tasks: [] };
    table.tasks.push(task);
    tables.set(shape.name, table);
  }
  if (tables.size === 0 && refusal !== undefined) throw refusal;
  return [...tables.values()];
}

/**
 * Conditions: later in the sort order than the last task of the previous page; ties are broken by name and key. The
 * first condition bounds the index, whose order is different.
 */
function afterConditions({ after, field, direction }: TaskPageRequest, args: Arguments): string[] {
  if (after === undefined) return [];
  const { task, key } = JSON.parse(after.key) as { task: string; key: string };
  const compare = direction === 1 ? '>' : '<';
  const column = `k.${COLUMN[field]}`;
  const at = args.add(timeText(after.at), 'timestamptz');
  return [
    `${column} ${compare}= ${at}`,
    `(${column}, k.task, k.key) ${compare} (${at}, ${args.add(task, 'text')}, ${args.add(key, 'text')})`,
  ];
}

/**
 * The statement of a page. Sorted by due time, each task and status is a range that an index has in order, and returns
 * one page at most; the statement returns the first page of all ranges together. Sorted by any other time, all matching
 * tasks are read and sorted.
 */
function findStatement(
  sql: Sql,
  filter: TaskFilter,
  page: TaskPageRequest,
  args: Arguments,
  more: readonly string[] = [],
): string {
  const { tasks } = namesOf(sql);
  const order = page.direction === 1 ? 'asc' : 'desc';
  const column = COLUMN[page.field];
  const limit = args.add(String(page.limit), 'integer');
  const sorted = (row: string): string =>
    `order by ${row}.${column} ${order}, ${row}.task ${order}, ${row}.key ${order} limit ${limit}`;
  const { task, status = TASK_STATUSES, ...rest } = filter;
  const ranged = page.field === 'scheduledAt' && filter.keys === undefined && filter._id === undefined;
  const all = [...conditions(ranged ? rest : filter, args), ...more, ...afterConditions(page, args)];
  if (!ranged) {
    const where = all.length === 0 ? '' : `where ${all.join(' and ')}`;
    return answering(COLUMNS, `(select k.* from ${tasks} k ${where} ${sorted('k')}) page`);
  }
  const named = task === undefined ? distinctTasks(tasks) : `select unnest(${texts(task, args)}) as task`;
  const own = ['k.task = n.task', 'k.status = s.status', ...all];
  const branches = `select p.* from (${named}) n cross join unnest(${texts([...status], args)}) as s(status)
    cross join lateral (select k.* from ${tasks} k where ${own.join(' and ')}
      order by k.scheduled_at ${order}, k.key ${order} limit ${limit}) p`;
  return answering(COLUMNS, `(select b.* from (${branches}) b ${sorted('b')}) page`);
}

/** Reads matching tasks in order, a batch at a time. */
async function* pages(
  sources: SqlSources,
  filter: TaskFilter,
  located: Located,
  page: TaskPageRequest,
  shapeOf: ShapeOf,
): AsyncGenerator<readonly TaskRecord[]> {
  const { sql } = sources;
  checkFilter('sourceDocFilter', filter.sourceDocFilter);
  const tables = filter.sourceDocFilter === undefined ? undefined : await tablesOf(sources, filter, located);
  const expression = expressionOf(filter);
  let after = page.after;
  for (;;) {
    const args = new Arguments();
    const more = tables === undefined ? [] : [sourceCondition(tables, filter.sourceDocFilter, args)];
    const text = findStatement(
      sql,
      filter,
      { ...page, ...(after === undefined ? {} : { after }) },
      args,
      more,
    );
    const rows = await sql.driver.transaction(async (transaction) => {
      await transaction.query(`select set_config('statement_timeout', $1::text, true)`, [String(LIMIT_MS)]);
      return pinnedTexts(transaction, namesOf(sql).pinned, text, args);
    });
    const read = rows.map((row) => toRecord(row, shapeOf));
    yield read.filter((task) => expression?.test(task.lastError ?? '') ?? true);
    const last = read.at(-1);
    if (read.length < page.limit || last === undefined) return;
    after = { at: last[page.field], key: cursorKey(last) };
  }
}

/**
 * PostgreSQL's regular expressions differ from JavaScript's, so they are tested here. Drops the flags that make an
 * expression stateful.
 */
function expressionOf({ errorMessage }: TaskFilter): RegExp | undefined {
  if (!(errorMessage instanceof RegExp)) return undefined;
  return new RegExp(errorMessage.source, errorMessage.flags.replace(/[gy]/gu, ''));
}

export const cursorKey = (record: TaskRecord): string => JSON.stringify(leaseKey(record));

/** A value that the type of the key cannot hold matches no task. */
async function orNone<T>(work: () => Promise<T>, none: T): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (isUnstorable(error)) return none;
    throw error;
  }
}

/** `source`, a filter on parts of rows, becomes a `sourceDocFilter`. */
function normal({ source, ...filter }: TaskFilter): TaskFilter {
  return source === undefined ? filter : { ...filter, sourceDocFilter: source };
}

export async function find(
  sources: SqlSources,
  asked: TaskFilter,
  page: TaskPageRequest,
  located: Located,
  shapeOf: ShapeOf,
): Promise<{ tasks: readonly TaskRecord[]; more: boolean; partial: boolean }> {
  const filter = normal(asked);
  const { limit, skip } = page;
  const wanted = skip + limit + 1;
  const items: TaskRecord[] = [];
  const read = async (): Promise<boolean> => {
    try {
      for await (const some of pages(sources, filter, located, { ...page, limit: wanted }, shapeOf)) {
        items.push(...some);
        if (items.length >= wanted) break;
      }
      return false;
    } catch (error) {
      if (!isTimeLimit(error)) throw error;
      return true;
    }
  };
  const partial = await run('find tasks', () => orNone(read, false));
  return { tasks: items.slice(skip, skip + limit), more: items.length > skip + limit, partial };
}

const ALL = { field: 'createdAt', direction: 1, limit: BATCH, skip: 0 } as const;

/** Counts `most` tasks at most. A regular expression on errors is tested here, so it needs every task. */
export async function count(
  sources: SqlSources,
  asked: TaskFilter,
  located: Located,
  most: number,
): Promise<number> {
  const filter = normal(asked);
  const one = async (): Promise<number> => {
    const args = new Arguments();
    checkFilter('sourceDocFilter', filter.sourceDocFilter);
    const all = conditions(filter, args);
    if (filter.sourceDocFilter !== undefined)
      all.push(sourceCondition(await tablesOf(sources, filter, located), filter.sourceDocFilter, args));
    const { tasks, pinned } = namesOf(sources.sql);
    const where = all.length === 0 ? '' : `where ${all.join(' and ')}`;
    const limit = Number.isFinite(most) ? `limit ${args.add(String(most), 'bigint')}` : '';
    const text = `select count(*)::text from (select from ${tasks} k ${where} ${limit}) counted`;
    const counted = (on: Queryable): Promise<readonly string[]> => pinnedTexts(on, pinned, text, args);
    const { driver } = sources.sql;
    const [number] = await (Number.isFinite(most)
      ? withinLimit(driver, 'count tasks', LIMIT_MS, counted)
      : counted(driver));
    return Number(number ?? 0);
  };
  const each = async (): Promise<number> => {
    let total = 0;
    for await (const some of pages(sources, filter, located, ALL, () => undefined)) total += some.length;
    return Math.min(total, most);
  };
  return run('count tasks', () => orNone(expressionOf(filter) === undefined ? one : each, 0));
}

/** Works in batches of keys, so that resetting millions of tasks is not a single statement. */
export async function retryMany(sources: SqlSources, asked: TaskFilter, located: Located): Promise<number> {
  const filter = normal(asked);
  const { sql } = sources;
  const { tasks, pinned } = namesOf(sql);
  const { sourceDocFilter, ...own } = filter;
  return run('retry tasks', () =>
    orNone(async () => {
      let modified = 0;
      for await (const some of pages(sources, filter, located, ALL, () => undefined)) {
        if (some.length === 0) continue;
        const args = new Arguments();
        const still = conditions(own, args);
        const keys = args.json(some.map(leaseKey));
        const text = `with reset as (
            update ${tasks} k set ${RESET}
            from json_to_recordset(${keys}) as g(task text, key text)
            where k.task = g.task and k.key = g.key and ${RESETTABLE} ${still.map((one) => `and ${one}`).join(' ')}
            returning 1
          ) select count(*)::text from reset`;
        modified += Number((await pinnedTexts(sql.driver, pinned, text, args))[0] ?? 0);
      }
      return modified;
    }, 0),
  );
}
