/** Planning: turns documents into tasks. */
import type { TraceContext } from '../../core/tracer.js';
import type { Poisoned, TaskPlan } from '../../store/reactive/reactive.js';
import { isRunning, newTaskRow, type TaskRow } from './tasks/row.js';
import type { TaskTable } from './tasks/table.js';
import { isEqual, isPlain, textOf, type Plain } from './query/values.js';

const LONGEST_KEY = 1_024;

const after = (at: Date, ms: number): Date => new Date(at.getTime() + ms);
const latest = (...times: readonly (Date | undefined)[]): Date =>
  new Date(Math.max(...times.map((time) => time?.getTime() ?? -Infinity)));

function planNew(table: TaskTable, of: TaskPlan, id: unknown, snapshot: Plain, trace?: TraceContext): void {
  const now = table.context.now();
  const due = after(now, of.debounce.waitMs);
  table.keep({
    ...newTaskRow(of.source.collection, of.task, id, now),
    scheduledAt: due,
    initialScheduledAt: due,
    lastObservedValues: snapshot,
    limitKey: keyOf(of, snapshot),
    trace,
  });
}

/** The key of a document; undefined if the task has none. Planning refuses no document, so a bad key counts as ''. */
function keyOf({ limitKey }: TaskPlan, snapshot: Plain): string | undefined {
  if (limitKey === undefined) return undefined;
  let value: unknown = snapshot;
  for (const field of limitKey.split('.'))
    value = isPlain(value) && Object.hasOwn(value, field) ? value[field] : undefined;
  const text = typeof value === 'number' || typeof value === 'bigint' ? String(value) : value;
  return typeof text === 'string' && text.length <= LONGEST_KEY ? text : '';
}

/** A running task keeps the key under which it was claimed until its end. */
function keyed(row: TaskRow, key: string | undefined): Pick<TaskRow, 'limitKey' | 'nextLimitKey'> {
  const { limitKey, nextLimitKey } = row;
  if (key === undefined) return { limitKey, nextLimitKey };
  return isRunning(row) ? { limitKey, nextLimitKey: key } : { limitKey: key, nextLimitKey: undefined };
}

/** The definition may have got its key after the task was planned. */
function rekey(table: TaskTable, row: TaskRow, key: string | undefined): void {
  const { limitKey } = row;
  Object.assign(row, keyed(row, key));
  if (row.limitKey !== limitKey) table.keep(row);
}

/** Returns when a task whose document has just changed is due. */
function dueAt(row: TaskRow, of: TaskPlan, fresh: boolean, since: Date, now: Date): Date {
  const { waitMs, maxWaitMs } = of.debounce;
  const settled = Math.min(now.getTime() + waitMs, since.getTime() + maxWaitMs);
  return latest(new Date(settled), now, row.deferredUntil, fresh ? undefined : row.scheduledAt);
}

/** Plans a task whose document started to match, or whose watched fields changed. */
function planChanged(
  table: TaskTable,
  of: TaskPlan,
  row: TaskRow,
  snapshot: Plain,
  trace?: TraceContext,
): void {
  const now = table.context.now();
  const running = isRunning(row);
  // A debounce that is in progress continues. Waiting for a retry is not a debounce.
  const waits = row.status === 'pending' || row.status === 'processing_dirty';
  const since = (waits ? row.waitingSince : undefined) ?? now;
  // The attempt that is running may be the first to fail, so its sequence is not fresh.
  const fresh = of.resetRetriesOnDataChange || (!running && row.firstErrorAt === undefined);
  const due = dueAt(row, of, fresh, since, now);
  const changed = !isEqual(row.lastObservedValues, snapshot);
  table.keep(
    Object.assign(row, {
      status: running ? ('processing_dirty' as const) : ('pending' as const),
      overtaken: row.overtaken || (running && changed),
      lastObservedValues: snapshot,
      ...keyed(row, keyOf(of, snapshot)),
      unplannable: false,
      matched: true,
      waitingSince: since,
      scheduledAt: due,
      initialScheduledAt: row.deferredUntil === undefined ? due : row.initialScheduledAt,
      attempts: fresh ? 0 : row.attempts,
      firstErrorAt: fresh ? undefined : row.firstErrorAt,
      updatedAt: now,
      trace,
    }),
  );
}

function planOne(table: TaskTable, of: TaskPlan, id: unknown, trace?: TraceContext): Poisoned | undefined {
  const look = table.look(of, id);
  if (look.outcome === 'fails') return { id, key: textOf(id), reason: look.reason, blocked: false };
  if (look.outcome !== 'matches') return undefined;
  const row = table.row(of, id);
  const { snapshot } = look;
  if (row === undefined) planNew(table, of, id, snapshot, trace);
  else if (!row.matched || !isEqual(row.lastObservedValues, snapshot))
    planChanged(table, of, row, snapshot, trace);
  else {
    rekey(table, row, keyOf(of, snapshot));
    // The attempt may be about to skip because of an earlier state: `touched` tells its settlement that the document
    // matched since.
    if (isRunning(row)) row.touched = true;
  }
  return undefined;
}

export async function plan(
  table: TaskTable,
  of: TaskPlan,
  ids: readonly unknown[],
  trace?: TraceContext,
): Promise<readonly Poisoned[]> {
  return ids.flatMap((id) => planOne(table, of, id, trace) ?? []);
}

export async function unmatch(
  table: TaskTable,
  of: TaskPlan,
  ids: readonly unknown[],
): Promise<readonly Poisoned[]> {
  for (const id of ids) {
    const row = table.row(of, id);
    if (row === undefined || (!row.matched && !row.unplannable)) continue;
    const { outcome } = table.look(of, id);
    if (outcome === 'matches') continue;
    // A document on which the filter fails does not match; its task keeps the reason.
    Object.assign(row, { matched: false, unplannable: outcome === 'fails' && row.unplannable });
  }
  return [];
}

export async function park(table: TaskTable, of: TaskPlan, poisoned: readonly Poisoned[]): Promise<void> {
  const now = table.context.now();
  for (const { id, reason } of poisoned) {
    const row = table.row(of, id) ?? newTaskRow(of.source.collection, of.task, id, now);
    if (isRunning(row)) continue;
    table.keep(
      Object.assign(row, {
        status: 'failed' as const,
        matched: false,
        unplannable: true,
        lastError: `It could not be planned: ${reason}`,
        lastFinalizedAt: now,
        updatedAt: now,
        lockedAt: null,
      }),
    );
  }
}
