import { LOG_LIMIT } from '../../core/records/job.js';
import type { SettleAnswer, Settlement } from '../../store/port.js';
import { uncountStart } from '../limits/keys.js';
import { assign, type Row } from './records.js';
import type { Table } from './table.js';
import type { MemoryTransaction } from '../transaction.js';

export async function settle(
  table: Table,
  settlements: readonly Settlement[],
): Promise<readonly SettleAnswer[]> {
  return settlements.map((settlement) => settleOne(table, settlement));
}

function settleOne(table: Table, settlement: Settlement): SettleAnswer {
  const row = table.rows.get(settlement.lease.id);
  const answer = judge(row, settlement);
  if (answer !== 'settled' || row?.status !== 'processing') return answer;
  const key = settlement.unstarted === true ? table.keyOf(row) : undefined;
  if (key !== undefined && row.lockedAt !== null) uncountStart(key, row.lockedAt.getTime());
  if (settlement.remove === true && table.watchers.size === 0) table.delete(row);
  else write(table, row, settlement);
  const { letter } = settlement;
  if (letter !== undefined && !table.rows.has(letter.id)) table.keep(table.newRow(letter));
  if (settlement.releases !== undefined) table.release(row);
  return 'settled';
}

function write(table: Table, row: Row, settlement: Settlement): void {
  const { set, status, entry, logs = [], historyLimit, by } = settlement;
  const lease = { claimedBy: null, lastHeartbeat: null, heartbeatInterval: null, startedToken: null };
  assign(row, {
    ...set,
    ...lease,
    ...(by === 'reclaimer' ? { leaseToken: null } : {}),
    lockedAt: null,
    updatedAt: table.now(),
    ...(entry === undefined
      ? {}
      : { history: [...(row.history ?? []), entry].slice(-Math.max(1, historyLimit)) }),
    ...(logs.length === 0 ? {} : { logs: [...(row.logs ?? []), ...logs].slice(-LOG_LIMIT) }),
  });
  table.move(row, status);
}

export async function settleIn(
  table: Table,
  settlement: Settlement,
  transaction: MemoryTransaction,
): Promise<SettleAnswer> {
  const held = (): boolean => {
    const row = table.rows.get(settlement.lease.id);
    return row?.status === 'processing' && judge(row, settlement) === 'settled';
  };
  if (!held()) return 'lost';
  transaction.add(held, () => void settleOne(table, settlement));
  return 'settled';
}

function judge(row: Row | undefined, settlement: Settlement): SettleAnswer {
  const { lease, status, ifRev, remove = false, by, releases } = settlement;
  if (row === undefined) return remove ? 'settled' : 'lost';
  if (row.status !== 'processing')
    return by === 'holder' && row.leaseToken === lease.token ? 'settled' : 'lost';
  if ((row.leaseToken ?? null) !== lease.token) return 'lost';
  if (lease.token === null && row.lockedAt?.getTime() !== lease.lockedAt?.getTime()) return 'lost';
  if (status === 'pending' && row.cancelRequestedAt !== undefined) return 'changed';
  if (status !== 'pending' && row.followed === true && releases === undefined) return 'changed';
  return ifRev !== undefined && row.scheduleRev !== ifRev ? 'changed' : 'settled';
}
