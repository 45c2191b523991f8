/** Jobs as rows: reading, writing and filtering them. The transitions are in jobs.ts. */
import {
  matchesFields,
  type Claimant,
  type JobFilter,
  type JobRecord,
  type Lease,
  type NewJob,
} from 'tidemill/store';
import { decode, encode, type Row, type SqliteFile } from './database.js';

/** A record that a transition may change, with the one field that records do not show. */
export type Stored = { -readonly [K in keyof JobRecord]: JobRecord[K] } & { expiresAt?: Date };

/** Of these null is a value; every other field is taken off by it. */
const NULL_IS_A_VALUE = ['data', 'result', 'progress', 'lockedAt'];

export const recordOf = ({ expiresAt, ...record }: Stored): JobRecord => record;

/** What a claim writes. */
export const claimFields = ({ instance, token, heartbeatMs }: Claimant, now: Date): object => ({
  status: 'processing',
  claimedBy: instance.instanceId,
  leaseToken: token,
  heartbeatInterval: heartbeatMs,
  lockedAt: now,
  lastHeartbeat: now,
  updatedAt: now,
});

export class JobTable {
  readonly file: SqliteFile;

  constructor(file: SqliteFile) {
    this.file = file;
  }

  select(where: string, ...values: (string | number)[]): Stored[] {
    return this.file.all(`SELECT doc FROM jobs WHERE ${where}`, ...values).map(storedOf);
  }

  get(id: string): Stored | undefined {
    return this.select('id = ?', id)[0];
  }

  /** The job, if the lease still holds it. */
  holding({ id, token }: Lease): Stored | undefined {
    const job = this.get(id);
    return job?.status === 'processing' && (job.leaseToken ?? null) === token ? job : undefined;
  }

  /** The live job that has the unique key. */
  live(name: string, key: string | undefined): Stored | undefined {
    if (key === undefined) return undefined;
    return this.select(`name = ? AND unique_key = ? AND status IN ('pending', 'processing')`, name, key)[0];
  }

  insert({ wake, ownId, claim, ...fields }: NewJob, id: string): Stored {
    const base = { id, key: id, lockedAt: null, failCount: 0, updatedAt: fields.createdAt };
    return this.change({ ...fields, ...base }, claim === undefined ? {} : claimFields(claim, new Date()));
  }

  /** Writes a job with the given fields changed. */
  change(job: Stored, fields: object): Stored {
    const after: Stored = { ...job, ...fields };
    for (const [field, value] of Object.entries(fields))
      if (value === null && !NULL_IS_A_VALUE.includes(field)) Reflect.deleteProperty(after, field);
    const { id, name, status, priority, nextRunAt, uniqueKey, leaseToken, createdAt, updatedAt, expiresAt } =
      after;
    this.file.run(
      `INSERT INTO jobs (id, name, status, priority, due, unique_key, token, created, updated, expires, doc)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
       ON CONFLICT (id) DO UPDATE SET status = excluded.status, due = excluded.due, token = excluded.token,
         updated = excluded.updated, expires = excluded.expires, doc = excluded.doc`,
      id,
      name,
      status,
      priority,
      nextRunAt.getTime(),
      uniqueKey ?? null,
      leaseToken ?? null,
      createdAt.getTime(),
      updatedAt.getTime(),
      expiresAt?.getTime() ?? null,
      encode(after),
    );
    return after;
  }

  /** Reads the jobs that match one by one, as of one moment. */
  *matching(filter: JobFilter, order = 'id', more = '', ...parts: (string | number)[]): Generator<Stored> {
    const { where, values } = conditions(filter);
    const sql = `SELECT doc FROM jobs WHERE ${where} ${more} ORDER BY ${order}`;
    for (const row of this.file.each(sql, ...values, ...parts)) {
      const job = storedOf(row);
      if (matches(filter, job)) yield job;
    }
  }

  remove(job: JobRecord): void {
    this.file.run('DELETE FROM jobs WHERE id = ?', job.id);
  }
}

const storedOf = ({ doc }: Row): Stored => decode(doc ?? null) as Stored;

/** The part of a filter that SQL can decide. */
function conditions(filter: JobFilter): { where: string; values: string[] } {
  const parts: string[] = ['1'];
  const values: string[] = [];
  const lists = { id: filter.ids, name: filter.name, status: filter.status, unique_key: filter.uniqueKey };
  for (const [column, list] of Object.entries(lists)) {
    if (list === undefined) continue;
    parts.push(`${column} IN (SELECT value FROM json_each(?))`);
    values.push(JSON.stringify(list));
  }
  const ranges = { created: filter.createdAt, updated: filter.updatedAt, due: filter.nextRunAt };
  for (const [column, range] of Object.entries(ranges)) {
    if (range?.from !== undefined) parts.push(`${column} >= ${String(range.from.getTime())}`);
    if (range?.to !== undefined) parts.push(`${column} <= ${String(range.to.getTime())}`);
  }
  return { where: parts.join(' AND '), values };
}

/** The rest of it. */
const matches = ({ error, data }: JobFilter, job: JobRecord): boolean =>
  (error === undefined || (job.failReason ?? '').toLowerCase().includes(error.toLowerCase())) &&
  (data === undefined || matchesFields(job.data, data));
