import type { Inserted, NewJob } from '../../store/port.js';
import type { MemoryTransaction } from '../transaction.js';
import { placed, placedIn } from './existing.js';
import { toRecord } from './records.js';
import type { Table } from './table.js';

export async function insert(
  table: Table,
  jobs: readonly NewJob[],
  transaction?: MemoryTransaction,
): Promise<readonly Inserted[]> {
  if (transaction === undefined) return jobs.map((job) => insertOne(table, job));
  const drafts = table.draftsOf(transaction);
  return jobs.map((job) => {
    if (job.onExisting !== undefined) return placedIn(table, drafts, job, transaction);
    const rival = table.rival(job) ?? drafts.rival(job);
    if (rival !== undefined) return { job: toRecord(rival), outcome: 'existing' };
    const row = table.newRow(job);
    drafts.add(row);
    transaction.add(
      () => table.rival(job) === undefined,
      () => table.keep(row),
    );
    return { job: toRecord(row), outcome: 'created' };
  });
}

function insertOne(table: Table, job: NewJob): Inserted {
  if (job.onExisting !== undefined) return placed(table, job);
  const rival = table.rival(job);
  if (rival !== undefined) return { job: toRecord(rival), outcome: 'existing' };
  const row = table.newRow(job);
  table.keep(row);
  return { job: toRecord(row), outcome: 'created' };
}
