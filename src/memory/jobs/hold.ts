import { failedRunId, LOG_LIMIT, type JobRecord } from '../../core/records/job.js';
import {
  lifeOf,
  type FailedRun,
  type Instance,
  type Lease,
  type Note,
  type StrayQuery,
} from '../../store/port.js';
import { assign, copyOf, toRecord } from './records.js';
import type { Table } from './table.js';

export async function held(
  table: Table,
  leases: readonly Lease[],
): Promise<readonly (JobRecord | undefined)[]> {
  return leases.map((lease) => {
    const row = table.holding(lease);
    return row === undefined ? undefined : toRecord(row);
  });
}

export async function settledUnder(table: Table, lease: Lease): Promise<boolean> {
  const row = table.rows.get(lease.id);
  return row === undefined || (row.status !== 'processing' && row.leaseToken === lease.token);
}

export async function begin(table: Table, lease: Lease): Promise<'begun' | 'lost'> {
  const row = table.holding(lease);
  if (row === undefined) return 'lost';
  assign(row, { startedToken: lease.token });
  return 'begun';
}

export async function note(table: Table, notes: readonly Note[]): Promise<void> {
  for (const { lease, progress, logs = [] } of notes) {
    const row = table.holding(lease);
    if (row === undefined) continue;
    if (progress !== undefined) {
      row.progress = copyOf(progress.value);
      table.changed(row);
    }
    if (logs.length > 0) row.logs = [...(row.logs ?? []), ...copyOf(logs)].slice(-LOG_LIMIT);
  }
}

export async function beat(table: Table, instance: Instance, except: readonly Lease[]): Promise<void> {
  const now = table.now();
  const skipped = new Set(except.map((lease) => lease.id));
  for (const row of table.rows.values()) {
    if (row.status !== 'processing' || lifeOf(row.leaseToken) !== instance.life || skipped.has(row.id))
      continue;
    assign(row, { lastHeartbeat: now, updatedAt: now });
  }
}

export async function cancelRequests(table: Table, leases: readonly Lease[]): Promise<readonly Lease[]> {
  return leases.filter((lease) => table.rows.get(lease.id)?.cancelRequestedAt !== undefined);
}

export async function heldBy(table: Table, instance: Instance, limit: number): Promise<readonly JobRecord[]> {
  return table
    .all((row) => row.status === 'processing' && lifeOf(row.leaseToken) === instance.life)
    .slice(0, limit);
}

export async function strays(
  table: Table,
  { lives, olderThanMs, legacyAfterMs, limit }: StrayQuery,
): Promise<readonly JobRecord[]> {
  const now = table.context.clock.now();
  const known = new Set(lives.map(({ life }) => life));
  return table
    .all((row) => {
      if (row.status !== 'processing') return false;
      const life = lifeOf(row.leaseToken);
      const locked = row.lockedAt?.getTime() ?? 0;
      if (life !== undefined) return !known.has(life) && locked < now - olderThanMs;
      const lastSign = Math.max(locked, row.lastHeartbeat?.getTime() ?? 0);
      return lastSign < now - Math.max(legacyAfterMs, 3 * (row.heartbeatInterval ?? 0));
    })
    .slice(0, limit);
}

export async function insertFailedRun(table: Table, of: JobRecord, failure: FailedRun): Promise<void> {
  const { entry, historyLimit, ...fields } = failure;
  const id = failedRunId(of.id, failure.scheduledFor);
  const schedule = table.rows.get(of.id);
  if (table.rows.has(id) || schedule === undefined) return;
  const row = table.newRow({
    id,
    name: of.name,
    data: schedule.data,
    status: 'failed',
    priority: of.priority,
    nextRunAt: failure.scheduledFor,
    createdAt: failure.finishedAt,
    ...(schedule.limitKey === undefined ? {} : { limitKey: schedule.limitKey }),
    ...(of.retryPolicy === undefined ? {} : { retryPolicy: of.retryPolicy }),
    ...(of.timeoutMs === undefined ? {} : { timeoutMs: of.timeoutMs }),
  });
  const history = [...(of.history ?? []), ...(entry === undefined ? [] : [entry])].slice(
    -Math.max(1, historyLimit),
  );
  assign(row, { ...fields, scheduleId: of.id, history });
  table.keep(row);
}
