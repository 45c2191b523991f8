import { fairShare } from '../../../core/batches/fair-share.js';
import { byTaskOrder } from '../../../core/records/claim-order.js';
import type { TaskRecord } from '../../../core/records/task.js';
import {
  isPausedIn,
  type ClaimAnswer,
  type ClaimRequest,
  type DueSummary,
  type Instance,
} from '../../../store/port.js';
import type { TaskPlan } from '../../../store/reactive.js';
import { cursorKey, isRunning, toRecord, type TaskRow } from './row.js';
import type { TaskTable } from './table.js';

export type Plans = ReadonlyMap<string, TaskPlan>;

/**
 * Returns the pending tasks on the collection of the definition: the same name on another collection is another task.
 */
const pendingOf = (table: TaskTable, plan: TaskPlan | undefined): TaskRow[] =>
  plan === undefined ? [] : table.of(plan).filter(({ status }) => status === 'pending');

export async function peek(table: TaskTable, plans: Plans, tasks: readonly string[]): Promise<DueSummary> {
  const nextDue = new Map<string, Date>();
  for (const task of tasks) {
    const times = pendingOf(table, plans.get(task)).map(({ scheduledAt }) => scheduledAt.getTime());
    if (times.length > 0) nextDue.set(task, new Date(Math.min(...times)));
  }
  return { cluster: table.context.brief([...plans.keys()]), nextDue, foreign: false };
}

export async function claim(
  table: TaskTable,
  plans: Plans,
  request: ClaimRequest,
): Promise<ClaimAnswer<TaskRecord>> {
  const { now, admits, brief } = table.context;
  const cluster = brief([...request.limits.keys()]);
  const { paused } = cluster;
  const at = now();
  const heads = new Map<string, TaskRow[]>();
  for (const [task, { notAfter }] of request.limits) {
    if (isPausedIn(paused, task) || (notAfter !== undefined && notAfter < at)) continue;
    const due = pendingOf(table, plans.get(task)).filter(
      (row) => row.scheduledAt <= at && admits(cursorKey(row)),
    );
    heads.set(task, due.sort(byTaskOrder));
  }
  const offers = [...heads].map(
    ([task, due]) => [task, Math.min(due.length, request.limits.get(task)?.max ?? 0)] as const,
  );
  const shares = fairShare(new Map(offers), request.total);
  const taken = [...heads].flatMap(([task, due]) => due.slice(0, shares.get(task) ?? 0));
  for (const row of taken) take(row, request, at);
  const more = [...heads].some(([task, due]) => due.length > (shares.get(task) ?? 0));
  const jobs = taken.sort(byTaskOrder).map((row) => matched(table, plans, row));
  return { jobs, asked: taken.length, more, cluster };
}

/** Claims a task. The attempt counts from here; a settlement that defers or releases the task takes it back. */
function take(row: TaskRow, { instance, token }: ClaimRequest, now: Date): void {
  Object.assign(row, {
    status: 'processing',
    claimedBy: instance.instanceId,
    leaseToken: token,
    lockedAt: now,
    attempts: row.attempts + 1,
    waitingSince: undefined,
    deferredUntil: undefined,
    touched: false,
    overtaken: false,
  });
}

/** Returns the record, with whether its document exists and matches. */
function matched(table: TaskTable, plans: Plans, row: TaskRow): TaskRecord {
  const plan = plans.get(row.task);
  return toRecord(row, plan !== undefined && table.look(plan, row.sourceDocId).outcome === 'matches');
}

export async function claimedUnder(
  table: TaskTable,
  plans: Plans,
  instance: Instance,
  token: string,
): Promise<readonly TaskRecord[]> {
  return table
    .all((row) => isRunning(row) && row.leaseToken === token && row.claimedBy === instance.instanceId)
    .sort(byTaskOrder)
    .map((row) => matched(table, plans, row));
}
