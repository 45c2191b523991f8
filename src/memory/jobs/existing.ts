import { NEVER } from '../../core/records/job.js';
import { orderAt } from '../../core/records/limit-order.js';
import type { Inserted, NewJob, OnExisting } from '../../store/port.js';
import type { MemoryTransaction } from '../transaction.js';
import type { Drafts } from './drafts.js';
import { assign, movedTo, toRecord, type Row } from './records.js';
import type { Table } from './table.js';

/** What an insert with `onExisting` does: to which job, and how. */
interface Placing {
  readonly outcome: Inserted['outcome'];
  readonly row: Row;
  /** The fields to change; null for a job to be stored. */
  readonly fields: object | null;
  /** The live job that `row` is to follow. */
  readonly after?: Row;
}

export function placed(table: Table, job: NewJob): Inserted {
  const placing = decide(table, job);
  apply(table, placing);
  return { outcome: placing.outcome, job: toRecord(placing.row) };
}

/** Changes a draft of the same transaction at once. Anything else is decided again at the commit. */
export function placedIn(
  table: Table,
  drafts: Drafts,
  job: NewJob,
  transaction: MemoryTransaction,
): Inserted {
  const draft = drafts.withKey(job.name, job.uniqueKey);
  if (draft !== undefined) {
    const outcome = job.onExisting?.kind === 'reschedule' ? 'rescheduled' : 'replaced';
    assign(draft, changed(draft, job));
    return { outcome, job: toRecord(draft) };
  }
  const placing = decide(table, job);
  if (placing.fields === null) drafts.add(placing.row);
  transaction.add(
    () => isSame(decide(table, job), placing),
    () => apply(table, placing),
  );
  return {
    outcome: placing.outcome,
    job: toRecord(Object.assign({ ...placing.row }, placing.fields ?? {})),
  };
}

const isSame = (now: Placing, then: Placing): boolean =>
  now.outcome === then.outcome &&
  now.after === then.after &&
  (then.fields === null ? now.fields === null : now.row === then.row);

function decide(table: Table, job: NewJob): Placing {
  const { name, uniqueKey = '' } = job;
  const same = job.id === undefined ? undefined : table.rows.get(job.id);
  if (same !== undefined) return { outcome: 'existing', row: same, fields: {} };
  const live = table.liveKey(name, uniqueKey);
  if (live === undefined) return { outcome: 'created', row: table.newRow(job), fields: null };
  if (job.onExisting?.kind === 'reschedule')
    return live.status === 'pending'
      ? { outcome: 'rescheduled', row: live, fields: changed(live, job) }
      : { outcome: 'existing', row: live, fields: {} };
  const waiting = table.successor(name, uniqueKey) ?? (live.status === 'pending' ? live : undefined);
  if (waiting !== undefined) return { outcome: 'replaced', row: waiting, fields: changed(waiting, job) };
  const row = table.newRow(job);
  assign(row, { uniqueKey: null, successorKey: uniqueKey, successorRunAt: row.nextRunAt, nextRunAt: NEVER });
  return { outcome: 'created', row, fields: null, after: live };
}

function apply(table: Table, { outcome, row, fields, after }: Placing): void {
  if (fields === null) table.keep(row);
  else if (outcome !== 'existing') {
    assign(row, { ...fields, updatedAt: table.now() });
    table.rekeyed(row);
    table.context.wake(row.name);
  }
  if (after !== undefined) assign(after, { followed: true, updatedAt: table.now() });
}

/** The fields that the call changes in a pending job. */
function changed(row: Row, job: NewJob): Partial<Row> | object {
  const { onExisting, nextRunAt, startBy } = job;
  if (onExisting?.kind === 'reschedule') return movedTo(row, nextRunAt, job.createdAt.getTime());
  const debouncedAt = onExisting?.kind === 'debounce' ? (row.debouncedAt ?? job.createdAt) : null;
  const at = dueOf(onExisting, nextRunAt, debouncedAt);
  return {
    data: job.data,
    priority: job.priority,
    ...(row.successorKey === undefined ? { nextRunAt: at } : { successorRunAt: at }),
    startBy: startBy === undefined ? null : new Date(at.getTime() + startBy.getTime() - nextRunAt.getTime()),
    debouncedAt,
    limitKey: job.limitKey ?? null,
    limitOrder: placeOf(job, at) ?? null,
    retryPolicy: job.retryPolicy ?? null,
    timeoutMs: job.timeoutMs ?? null,
    trace: job.trace ?? null,
    failCount: 0,
    failReason: null,
    failKind: null,
    firstFailedAt: null,
  };
}

function dueOf(onExisting: OnExisting | undefined, due: Date, debouncedAt: Date | null): Date {
  if (onExisting?.kind !== 'debounce' || debouncedAt === null) return due;
  return new Date(Math.min(due.getTime(), debouncedAt.getTime() + onExisting.maxWaitMs));
}

/** A debounced job may be due earlier than the call says. */
function placeOf({ limitOrder, nextRunAt }: NewJob, at: Date): string | undefined {
  if (limitOrder === undefined || at.getTime() === nextRunAt.getTime()) return limitOrder;
  return orderAt(limitOrder, at.getTime());
}
