import { randomBytes } from 'node:crypto';
import type { Clock } from '../../core/clock.js';
import type { JobRecord, JobStatus } from '../../core/records/job.js';
import type { Cluster, Lease, NewJob } from '../../store/port.js';
import type { Admission } from '../admission.js';
import type { MemoryTransaction } from '../transaction.js';
import { assign, claimFields, copyOf, toRecord, type Row } from './records.js';

export interface MemoryContext {
  readonly clock: Clock;
  readonly paused: Set<string>;
  readonly admission: Admission;
  readonly cluster: () => Cluster;
  readonly wake: () => void;
  readonly cancel: () => void;
}

export const isLive = (row: Row): boolean => row.status === 'pending' || row.status === 'processing';

/** The jobs, with the index that claims need. The files beside this one have the transitions. */
export class Table {
  readonly context: MemoryContext;
  readonly rows: Map<string, Row> = new Map();
  /** Pending rows by name, so that claims do not scan finished jobs. */
  readonly pending: Map<string, Set<Row>> = new Map();
  readonly #drafts = new WeakMap<MemoryTransaction, Row[]>();
  readonly #prefix = randomBytes(8).toString('hex');
  #serial = 0;

  constructor(context: MemoryContext) {
    this.context = context;
  }

  now(): Date {
    return new Date(this.context.clock.now());
  }

  all(predicate: (row: Row) => boolean): JobRecord[] {
    return [...this.rows.values()].filter(predicate).map(toRecord);
  }

  rowsOf(jobs: readonly JobRecord[]): Row[] {
    return jobs.flatMap((job) => this.rows.get(job.id) ?? []);
  }

  /** Returns the row if the lease still holds it. */
  holding(lease: Lease): Row | undefined {
    const row = this.rows.get(lease.id);
    return row?.status === 'processing' && (row.leaseToken ?? null) === lease.token ? row : undefined;
  }

  /** Returns the live job that has the unique key. */
  liveKey(name: string, uniqueKey: string): Row | undefined {
    return [...this.rows.values()].find(
      (row) => isLive(row) && row.name === name && row.uniqueKey === uniqueKey,
    );
  }

  /** Returns the job that already has the id of a new one, or the live job that has its unique key. */
  rival(job: NewJob): Row | undefined {
    const same = job.id === undefined ? undefined : this.rows.get(job.id);
    return same ?? (job.uniqueKey === undefined ? undefined : this.liveKey(job.name, job.uniqueKey));
  }

  /** Returns the jobs that an open transaction has inserted so far. */
  draftsOf(transaction: MemoryTransaction): Row[] {
    const drafts = this.#drafts.get(transaction) ?? [];
    this.#drafts.set(transaction, drafts);
    return drafts;
  }

  /** Ids ascend in the order of creation, so that ties are broken by age. */
  newId(): string {
    this.#serial += 1;
    return this.#prefix + this.#serial.toString(16).padStart(8, '0');
  }

  newRow(job: NewJob): Row {
    const { wake, ownId, claim, ...fields } = job;
    this.#serial += 1;
    const id = job.id ?? this.newId();
    const base = { lockedAt: null, failCount: 0, updatedAt: job.createdAt };
    const row: Row = { ...copyOf(fields), ...base, id, key: id, serial: this.#serial };
    if (claim !== undefined && this.context.admission.admits(row.id))
      assign(row, { status: 'processing', ...claimFields(claim, this.now()) });
    return row;
  }

  keep(row: Row): void {
    this.rows.set(row.id, row);
    this.move(row, row.status);
  }

  /** Every change of status goes through here, which keeps the index of pending rows up to date. */
  move(row: Row, status: JobStatus): void {
    row.status = status;
    const pending = this.pending.get(row.name) ?? new Set();
    this.pending.set(row.name, pending);
    if (status !== 'pending') pending.delete(row);
    else {
      pending.add(row);
      this.context.wake();
    }
  }

  delete(row: Row): void {
    this.rows.delete(row.id);
    this.pending.get(row.name)?.delete(row);
  }
}
