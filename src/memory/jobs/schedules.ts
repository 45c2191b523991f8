import { FINISHED, NEVER, scheduleId, type JobRecord } from '../../core/records/job.js';
import type { JobStore, ScheduleChange } from '../../store/port.js';
import { get } from './find.js';
import { assign, toRecord } from './records.js';
import { isLive, type Table } from './table.js';

export async function putSchedule(table: Table, change: ScheduleChange): Promise<JobRecord> {
  const id = scheduleId(change.name, change.key);
  const row =
    table.rows.get(id) ?? table.newRow({ ...plainSchedule(change), id, nextRunAt: change.firstRunAt });
  const fresh = !table.rows.has(id) || FINISHED.includes(row.status);
  const moved = TIMES.some((field) => differs(row[field], wanted(change)[field]));
  const changed = moved || REST.some((field) => differs(row[field], wanted(change)[field]));
  const restart = fresh || (moved && row.status !== 'processing' && row.paused !== true);
  if (!fresh && !changed) return toRecord(row);
  assign(row, { ...wanted(change), scheduleRev: (row.scheduleRev ?? 0) + 1, updatedAt: change.now });
  for (const field of [...TIMES, ...REST]) if (row[field] === undefined) Reflect.deleteProperty(row, field);
  row.scheduleKey = change.key;
  if (restart)
    assign(row, {
      nextRunAt: change.firstRunAt,
      scheduledFor: change.firstRunAt,
      failCount: 0,
      firstFailedAt: null,
      failKind: null,
    });
  if (fresh)
    assign(row, {
      paused: false,
      lockedAt: null,
      finishedAt: null,
      expiresAt: null,
      cancelRequestedAt: null,
    });
  if (!table.rows.has(id)) table.keep(row);
  else if (fresh) table.move(row, 'pending');
  else table.rekeyed(row);
  if (restart) table.context.wake();
  return toRecord(row);
}

export async function schedules(table: Table, name?: string): Promise<readonly JobRecord[]> {
  const found = table.all(
    (row) => row.repeatInterval !== undefined && (name === undefined || row.name === name),
  );
  return found.sort((a, b) =>
    `${a.name}\0${a.uniqueKey ?? ''}` < `${b.name}\0${b.uniqueKey ?? ''}` ? -1 : 1,
  );
}

export async function schedule(table: Table, name: string, key: string): Promise<JobRecord | undefined> {
  return get(table, scheduleId(name, key));
}

export async function removeSchedule(table: Table, name: string, key: string): Promise<boolean> {
  const row = table.rows.get(scheduleId(name, key));
  if (row !== undefined) table.delete(row);
  return row !== undefined;
}

export async function pauseSchedule(
  table: Table,
  name: string,
  key: string,
  paused: boolean,
  nextRunAt: Date,
): Promise<JobRecord | undefined> {
  const row = table.rows.get(scheduleId(name, key));
  if (row === undefined || !isLive(row) || (row.paused ?? false) === paused) return row && toRecord(row);
  assign(row, { paused, scheduleRev: (row.scheduleRev ?? 0) + 1, updatedAt: table.now() });
  const at = paused ? NEVER : nextRunAt;
  if (row.status === 'pending') assign(row, { nextRunAt: at, scheduledFor: at });
  table.context.wake();
  return toRecord(row);
}

export async function runScheduleNow(
  table: Table,
  name: string,
  key: string,
  now: Date,
): ReturnType<JobStore['runScheduleNow']> {
  const row = table.rows.get(scheduleId(name, key));
  if (row?.status === 'processing') return { outcome: 'running', job: toRecord(row) };
  if (row?.status !== 'pending') return undefined;
  // An overdue run keeps its time: replacing it with now would lose the runs that were missed before.
  if (row.nextRunAt > now) assign(row, { nextRunAt: now, scheduledFor: now, updatedAt: table.now() });
  table.context.wake();
  return { outcome: 'due', job: toRecord(row) };
}

const TIMES = ['repeatInterval', 'timezone', 'startAt', 'repeatUntil'] as const;
const REST = ['data', 'missed', 'priority', 'limitKey', 'retryPolicy', 'timeoutMs'] as const;

const wanted = (change: ScheduleChange) => ({
  repeatInterval: change.cron,
  timezone: change.timezone,
  startAt: change.startAt,
  repeatUntil: change.repeatUntil,
  data: change.data,
  missed: change.missed,
  priority: change.priority,
  limitKey: change.limitKey,
  retryPolicy: change.retryPolicy,
  timeoutMs: change.timeoutMs,
});

const differs = (a: unknown, b: unknown): boolean => JSON.stringify(a) !== JSON.stringify(b);

const plainSchedule = (change: ScheduleChange) => ({
  name: change.name,
  data: change.data,
  status: 'pending' as const,
  priority: change.priority,
  createdAt: change.now,
});
