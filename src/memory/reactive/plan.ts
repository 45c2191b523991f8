/** Documents -> tasks. */
import type { TraceContext } from '../../core/tracer.js';
import type { Poisoned, TaskPlan } from '../../store/reactive.js';
import { isRunning, newTaskRow, type TaskRow } from './tasks/row.js';
import type { TaskTable } from './tasks/table.js';
import { isEqual, textOf, type Plain } from './query/values.js';

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
    trace,
  });
}

/** When a task is due whose document has just changed. */
function dueAt(row: TaskRow, of: TaskPlan, fresh: boolean, since: Date, now: Date): Date {
  const { waitMs, maxWaitMs } = of.debounce;
  const settled = Math.min(now.getTime() + waitMs, since.getTime() + maxWaitMs);
  return latest(new Date(settled), now, row.deferredUntil, fresh ? undefined : row.scheduledAt);
}

/** The document came to match, or what is watched of it changed. */
function planChanged(
  table: TaskTable,
  of: TaskPlan,
  row: TaskRow,
  snapshot: Plain,
  trace?: TraceContext,
): void {
  const now = table.context.now();
  const running = isRunning(row);
  // A wait that has begun goes on; a retry's wait is not one.
  const waits = row.status === 'pending' || row.status === 'processing_dirty';
  const since = (waits ? row.waitingSince : undefined) ?? now;
  // An attempt under way may yet be the first to fail, so it counts.
  const fresh = of.resetRetriesOnDataChange || (!running && row.firstErrorAt === undefined);
  const due = dueAt(row, of, fresh, since, now);
  const changed = !isEqual(row.lastObservedValues, snapshot);
  table.keep(
    Object.assign(row, {
      status: running ? ('processing_dirty' as const) : ('pending' as const),
      overtaken: row.overtaken || (running && changed),
      lastObservedValues: snapshot,
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
  // It may be about to be skipped for a state that has passed: its end must know that it was looked at since.
  else if (isRunning(row)) row.touched = true;
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
    // A document on which the filter fails does not match; why is kept with its task.
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
