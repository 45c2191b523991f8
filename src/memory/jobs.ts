import { randomBytes } from 'node:crypto';
import type { Clock } from '../core/clock.js';
import { FINISHED, JOB_STATUSES, type JobRecord, type JobStatus } from '../core/job.js';
import { fairShare } from '../core/share.js';
import type {
  ClaimAnswer,
  ClaimRequest,
  Cluster,
  FailedRun,
  Found,
  Glance,
  Inserted,
  Instance,
  JobFilter,
  JobStore,
  Lease,
  NameCounts,
  NewJob,
  Note,
  Page,
  RetentionMs,
  ScheduleChange,
  SettleAnswer,
  Settlement,
  StatusCounts,
  StrayQuery,
} from '../store/port.js';
import { assign, byTurn, copyOf, toRecord, type Row } from './records.js';
import type { MemoryTransaction } from './transaction.js';

const LOG_LIMIT = 100;
const NEVER = new Date('9999-12-31T23:59:59.999Z');

export interface MemoryContext {
  readonly clock: Clock;
  readonly paused: Set<string>;
  readonly cluster: () => Cluster;
  readonly wake: () => void;
  readonly cancel: () => void;
}

const isLive = (row: Row): boolean => row.status === 'pending' || row.status === 'processing';
const scheduleId = (name: string, key: string): string => `schedule:${name}:${key}`;
const lifeOf = (token: string | undefined): string | undefined => token?.split('.')[0];

/**
 * The same transitions as in a database, on a Map. Every method does its work before its first await, so each is
 * atomic by itself.
 */
export class MemoryJobs implements JobStore<MemoryTransaction> {
  readonly #context: MemoryContext;
  readonly #rows = new Map<string, Row>();
  /** Pending rows by name, so that finished ones cost a claim nothing. */
  readonly #pending = new Map<string, Set<Row>>();
  readonly #prefix = randomBytes(8).toString('hex');
  #serial = 0;

  constructor(context: MemoryContext) {
    this.#context = context;
  }

  async insert(jobs: readonly NewJob[], transaction?: MemoryTransaction): Promise<readonly Inserted[]> {
    if (transaction === undefined) return jobs.map((job) => this.#insertOne(job));
    return jobs.map((job) => {
      const rival = this.#rival(job);
      if (rival !== undefined) return { job: toRecord(rival), outcome: 'existing' };
      const row = this.#newRow(job);
      transaction.add(
        () => this.#rival(job) === undefined,
        () => this.#keep(row),
      );
      return { job: toRecord(row), outcome: 'created' };
    });
  }

  async look(names: readonly string[]): Promise<Glance> {
    const nextDue = new Map<string, Date>();
    for (const name of names) {
      for (const row of this.#pending.get(name) ?? []) {
        const known = nextDue.get(name);
        if (known === undefined || row.nextRunAt < known) nextDue.set(name, row.nextRunAt);
      }
    }
    return { cluster: this.#context.cluster(), nextDue, foreign: false };
  }

  async claim(request: ClaimRequest): Promise<ClaimAnswer> {
    const now = this.#now();
    const heads = new Map<string, Row[]>();
    for (const name of request.limits.keys()) {
      if (this.#context.paused.has(name)) continue;
      const due = [...(this.#pending.get(name) ?? [])].filter((row) => row.nextRunAt <= now);
      heads.set(name, due.sort(byTurn));
    }
    const offers = [...heads].map(
      ([name, due]) => [name, Math.min(due.length, request.limits.get(name)?.max ?? 0)] as const,
    );
    const shares = fairShare(new Map(offers), request.total);
    const taken = [...heads].flatMap(([name, due]) => due.slice(0, shares.get(name) ?? 0));
    for (const row of taken) this.#take(row, request, now);
    const more = [...heads].some(([name, due]) => due.length > (shares.get(name) ?? 0));
    return { jobs: taken.map(toRecord), asked: taken.length, more, cluster: this.#context.cluster() };
  }

  #take(row: Row, request: ClaimRequest, now: Date): void {
    this.#move(row, 'processing');
    assign(row, {
      claimedBy: request.instance.instanceId,
      leaseToken: request.token,
      heartbeatInterval: request.heartbeatMs,
      lockedAt: now,
      lastHeartbeat: now,
      updatedAt: now,
    });
  }

  async claimedUnder(instance: Instance, token: string): Promise<readonly JobRecord[]> {
    return this.#all(
      (row) =>
        row.status === 'processing' && row.leaseToken === token && row.claimedBy === instance.instanceId,
    );
  }

  async settle(settlements: readonly Settlement[]): Promise<readonly SettleAnswer[]> {
    return settlements.map((settlement) => this.#settleOne(settlement));
  }

  #settleOne(settlement: Settlement): SettleAnswer {
    const row = this.#rows.get(settlement.lease.id);
    const answer = judge(row, settlement);
    if (answer !== 'settled' || row?.status !== 'processing') return answer;
    if (settlement.remove === true) this.#delete(row);
    else this.#write(row, settlement);
    return 'settled';
  }

  #write(row: Row, settlement: Settlement): void {
    const { set, status, entry, logs = [], historyLimit, by } = settlement;
    const lease = { claimedBy: null, lastHeartbeat: null, heartbeatInterval: null, startedToken: null };
    assign(row, {
      ...set,
      ...lease,
      ...(by === 'reclaimer' ? { leaseToken: null } : {}),
      lockedAt: null,
      updatedAt: this.#now(),
      ...(entry === undefined
        ? {}
        : { history: [...(row.history ?? []), entry].slice(-Math.max(1, historyLimit)) }),
      ...(logs.length === 0 ? {} : { logs: [...(row.logs ?? []), ...logs].slice(-LOG_LIMIT) }),
    });
    this.#move(row, status);
  }

  async settleIn(settlement: Settlement, transaction: MemoryTransaction): Promise<SettleAnswer> {
    const held = (): boolean => {
      const row = this.#rows.get(settlement.lease.id);
      return row?.status === 'processing' && judge(row, settlement) === 'settled';
    };
    if (!held()) return 'lost';
    transaction.add(held, () => void this.#settleOne(settlement));
    return 'settled';
  }

  async held(leases: readonly Lease[]): Promise<readonly (JobRecord | undefined)[]> {
    return leases.map((lease) => {
      const row = this.#holding(lease);
      return row === undefined ? undefined : toRecord(row);
    });
  }

  async begin(lease: Lease): Promise<'begun' | 'lost'> {
    const row = this.#holding(lease);
    if (row === undefined) return 'lost';
    assign(row, { startedToken: lease.token });
    return 'begun';
  }

  async note(notes: readonly Note[]): Promise<void> {
    for (const { lease, progress, logs = [] } of notes) {
      const row = this.#holding(lease);
      if (row === undefined) continue;
      if (progress !== undefined) row.progress = copyOf(progress.value);
      if (logs.length > 0) row.logs = [...(row.logs ?? []), ...copyOf(logs)].slice(-LOG_LIMIT);
    }
  }

  async beat(instance: Instance, except: readonly Lease[]): Promise<void> {
    const now = this.#now();
    const skipped = new Set(except.map((lease) => lease.id));
    for (const row of this.#rows.values()) {
      if (row.status !== 'processing' || lifeOf(row.leaseToken) !== instance.life || skipped.has(row.id))
        continue;
      assign(row, { lastHeartbeat: now, updatedAt: now });
    }
  }

  async cancelRequests(leases: readonly Lease[]): Promise<readonly Lease[]> {
    return leases.filter((lease) => this.#rows.get(lease.id)?.cancelRequestedAt !== undefined);
  }

  async heldBy(instance: Instance, limit: number): Promise<readonly JobRecord[]> {
    return this.#all((row) => row.status === 'processing' && lifeOf(row.leaseToken) === instance.life).slice(
      0,
      limit,
    );
  }

  async strays({ lives, olderThanMs, legacyAfterMs, limit }: StrayQuery): Promise<readonly JobRecord[]> {
    const now = this.#context.clock.now();
    return this.#all((row) => {
      if (row.status !== 'processing') return false;
      const life = lifeOf(row.leaseToken);
      const locked = row.lockedAt?.getTime() ?? 0;
      if (life !== undefined) return !lives.includes(life) && locked < now - olderThanMs;
      const lastSign = Math.max(locked, row.lastHeartbeat?.getTime() ?? 0);
      return lastSign < now - Math.max(legacyAfterMs, 3 * (row.heartbeatInterval ?? 0));
    }).slice(0, limit);
  }

  async insertFailedRun(of: JobRecord, failure: FailedRun): Promise<void> {
    const { entry, historyLimit, ...fields } = failure;
    const id = `${of.id}@${failure.scheduledFor.toISOString()}`;
    const schedule = this.#rows.get(of.id);
    if (this.#rows.has(id) || schedule === undefined) return;
    const row = this.#newRow({
      id,
      name: of.name,
      data: schedule.data,
      status: 'failed',
      priority: of.priority,
      nextRunAt: failure.scheduledFor,
      createdAt: failure.finishedAt,
    });
    const history = [...(of.history ?? []), ...(entry === undefined ? [] : [entry])].slice(
      -Math.max(1, historyLimit),
    );
    assign(row, { ...fields, scheduleId: of.id, history });
    this.#keep(row);
  }

  async get(id: string): Promise<JobRecord | undefined> {
    const row = this.#rows.get(id);
    return row === undefined ? undefined : toRecord(row);
  }

  async getMany(ids: readonly string[]): Promise<readonly JobRecord[]> {
    return ids.flatMap((id) => {
      const row = this.#rows.get(id);
      return row === undefined ? [] : [toRecord(row)];
    });
  }

  cursorKey(record: JobRecord): string {
    return record.id;
  }

  async find(filter: JobFilter, page: Page): Promise<Found> {
    const { field, direction, limit, after } = page;
    const order = (a: { at: number; id: string }, b: { at: number; id: string }): number =>
      direction * (a.at - b.at || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0));
    const place = (row: JobRecord): { at: number; id: string } => ({ at: row[field].getTime(), id: row.id });
    const start = after === undefined ? undefined : { at: after.at.getTime(), id: after.key };
    const found = this.#all((row) => matches(row, filter))
      .filter((row) => start === undefined || order(place(row), start) > 0)
      .sort((a, b) => order(place(a), place(b)));
    return { jobs: found.slice(0, limit), more: found.length > limit, partial: false };
  }

  async count(filter: JobFilter): Promise<number> {
    return [...this.#rows.values()].filter((row) => matches(row, filter)).length;
  }

  async stats(cap: number): Promise<{ names: readonly NameCounts[]; total: number }> {
    const rows = [...this.#rows.values()];
    const names = [...new Set(rows.map((row) => row.name))].sort().map((name) => {
      const full = JOB_STATUSES.map(
        (status) =>
          [status, rows.filter((row) => row.name === name && row.status === status).length] as const,
      );
      const counts = Object.fromEntries(full.map(([status, count]) => [status, Math.min(cap, count)]));
      return {
        name,
        counts: counts as StatusCounts,
        capped: full.filter(([, count]) => count > cap).map(([status]) => status),
      };
    });
    return { names, total: rows.length };
  }

  async cancel(id: string, retention: (name: string) => RetentionMs): ReturnType<JobStore['cancel']> {
    const row = this.#rows.get(id);
    if (row === undefined) return undefined;
    if (FINISHED.includes(row.status)) return { outcome: 'finished', job: toRecord(row) };
    const outcome = this.#cancelOne(row, retention(row.name).cancelled);
    return { outcome, job: toRecord(row) };
  }

  #cancelOne(row: Row, retentionMs: number): 'cancelled' | 'requested' {
    const now = this.#now();
    if (row.status === 'processing') {
      assign(row, { cancelRequestedAt: now, updatedAt: now });
      this.#context.cancel();
      return 'requested';
    }
    assign(row, { finishedAt: now, updatedAt: now, expiresAt: new Date(now.getTime() + retentionMs) });
    this.#move(row, 'cancelled');
    return 'cancelled';
  }

  async retry(id: string, now: Date): ReturnType<JobStore['retry']> {
    const row = this.#rows.get(id);
    if (row === undefined) return undefined;
    if (row.status === 'completed') return { outcome: 'finished', job: toRecord(row) };
    if (isLive(row)) return { outcome: 'unfinished', job: toRecord(row) };
    if (row.uniqueKey !== undefined && this.#liveKey(row.name, row.uniqueKey) !== undefined) {
      return { outcome: 'live', job: toRecord(row) };
    }
    assign(row, {
      nextRunAt: now,
      failCount: 0,
      failKind: null,
      firstFailedAt: null,
      finishedAt: null,
      expiresAt: null,
      cancelRequestedAt: null,
      leaseToken: null,
      lockedAt: null,
      updatedAt: this.#now(),
    });
    delete row.result;
    delete row.progress;
    this.#move(row, 'pending');
    return { outcome: 'retried', job: toRecord(row) };
  }

  async remove(id: string): ReturnType<JobStore['remove']> {
    const row = this.#rows.get(id);
    if (row === undefined) return undefined;
    if (row.status === 'processing') return { outcome: 'running', job: toRecord(row) };
    this.#delete(row);
    return { outcome: 'removed', job: toRecord(row) };
  }

  async reschedule(id: string, at: Date): ReturnType<JobStore['reschedule']> {
    const row = this.#rows.get(id);
    if (row === undefined) return undefined;
    if (row.status !== 'pending')
      return { outcome: row.status === 'processing' ? 'running' : 'finished', job: toRecord(row) };
    assign(row, { nextRunAt: at, updatedAt: this.#now() });
    this.#context.wake();
    return { outcome: 'rescheduled', job: toRecord(row) };
  }

  async *each(filter: JobFilter, batch: number): AsyncGenerator<readonly JobRecord[]> {
    const found = this.#all((row) => matches(row, filter));
    for (let start = 0; start < found.length; start += batch)
      yield await Promise.resolve(found.slice(start, start + batch));
  }

  async cancelBatch(jobs: readonly JobRecord[], retention: (name: string) => RetentionMs): Promise<number> {
    const rows = this.#rowsOf(jobs).filter((row) => isLive(row) && row.cancelRequestedAt === undefined);
    for (const row of rows) this.#cancelOne(row, retention(row.name).cancelled);
    return rows.length;
  }

  async retryBatch(jobs: readonly JobRecord[], now: Date): Promise<number> {
    let count = 0;
    for (const job of jobs) if ((await this.retry(job.id, now))?.outcome === 'retried') count += 1;
    return count;
  }

  async removeBatch(jobs: readonly JobRecord[]): Promise<number> {
    const rows = this.#rowsOf(jobs).filter((row) => row.status !== 'processing');
    for (const row of rows) this.#delete(row);
    return rows.length;
  }

  async sweep(now: Date): Promise<number> {
    const expired = [...this.#rows.values()].filter(
      (row) => row.expiresAt !== undefined && row.expiresAt <= now,
    );
    for (const row of expired) this.#delete(row);
    return expired.length;
  }

  async putSchedule(change: ScheduleChange): Promise<JobRecord> {
    const id = scheduleId(change.name, change.key);
    const row =
      this.#rows.get(id) ?? this.#newRow({ ...plainSchedule(change), id, nextRunAt: change.firstRunAt });
    const fresh = !this.#rows.has(id) || FINISHED.includes(row.status);
    const moved = TIMES.some((field) => differs(row[field], wanted(change)[field]));
    const changed = moved || REST.some((field) => differs(row[field], wanted(change)[field]));
    const restart = fresh || (moved && row.status !== 'processing' && row.paused !== true);
    if (!fresh && !changed) return toRecord(row);
    assign(row, { ...wanted(change), scheduleRev: (row.scheduleRev ?? 0) + 1, updatedAt: change.now });
    for (const field of [...TIMES, ...REST]) if (row[field] === undefined) Reflect.deleteProperty(row, field);
    row.scheduleKey = change.key;
    if (restart) assign(row, { nextRunAt: change.firstRunAt, scheduledFor: change.firstRunAt, failCount: 0 });
    if (fresh)
      assign(row, {
        paused: false,
        lockedAt: null,
        finishedAt: null,
        expiresAt: null,
        cancelRequestedAt: null,
      });
    if (!this.#rows.has(id)) this.#keep(row);
    else if (fresh) this.#move(row, 'pending');
    if (restart) this.#context.wake();
    return toRecord(row);
  }

  async schedules(name?: string): Promise<readonly JobRecord[]> {
    const found = this.#all(
      (row) => row.repeatInterval !== undefined && (name === undefined || row.name === name),
    );
    return found.sort((a, b) =>
      `${a.name}\0${a.uniqueKey ?? ''}` < `${b.name}\0${b.uniqueKey ?? ''}` ? -1 : 1,
    );
  }

  async schedule(name: string, key: string): Promise<JobRecord | undefined> {
    return this.get(scheduleId(name, key));
  }

  async removeSchedule(name: string, key: string): Promise<boolean> {
    const row = this.#rows.get(scheduleId(name, key));
    if (row !== undefined) this.#delete(row);
    return row !== undefined;
  }

  async pauseSchedule(
    name: string,
    key: string,
    paused: boolean,
    nextRunAt: Date,
  ): Promise<JobRecord | undefined> {
    const row = this.#rows.get(scheduleId(name, key));
    if (row === undefined || !isLive(row) || (row.paused ?? false) === paused) return row && toRecord(row);
    assign(row, { paused, scheduleRev: (row.scheduleRev ?? 0) + 1, updatedAt: this.#now() });
    const at = paused ? NEVER : nextRunAt;
    if (row.status === 'pending') assign(row, { nextRunAt: at, scheduledFor: at });
    this.#context.wake();
    return toRecord(row);
  }

  async runScheduleNow(name: string, key: string, now: Date): ReturnType<JobStore['runScheduleNow']> {
    const row = this.#rows.get(scheduleId(name, key));
    if (row?.status === 'processing') return { outcome: 'running', job: toRecord(row) };
    if (row?.status !== 'pending') return undefined;
    // A run that is overdue comes first: bringing it forward would lose the ones missed before.
    if (row.nextRunAt > now) assign(row, { nextRunAt: now, scheduledFor: now, updatedAt: this.#now() });
    this.#context.wake();
    return { outcome: 'due', job: toRecord(row) };
  }

  async pauseName(name: string): Promise<void> {
    this.#context.paused.add(name);
  }

  async resumeName(name: string): Promise<void> {
    this.#context.paused.delete(name);
    this.#context.wake();
  }

  #now(): Date {
    return new Date(this.#context.clock.now());
  }

  #all(predicate: (row: Row) => boolean): JobRecord[] {
    return [...this.#rows.values()].filter(predicate).map(toRecord);
  }

  #rowsOf(jobs: readonly JobRecord[]): Row[] {
    return jobs.flatMap((job) => this.#rows.get(job.id) ?? []);
  }

  #holding(lease: Lease): Row | undefined {
    const row = this.#rows.get(lease.id);
    return row?.status === 'processing' && (row.leaseToken ?? null) === lease.token ? row : undefined;
  }

  #liveKey(name: string, uniqueKey: string): Row | undefined {
    return [...this.#rows.values()].find(
      (row) => isLive(row) && row.name === name && row.uniqueKey === uniqueKey,
    );
  }

  #rival(job: NewJob): Row | undefined {
    const same = job.id === undefined ? undefined : this.#rows.get(job.id);
    return same ?? (job.uniqueKey === undefined ? undefined : this.#liveKey(job.name, job.uniqueKey));
  }

  #insertOne(job: NewJob): Inserted {
    const rival = this.#rival(job);
    if (rival !== undefined) return { job: toRecord(rival), outcome: 'existing' };
    const row = this.#newRow(job);
    this.#keep(row);
    return { job: toRecord(row), outcome: 'created' };
  }

  #newRow(job: NewJob): Row {
    const { wake, ...fields } = job;
    // Ids grow with time, so that ties are broken by age.
    const id = job.id ?? this.#prefix + (this.#serial + 1).toString(16).padStart(8, '0');
    const base = { lockedAt: null, failCount: 0, updatedAt: job.createdAt };
    return { ...copyOf(fields), ...base, id, key: id, serial: (this.#serial += 1) };
  }

  #keep(row: Row): void {
    this.#rows.set(row.id, row);
    this.#move(row, row.status);
  }

  /** The one place where a status changes, so that the index of pending rows is always right. */
  #move(row: Row, status: JobStatus): void {
    row.status = status;
    const pending = this.#pending.get(row.name) ?? new Set();
    this.#pending.set(row.name, pending);
    if (status !== 'pending') pending.delete(row);
    else {
      pending.add(row);
      this.#context.wake();
    }
  }

  #delete(row: Row): void {
    this.#rows.delete(row.id);
    this.#pending.get(row.name)?.delete(row);
  }
}

function judge(row: Row | undefined, { lease, status, ifRev, remove = false, by }: Settlement): SettleAnswer {
  if (row === undefined) return remove ? 'settled' : 'lost';
  if (row.status !== 'processing')
    return by === 'holder' && row.leaseToken === lease.token ? 'settled' : 'lost';
  if ((row.leaseToken ?? null) !== lease.token) return 'lost';
  if (lease.token === null && row.lockedAt?.getTime() !== lease.lockedAt?.getTime()) return 'lost';
  if (status === 'pending' && row.cancelRequestedAt !== undefined) return 'changed';
  return ifRev !== undefined && row.scheduleRev !== ifRev ? 'changed' : 'settled';
}

const TIMES = ['repeatInterval', 'timezone', 'startAt', 'repeatUntil'] as const;
const REST = ['data', 'missed', 'priority', 'retryPolicy', 'timeoutMs'] as const;

const wanted = (change: ScheduleChange) => ({
  repeatInterval: change.cron,
  timezone: change.timezone,
  startAt: change.startAt,
  repeatUntil: change.repeatUntil,
  data: change.data,
  missed: change.missed,
  priority: change.priority,
  retryPolicy: change.retryPolicy,
  timeoutMs: change.timeoutMs,
});

const differs = (a: unknown, b: unknown): boolean => JSON.stringify(a) !== JSON.stringify(b);

const plainSchedule = (change: ScheduleChange) => ({
  name: change.name,
  data: change.data,
  status: 'pending' as const,
  priority: change.priority,
  createdAt: change.now,
});

const within = (at: Date, range: { from?: Date; to?: Date } | undefined): boolean =>
  range === undefined ||
  ((range.from === undefined || at >= range.from) && (range.to === undefined || at <= range.to));

function matches(row: Row, filter: JobFilter): boolean {
  const { ids, name, status, uniqueKey, error } = filter;
  return (
    (ids === undefined || ids.includes(row.id)) &&
    (name === undefined || name.includes(row.name)) &&
    (status === undefined || status.includes(row.status)) &&
    (uniqueKey === undefined || (row.uniqueKey !== undefined && uniqueKey.includes(row.uniqueKey))) &&
    (error === undefined || (row.failReason?.includes(error) ?? false)) &&
    within(row.createdAt, filter.createdAt) &&
    within(row.updatedAt, filter.updatedAt) &&
    within(row.nextRunAt, filter.nextRunAt)
  );
}
