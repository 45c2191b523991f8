import type { SettleAnswer } from '../../../store/port.js';
import type { TaskSettlement } from '../../../store/reactive/reactive.js';
import { uncountStart } from '../../limits/keys.js';
import type { MemoryTransaction } from '../../transaction.js';
import { isRunning, type TaskRow } from './row.js';
import type { TaskTable } from './table.js';

export async function settle(
  table: TaskTable,
  settlements: readonly TaskSettlement[],
): Promise<readonly SettleAnswer[]> {
  return settlements.map((settlement) => settleOne(table, settlement));
}

export async function settleIn(
  table: TaskTable,
  settlement: TaskSettlement,
  transaction: MemoryTransaction,
): Promise<SettleAnswer> {
  const held = (): boolean => table.holding(settlement.lease) !== undefined;
  if (!held()) return 'lost';
  transaction.add(held, () => void settleOne(table, settlement));
  return 'settled';
}

function settleOne(table: TaskTable, settlement: TaskSettlement): SettleAnswer {
  const { lease, by, unstarted } = settlement;
  const row = table.rows.get(String(lease.key));
  if (row === undefined || (row.leaseToken ?? null) !== lease.token) return 'lost';
  if (!isRunning(row)) return by === 'holder' ? 'settled' : 'lost';
  const isKeyed = row.limitKey !== undefined;
  const key = unstarted === true ? table.keysOf(row.task).get(row.limitKey ?? '') : undefined;
  if (key !== undefined && row.lockedAt !== null) uncountStart(key, row.lockedAt.getTime());
  table.keep(Object.assign(row, settled(row, settlement, table.context.now())));
  // Its key is free for another task.
  if (isKeyed) table.context.wake();
  return 'settled';
}

/** A task whose document changed while it ran becomes pending again, whatever the outcome of this run. */
function settled(row: TaskRow, settlement: TaskSettlement, now: Date): Partial<TaskRow> {
  const { status, takeBack, skipped, success, resetRetries, entry, historyLimit, by } = settlement;
  const again = row.status === 'processing_dirty' || (skipped && row.touched);
  const attempts = takeBack ? Math.max(0, row.attempts - 1) : row.attempts;
  const history = [...(row.executionHistory ?? []), ...(entry === undefined ? [] : [entry])];
  return {
    ...times(row, settlement, again),
    ...errors(row, settlement, again),
    status: again ? 'pending' : status,
    lockedAt: null,
    attempts: again && (resetRetries || success !== undefined) ? 0 : attempts,
    limitKey: row.nextLimitKey ?? row.limitKey,
    nextLimitKey: undefined,
    matched: skipped && !again ? false : row.matched,
    claimedBy: undefined,
    startedToken: undefined,
    touched: false,
    overtaken: false,
    ...(by === 'reclaimer' ? { leaseToken: undefined } : {}),
    ...(status === 'pending' ? {} : { lastFinalizedAt: now }),
    ...(entry === undefined ? {} : { executionHistory: history.slice(-Math.max(1, historyLimit)) }),
  };
}

/** A change shortens neither a deferral nor, unless it resets retries, the backoff of a retry. */
function times(row: TaskRow, settlement: TaskSettlement, again: boolean): Partial<TaskRow> {
  const { scheduledAt: due, deferred, resetRetries } = settlement;
  if (due === undefined) return {};
  const kept = deferred || !resetRetries;
  const later = new Date(Math.max(row.scheduledAt.getTime(), due.getTime()));
  return {
    scheduledAt: again ? (kept ? later : row.scheduledAt) : due,
    ...(deferred ? { deferredUntil: due } : { initialScheduledAt: again ? row.initialScheduledAt : due }),
  };
}

function errors(
  row: TaskRow,
  { failure, success, resetRetries }: TaskSettlement,
  again: boolean,
): Partial<TaskRow> {
  if (success !== undefined)
    return { lastSuccess: success, firstErrorAt: undefined, failKind: undefined, lastError: undefined };
  if (failure === undefined) return {};
  return {
    lastError: failure.message,
    failKind: failure.kind,
    firstErrorAt: again && resetRetries ? undefined : failure.firstErrorAt,
  };
}
