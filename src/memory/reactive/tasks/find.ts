import type { FailureLine } from '../../../core/records/failure-groups.js';
import { matchesFields } from '../../../core/fields.js';
import { TASK_STATUSES, type TaskRecord } from '../../../core/records/task.js';
import { capFor, type Depth, type DepthRequest, type TimeRange } from '../../../store/port.js';
import type { TaskCounts, TaskFilter, TaskPageRequest, TaskStats } from '../../../store/reactive/reactive.js';
import { compileQuery, type Query } from '../query/query.js';
import { cursorKey, toRecord, type TaskRow } from './row.js';
import type { TaskTable } from './table.js';
import { compareValues, fromText, isEqual, isPlain } from '../query/values.js';

const within = (at: Date, { from, to }: TimeRange = {}): boolean =>
  (from === undefined || at >= from) && (to === undefined || at <= to);

/** Compiles a filter on source documents. A query by `_id` alone also matches tasks whose document is gone. */
function onDocument(table: TaskTable, query: unknown): (row: TaskRow) => boolean {
  const [[field, id] = [], ...others] = Object.entries(isPlain(query) ? query : {});
  const isValue = !isPlain(id) || !Object.keys(id).some((key) => key.startsWith('$'));
  if (field === '_id' && others.length === 0 && isValue) return (row) => isEqual(row.sourceDocId, id);
  const matches: Query = compileQuery('sourceDocFilter', query);
  const now = table.context.now();
  return ({ collection, sourceDocId }) => {
    const document = table.document({ collection }, sourceDocId);
    return document !== undefined && matches({ document, now });
  };
}

function onFields(table: TaskTable, source: NonNullable<TaskFilter['source']>): (row: TaskRow) => boolean {
  const { _id: id, ...fields } = source;
  return ({ collection, sourceDocId }) =>
    (id === undefined || isEqual(sourceDocId, id)) &&
    (Object.keys(fields).length === 0 || matchesFields(table.document({ collection }, sourceDocId), fields));
}

const says = (message: string | undefined, wanted: string | RegExp): boolean =>
  message !== undefined &&
  (typeof wanted === 'string' ? message.toLowerCase().includes(wanted.toLowerCase()) : wanted.test(message));

export function select(table: TaskTable, filter: TaskFilter): TaskRow[] {
  const { task, status, errorMessage, hasError, sourceDocFilter, _id, keys, source } = filter;
  const tests: ((row: TaskRow) => boolean)[] = [];
  if (task !== undefined) tests.push((row) => task.includes(row.task));
  if (status !== undefined) tests.push((row) => status.includes(row.status));
  if (errorMessage !== undefined) tests.push((row) => says(row.lastError, errorMessage));
  if (hasError !== undefined) tests.push((row) => (row.lastError !== undefined) === hasError);
  if (_id !== undefined)
    tests.push((row) => _id.some((id) => isEqual(id, { task: row.task, id: row.sourceDocId })));
  if (keys !== undefined) tests.push((row) => keys.includes(cursorKey(row)));
  if (sourceDocFilter !== undefined) tests.push(onDocument(table, sourceDocFilter));
  if (source !== undefined) tests.push(onFields(table, source));
  for (const time of ['scheduledAt', 'createdAt', 'updatedAt'] as const)
    tests.push((row) => within(row[time], filter[time]));
  return table.all((row) => tests.every((test) => test(row)));
}

interface Position {
  readonly at: number;
  readonly key: unknown;
}

export async function find(
  table: TaskTable,
  filter: TaskFilter,
  { field, direction, limit, skip, after }: TaskPageRequest,
): Promise<{ tasks: readonly TaskRecord[]; more: boolean; partial: boolean }> {
  const place = (row: TaskRow): Position => ({
    at: row[field].getTime(),
    key: { task: row.task, id: row.sourceDocId },
  });
  const order = (a: Position, b: Position): number =>
    direction * (a.at - b.at || compareValues(a.key, b.key));
  const start = after && { at: after.at.getTime(), key: fromText(after.key) };
  const found = select(table, filter)
    .filter((row) => start === undefined || order(place(row), start) > 0)
    .sort((a, b) => order(place(a), place(b)));
  const tasks = found.slice(skip, skip + limit).map((row) => toRecord(row));
  return { tasks, more: found.length > skip + limit, partial: false };
}

export async function stats(
  table: TaskTable,
  tasks: readonly string[],
  cap: number,
): Promise<readonly TaskStats[]> {
  return tasks.map((task) => {
    const rows = table.all((row) => row.task === task);
    const full = TASK_STATUSES.map(
      (status) => [status, rows.filter((row) => row.status === status).length] as const,
    );
    const due = rows.filter(({ status }) => status === 'pending').map((row) => row.scheduledAt.getTime());
    return {
      task,
      counts: Object.fromEntries(full.map(([status, count]) => [status, Math.min(cap, count)])) as TaskCounts,
      capped: full.filter(([, count]) => count > cap).map(([status]) => status),
      ...(due.length === 0 ? {} : { nextDue: new Date(Math.min(...due)) }),
    };
  });
}

export async function depths(
  table: TaskTable,
  tasks: readonly string[],
  { cap }: DepthRequest,
): Promise<readonly Depth[]> {
  const now = table.context.now().getTime();
  const each = capFor(cap, tasks.length);
  const known = await stats(table, tasks, each);
  return known.map(({ task, counts: { completed, ...counts } }) => {
    const pending = table.all((row) => row.task === task && row.status === 'pending');
    const due = pending.filter((row) => row.scheduledAt.getTime() <= now).length;
    const lags = pending.map((row) => now - row.initialScheduledAt.getTime());
    return { name: task, counts, due: Math.min(each, due), lagMs: Math.max(0, ...lags) };
  });
}

export async function failures(
  table: TaskTable,
  limit: number,
  task?: string,
): Promise<readonly FailureLine[]> {
  return table
    .all((row) => row.status === 'failed' && (task === undefined || row.task === task))
    .map((row) => ({
      name: row.task,
      message: row.lastError ?? '',
      at: row.lastFinalizedAt ?? row.updatedAt,
    }))
    .sort((a, b) => b.at.getTime() - a.at.getTime())
    .slice(0, limit);
}
