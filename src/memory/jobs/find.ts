import type { FailureLine } from '../../core/records/failure-groups.js';
import { matchesFields } from '../../core/fields.js';
import { hasEnded, JOB_STATUSES, type JobRecord } from '../../core/records/job.js';
import {
  type Ends,
  capFor,
  type Depth,
  type DepthRequest,
  type Found,
  type JobFilter,
  type NameCounts,
  type Page,
  type StatusCounts,
} from '../../store/port.js';
import { toRecord, type Row } from './records.js';
import type { Table } from './table.js';

export async function get(table: Table, id: string): Promise<JobRecord | undefined> {
  const row = table.rows.get(id);
  return row === undefined ? undefined : toRecord(row);
}

export async function ends(table: Table, ids: readonly string[]): Promise<Ends> {
  const rows = ids.flatMap((id) => table.rows.get(id) ?? []);
  return {
    ended: rows.filter(hasEnded).map(toRecord),
    live: rows.filter((row) => !hasEnded(row)).map(({ id }) => id),
  };
}

export async function find(table: Table, filter: JobFilter, page: Page): Promise<Found> {
  const { field, direction, limit, after } = page;
  const order = (a: { at: number; id: string }, b: { at: number; id: string }): number =>
    direction * (a.at - b.at || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0));
  const place = (row: JobRecord): { at: number; id: string } => ({ at: row[field].getTime(), id: row.id });
  const start = after === undefined ? undefined : { at: after.at.getTime(), id: after.key };
  const found = table
    .all((row) => matches(row, filter))
    .filter((row) => start === undefined || order(place(row), start) > 0)
    .sort((a, b) => order(place(a), place(b)));
  return { jobs: found.slice(0, limit), more: found.length > limit, partial: false };
}

export async function count(table: Table, filter: JobFilter, most: number): Promise<number> {
  return Math.min(most, [...table.rows.values()].filter((row) => matches(row, filter)).length);
}

export async function stats(
  table: Table,
  cap: number,
): Promise<{ names: readonly NameCounts[]; total: number }> {
  const rows = [...table.rows.values()];
  const names = [...new Set(rows.map((row) => row.name))].sort().map((name) => {
    const full = JOB_STATUSES.map(
      (status) => [status, rows.filter((row) => row.name === name && row.status === status).length] as const,
    );
    const counts = Object.fromEntries(full.map(([status, count]) => [status, Math.min(cap, count)]));
    return {
      name,
      counts: counts as StatusCounts,
      capped: full.filter(([, count]) => count > cap).map(([status]) => status),
    };
  });
  return { names, total: rows.length };
}

export async function depths(table: Table, request: DepthRequest): Promise<readonly Depth[]> {
  const now = table.now();
  const { names } = await stats(table, Infinity);
  const cap = capFor(request.cap, names.length);
  return names.map(({ name, counts: { pending, processing, failed } }) => {
    const due = [...(table.pending.get(name) ?? [])].filter(({ nextRunAt }) => nextRunAt <= now);
    const lags = due.map(({ nextRunAt }) => now.getTime() - nextRunAt.getTime());
    return {
      name,
      counts: capped({ pending, processing, failed }, cap),
      due: Math.min(cap, due.length),
      lagMs: lags.reduce((most, lag) => Math.max(most, lag), 0),
    };
  });
}

const capped = (counts: Readonly<Record<string, number>>, cap: number): Record<string, number> =>
  Object.fromEntries(Object.entries(counts).map(([status, count]) => [status, Math.min(cap, count)]));

export async function failures(table: Table, limit: number, name?: string): Promise<readonly FailureLine[]> {
  return table
    .all((row) => row.status === 'failed' && (name === undefined || row.name === name))
    .sort((a, b) => b.updatedAt.getTime() - a.updatedAt.getTime())
    .slice(0, limit)
    .map((row) => ({ name: row.name, message: row.failReason ?? '', at: row.updatedAt }));
}

export async function* each(
  table: Table,
  filter: JobFilter,
  batch: number,
): AsyncGenerator<readonly JobRecord[]> {
  const found = table.all((row) => matches(row, filter));
  for (let start = 0; start < found.length; start += batch)
    yield await Promise.resolve(found.slice(start, start + batch));
}

const within = (at: Date, range: { from?: Date; to?: Date } | undefined): boolean =>
  range === undefined ||
  ((range.from === undefined || at >= range.from) && (range.to === undefined || at <= range.to));

function matches(row: Row, filter: JobFilter): boolean {
  const { ids, name, status, uniqueKey, error, data } = filter;
  return (
    (ids === undefined || ids.includes(row.id)) &&
    (name === undefined || name.includes(row.name)) &&
    (status === undefined || status.includes(row.status)) &&
    (uniqueKey === undefined || uniqueKey.includes(row.successorKey ?? row.uniqueKey ?? '')) &&
    (error === undefined || (row.failReason?.toLowerCase().includes(error.toLowerCase()) ?? false)) &&
    (data === undefined || matchesFields(row.data, data)) &&
    within(row.createdAt, filter.createdAt) &&
    within(row.updatedAt, filter.updatedAt) &&
    within(row.nextRunAt, filter.nextRunAt)
  );
}
