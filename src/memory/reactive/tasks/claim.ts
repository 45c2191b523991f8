import { fairShare } from '../../../core/batches/fair-share.js';
import { byTaskOrder } from '../../../core/records/claim-order.js';
import type { TaskRecord } from '../../../core/records/task.js';
import {
  isPausedIn,
  type ClaimAnswer,
  type ClaimRequest,
  type DueSummary,
  type Instance,
  type KeyRule,
} from '../../../store/port.js';
import type { TaskPlan } from '../../../store/reactive/reactive.js';
import {
  countStart,
  isCounting,
  isIdle,
  planKeyed,
  type KeyedPlan,
  type KeyState,
} from '../../limits/keys.js';
import { cursorKey, isRunning, KEYED_TASKS, toRecord, type TaskRow } from './row.js';
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
  const heads = new Map<string, KeyedPlan<TaskRow>>();
  const heldUp = new Map<string, Date | null>();
  for (const [task, { max, notAfter, keys: rule }] of request.limits) {
    if (isPausedIn(paused, task) || (notAfter !== undefined && notAfter < at)) continue;
    const plan = plans.get(task);
    const isDue = (row: TaskRow): boolean => row.scheduledAt <= at && admits(cursorKey(row));
    const offer: KeyedPlan<TaskRow> =
      rule === undefined || plan === undefined
        ? { rows: pendingOf(table, plan).filter(isDue).sort(byTaskOrder), isMore: false }
        : planKeyed(KEYED_TASKS, keysOf(table, plan, rule, at), rule, {
            max,
            now: at.getTime(),
            isDue,
          });
    heads.set(task, offer);
    if (offer.heldUp !== undefined) heldUp.set(task, offer.heldUp);
  }
  const offers = [...heads].map(
    ([task, { rows }]) => [task, Math.min(rows.length, request.limits.get(task)?.max ?? 0)] as const,
  );
  const shares = fairShare(new Map(offers), request.total);
  const taken = [...heads].flatMap(([task, { rows }]) => rows.slice(0, shares.get(task) ?? 0));
  for (const row of taken) take(table, row, request, at);
  const more = [...heads].some(([task, { rows, isMore }]) => isMore || rows.length > (shares.get(task) ?? 0));
  const jobs = taken.sort(byTaskOrder).map((row) => matched(table, plans, row));
  return { jobs, asked: taken.length, more, ...(heldUp.size === 0 ? {} : { heldUp }), cluster };
}

/** The keys of a task, without those of which nothing is left. */
function keysOf(table: TaskTable, plan: TaskPlan, rule: KeyRule, at: Date): readonly KeyState<TaskRow>[] {
  const keys = table.keysOf(plan.task, plan.source.collection);
  for (const state of keys.values())
    if (isIdle(state) && !isCounting(state, rule, at.getTime())) keys.delete(state.key);
  return [...keys.values()];
}

/** Claims a task. The attempt counts from here; a settlement that defers or releases the task takes it back. */
function take(table: TaskTable, row: TaskRow, { instance, token, limits }: ClaimRequest, now: Date): void {
  const rule = limits.get(row.task)?.keys;
  const key = rule && table.keysOf(row.task).get(row.limitKey ?? '');
  if (rule !== undefined && key !== undefined) countStart(key, rule, now.getTime(), (table.turns += 1));
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
