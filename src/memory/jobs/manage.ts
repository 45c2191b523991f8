import { EXPIRED, FINISHED, isLate, type JobRecord } from '../../core/records/job.js';
import { orderOf } from '../../core/records/limit-order.js';
import type { JobChanges, JobStore, RetentionMs } from '../../store/port.js';
import { assign, movedTo, toRecord, type Row } from './records.js';
import { isLive, type Table } from './table.js';

export async function cancel(
  table: Table,
  id: string,
  retention: (name: string) => RetentionMs,
): ReturnType<JobStore['cancel']> {
  const row = table.rows.get(id);
  if (row === undefined) return undefined;
  if (FINISHED.includes(row.status)) return { outcome: 'finished', job: toRecord(row) };
  const outcome = cancelOne(table, row, retention(row.name).cancelled);
  return { outcome, job: toRecord(row) };
}

function cancelOne(table: Table, row: Row, retentionMs: number): 'cancelled' | 'requested' {
  const now = table.now();
  if (row.status === 'processing') {
    assign(row, { cancelRequestedAt: now, updatedAt: now });
    table.context.cancel();
    return 'requested';
  }
  end(table, row, retentionMs);
  return 'cancelled';
}

/** Cancels a pending job. A successor that waited takes its key along, so that it can be retried. */
function end(table: Table, row: Row, retentionMs: number): void {
  const now = table.now();
  const key = row.successorKey ?? row.uniqueKey;
  assign(row, {
    finishedAt: now,
    updatedAt: now,
    expiresAt: new Date(now.getTime() + retentionMs),
    uniqueKey: key,
    nextRunAt: row.successorRunAt ?? row.nextRunAt,
    successorKey: null,
    successorRunAt: null,
  });
  table.move(row, 'cancelled');
  table.release(row);
}

export async function retry(
  table: Table,
  id: string,
  now: Date,
  replacement: { readonly data?: unknown } = {},
): ReturnType<JobStore['retry']> {
  const row = table.rows.get(id);
  if (row === undefined) return undefined;
  if (row.status === 'completed') return { outcome: 'finished', job: toRecord(row) };
  if (isLive(row)) return { outcome: 'unfinished', job: toRecord(row) };
  if (row.uniqueKey !== undefined && table.liveKey(row.name, row.uniqueKey) !== undefined) {
    return { outcome: 'live', job: toRecord(row) };
  }
  assign(row, {
    nextRunAt: now,
    failCount: 0,
    failKind: null,
    firstFailedAt: null,
    finishedAt: null,
    expiresAt: null,
    cancelRequestedAt: null,
    leaseToken: null,
    lockedAt: null,
    startBy: null,
    debouncedAt: null,
    followed: null,
    updatedAt: table.now(),
    ...(row.limitOrder === undefined ? {} : { limitOrder: orderOf(now.getTime(), now.getTime()) }),
    ...replacement,
  });
  delete row.result;
  delete row.progress;
  table.move(row, 'pending');
  return { outcome: 'retried', job: toRecord(row) };
}

export async function remove(table: Table, id: string): ReturnType<JobStore['remove']> {
  const row = table.rows.get(id);
  if (row === undefined) return undefined;
  if (row.status === 'processing') return { outcome: 'running', job: toRecord(row) };
  table.delete(row);
  table.release(row);
  return { outcome: 'removed', job: toRecord(row) };
}

export async function reschedule(table: Table, id: string, at: Date): ReturnType<JobStore['reschedule']> {
  const row = table.rows.get(id);
  if (row === undefined) return undefined;
  if (row.status !== 'pending')
    return { outcome: row.status === 'processing' ? 'running' : 'finished', job: toRecord(row) };
  assign(row, { ...movedTo(row, at, table.context.clock.now()), updatedAt: table.now() });
  table.context.wake();
  return { outcome: 'rescheduled', job: toRecord(row) };
}

export async function update(
  table: Table,
  id: string,
  changes: JobChanges,
): ReturnType<NonNullable<JobStore['update']>> {
  const row = table.rows.get(id);
  if (row === undefined) return undefined;
  if (row.status !== 'pending')
    return { outcome: row.status === 'processing' ? 'running' : 'finished', job: toRecord(row) };
  const { data, priority, nextRunAt, limitKey } = changes;
  assign(row, {
    ...(data === undefined ? {} : { data: data.value }),
    ...(priority === undefined ? {} : { priority }),
    ...(limitKey === undefined ? {} : { limitKey }),
    ...(nextRunAt === undefined ? {} : movedTo(row, nextRunAt, table.context.clock.now())),
    updatedAt: table.now(),
  });
  table.rekeyed(row);
  table.context.wake();
  return { outcome: 'updated', job: toRecord(row) };
}

export async function expire(
  table: Table,
  retention: (name: string) => RetentionMs,
  ids?: readonly string[],
): Promise<readonly JobRecord[]> {
  const now = table.context.clock.now();
  const pending = [...table.pending.values()].flatMap((rows) => [...rows]);
  const late = pending.filter((row) => isLate(row, now) && (ids?.includes(row.id) ?? true));
  for (const row of late) {
    row.failReason = EXPIRED;
    end(table, row, retention(row.name).cancelled);
  }
  return late.map(toRecord);
}

export async function cancelBatch(
  table: Table,
  jobs: readonly JobRecord[],
  retention: (name: string) => RetentionMs,
): Promise<number> {
  const rows = table.rowsOf(jobs).filter((row) => isLive(row) && row.cancelRequestedAt === undefined);
  for (const row of rows) cancelOne(table, row, retention(row.name).cancelled);
  return rows.length;
}

export async function retryBatch(table: Table, jobs: readonly JobRecord[], now: Date): Promise<number> {
  let count = 0;
  for (const job of jobs) if ((await retry(table, job.id, now))?.outcome === 'retried') count += 1;
  return count;
}

export async function removeBatch(table: Table, jobs: readonly JobRecord[]): Promise<number> {
  const rows = table.rowsOf(jobs).filter((row) => row.status !== 'processing');
  for (const row of rows) {
    table.delete(row);
    table.release(row);
  }
  return rows.length;
}

export async function sweep(table: Table, now: Date): Promise<number> {
  const expired = [...table.rows.values()].filter(
    (row) => row.expiresAt !== undefined && row.expiresAt <= now,
  );
  for (const row of expired) table.delete(row);
  return expired.length;
}
