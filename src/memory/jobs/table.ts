import { randomBytes } from 'node:crypto';
import type { Clock } from '../../core/clock.js';
import type { JobRecord, JobStatus } from '../../core/records/job.js';
import type { ClusterBrief, Lease, NewJob } from '../../store/port.js';
import type { Admission } from '../admission.js';
import type { MemoryTransaction } from '../transaction.js';
import { isIdle, newKey, type KeyState } from '../limits/keys.js';
import { Drafts } from './drafts.js';
import { assign, claimFields, copyOf, toRecord, type Row } from './records.js';

export interface MemoryContext {
  readonly clock: Clock;
  readonly paused: Set<string>;
  readonly admission: Admission;
  /** With a name: only its jobs have changed. */
  readonly wake: (name?: string) => void;
  /** Wakes for work of every kind. */
  readonly pausesChanged: () => void;
  readonly cancel: () => void;
}

export const isLive = (row: Row): boolean => row.status === 'pending' || row.status === 'processing';

/** The jobs, with the index that claims need. The files beside this one have the transitions. */
export class Table {
  readonly context: MemoryContext;
  readonly rows: Map<string, Row> = new Map();
  /** Pending rows by name, so that claims do not scan finished jobs. No set is empty. */
  readonly pending: Map<string, Set<Row>> = new Map();
  /** The live rows of each name by their keys. */
  readonly keys: Map<string, Map<string, KeyState<Row>>> = new Map();
  /** Names that are claimed by their keys: the end of a job may let another one of its key run. */
  readonly keyed: Set<string> = new Set();
  /** Names that have limits. */
  readonly limited: Set<string> = new Set();
  /** How many turns keys have had. */
  turns = 0;
  readonly #places = new WeakMap<Row, KeyState<Row>>();
  /** Called with the id of each job that changes. */
  readonly watchers: Set<(ids: readonly string[]) => void> = new Set();
  readonly #drafts = new WeakMap<MemoryTransaction, Drafts>();
  readonly #prefix = randomBytes(8).toString('hex');
  #serial = 0;

  constructor(context: MemoryContext) {
    this.context = context;
  }

  now(): Date {
    return new Date(this.context.clock.now());
  }

  brief(): ClusterBrief {
    return { now: this.now(), paused: new Set(this.context.paused) };
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

  /** Returns the successor that waits for the unique key. */
  successor(name: string, uniqueKey: string): Row | undefined {
    return [...this.rows.values()].find(
      (row) => row.status === 'pending' && row.name === name && row.successorKey === uniqueKey,
    );
  }

  /** Called with a job that is no longer live. */
  release({ name, uniqueKey, followed }: Row): void {
    const waiting =
      followed !== true || uniqueKey === undefined ? undefined : this.successor(name, uniqueKey);
    if (waiting === undefined) return;
    assign(waiting, {
      uniqueKey,
      nextRunAt: waiting.successorRunAt,
      successorKey: null,
      successorRunAt: null,
    });
    this.context.wake(name);
  }

  /** Returns the job that already has the id of a new one, or the live job that has its unique key. */
  rival(job: NewJob): Row | undefined {
    const same = job.id === undefined ? undefined : this.rows.get(job.id);
    return same ?? (job.uniqueKey === undefined ? undefined : this.liveKey(job.name, job.uniqueKey));
  }

  /** Returns the jobs that an open transaction has inserted so far. */
  draftsOf(transaction: MemoryTransaction): Drafts {
    const drafts = this.#drafts.get(transaction) ?? new Drafts();
    this.#drafts.set(transaction, drafts);
    return drafts;
  }

  /** Ids ascend in the order of creation, so that ties are broken by age. */
  newId(): string {
    this.#serial += 1;
    return this.#prefix + this.#serial.toString(16).padStart(8, '0');
  }

  newRow(job: NewJob): Row {
    const { wake, ownId, claim, onExisting, past, ...fields } = job;
    this.#serial += 1;
    const id = job.id ?? this.newId();
    const base = { lockedAt: null, failCount: 0, updatedAt: job.createdAt };
    const row: Row = {
      ...copyOf(fields),
      ...base,
      ...(past === undefined ? {} : copyOf(past)),
      id,
      key: id,
      serial: this.#serial,
    };
    if (onExisting?.kind === 'debounce') row.debouncedAt = job.createdAt;
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
    this.changed(row);
    this.#placeInKey(row);
    if (status !== 'pending') this.#unpend(row);
    else {
      const pending = this.pending.get(row.name) ?? new Set();
      this.pending.set(row.name, pending.add(row));
      this.context.wake(row.name);
    }
  }

  /** Tells watchers, which read the row later. */
  changed(row: Row): void {
    for (const watcher of this.watchers) watcher([row.id]);
  }

  delete(row: Row): void {
    this.rows.delete(row.id);
    this.changed(row);
    this.#unpend(row);
    this.#leaveKey(row);
  }

  /** Returns the key's state, or undefined if nothing of it is live. */
  keyOf({ name, limitKey = '' }: Pick<Row, 'name' | 'limitKey'>): KeyState<Row> | undefined {
    return this.keys.get(name)?.get(limitKey);
  }

  /** To be called when the key of a row may have changed. */
  rekeyed(row: Row): void {
    this.#placeInKey(row);
  }

  #placeInKey(row: Row): void {
    if (!isLive(row)) {
      this.#leaveKey(row);
      return;
    }
    const { name, limitKey = '' } = row;
    const keys = this.keys.get(name) ?? new Map<string, KeyState<Row>>();
    const state = keys.get(limitKey) ?? newKey<Row>(limitKey);
    if (this.#places.get(row) !== state) this.#leaveKey(row);
    this.keys.set(name, keys.set(limitKey, state));
    this.#places.set(row, state);
    const wasRunning = state.running.delete(row);
    state.pending.delete(row);
    (row.status === 'pending' ? state.pending : state.running).add(row);
    if (wasRunning) this.#keyFreed(state, name);
  }

  #leaveKey(row: Row): void {
    const state = this.#places.get(row);
    if (state === undefined) return;
    this.#places.delete(row);
    // One that waits may have held the key.
    const isLeft = state.pending.delete(row);
    if (state.running.delete(row) || isLeft) this.#keyFreed(state, row.name);
    // A key that takes turns is forgotten by a claim, once its rate counts nothing any more.
    if (isIdle(state) && !this.keyed.has(row.name)) this.forgetKey(row.name, state.key);
  }

  forgetKey(name: string, key: string): void {
    const keys = this.keys.get(name);
    keys?.delete(key);
    if (keys?.size === 0) this.keys.delete(name);
  }

  #keyFreed(state: KeyState<Row>, name: string): void {
    if (this.keyed.has(name) && state.pending.size > 0) this.context.wake(name);
  }

  #unpend(row: Row): void {
    const pending = this.pending.get(row.name);
    pending?.delete(row);
    if (pending?.size === 0) this.pending.delete(row.name);
  }
}
