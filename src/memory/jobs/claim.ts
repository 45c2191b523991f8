import type { JobRecord } from '../../core/records/job.js';
import { fairShare } from '../../core/batches/fair-share.js';
import type { ClaimAnswer, ClaimRequest, DueSummary, Inserted, Instance, NewJob } from '../../store/port.js';
import { assign, byTurn, claimFields, toRecord, type Row } from './records.js';
import type { Table } from './table.js';
import type { MemoryTransaction } from '../transaction.js';

export async function insert(
  table: Table,
  jobs: readonly NewJob[],
  transaction?: MemoryTransaction,
): Promise<readonly Inserted[]> {
  if (transaction === undefined) return jobs.map((job) => insertOne(table, job));
  const drafts = table.draftsOf(transaction);
  return jobs.map((job) => {
    const rival = table.rival(job) ?? drafts.find((draft) => isRival(draft, job));
    if (rival !== undefined) return { job: toRecord(rival), outcome: 'existing' };
    const row = table.newRow(job);
    drafts.push(row);
    transaction.add(
      () => table.rival(job) === undefined,
      () => table.keep(row),
    );
    return { job: toRecord(row), outcome: 'created' };
  });
}

const isRival = (draft: Row, { id, name, uniqueKey }: NewJob): boolean =>
  draft.id === id || (uniqueKey !== undefined && draft.name === name && draft.uniqueKey === uniqueKey);

function insertOne(table: Table, job: NewJob): Inserted {
  const rival = table.rival(job);
  if (rival !== undefined) return { job: toRecord(rival), outcome: 'existing' };
  const row = table.newRow(job);
  table.keep(row);
  return { job: toRecord(row), outcome: 'created' };
}

export async function peek(table: Table, names: readonly string[]): Promise<DueSummary> {
  const nextDue = new Map<string, Date>();
  for (const name of names) {
    for (const row of table.pending.get(name) ?? []) {
      const known = nextDue.get(name);
      if (known === undefined || row.nextRunAt < known) nextDue.set(name, row.nextRunAt);
    }
  }
  return { cluster: table.context.cluster(), nextDue, foreign: false };
}

export async function claim(table: Table, request: ClaimRequest): Promise<ClaimAnswer> {
  const now = table.now();
  const heads = new Map<string, Row[]>();
  for (const name of request.limits.keys()) {
    if (table.context.paused.has(name)) continue;
    const due = [...(table.pending.get(name) ?? [])].filter(
      (row) => row.nextRunAt <= now && table.context.admission.admits(row.id),
    );
    heads.set(name, due.sort(byTurn));
  }
  const offers = [...heads].map(
    ([name, due]) => [name, Math.min(due.length, request.limits.get(name)?.max ?? 0)] as const,
  );
  const shares = fairShare(new Map(offers), request.total);
  const taken = [...heads].flatMap(([name, due]) => due.slice(0, shares.get(name) ?? 0));
  for (const row of taken) take(table, row, request, now);
  const more = [...heads].some(([name, due]) => due.length > (shares.get(name) ?? 0));
  return { jobs: taken.map(toRecord), asked: taken.length, more, cluster: table.context.cluster() };
}

function take(table: Table, row: Row, request: ClaimRequest, now: Date): void {
  table.move(row, 'processing');
  assign(row, claimFields(request, now));
}

export async function claimedUnder(
  table: Table,
  instance: Instance,
  token: string,
): Promise<readonly JobRecord[]> {
  return table.all(
    (row) => row.status === 'processing' && row.leaseToken === token && row.claimedBy === instance.instanceId,
  );
}
