/** The file, its tables, and how values are written. Everything here is synchronous, as SQLite is. */
import { StoreError } from 'tidemill';
import sqlite, { type Database } from 'node-sqlite3-wasm';

type Value = string | number | null;
export type Row = Readonly<Record<string, Value>>;

/** `doc` has the whole record; the other columns are what statements search and sort by. Times are milliseconds. */
const SCHEMA = `
  CREATE TABLE IF NOT EXISTS jobs (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, status TEXT NOT NULL, priority INTEGER NOT NULL, due INTEGER NOT NULL,
    unique_key TEXT, token TEXT, created INTEGER NOT NULL, updated INTEGER NOT NULL, expires INTEGER,
    doc TEXT NOT NULL
  );
  CREATE UNIQUE INDEX IF NOT EXISTS jobs_live ON jobs (name, unique_key) WHERE status IN ('pending', 'processing');
  CREATE INDEX IF NOT EXISTS jobs_due ON jobs (name, status, priority DESC, due, id);
  CREATE INDEX IF NOT EXISTS jobs_held ON jobs (token) WHERE status = 'processing';
  CREATE INDEX IF NOT EXISTS jobs_expired ON jobs (expires) WHERE expires IS NOT NULL;
  CREATE TABLE IF NOT EXISTS paused (name TEXT PRIMARY KEY);
  CREATE TABLE IF NOT EXISTS instances (
    life TEXT PRIMARY KEY, instance_id TEXT NOT NULL, lease_until INTEGER NOT NULL, dead INTEGER NOT NULL,
    doc TEXT NOT NULL
  );
  CREATE TABLE IF NOT EXISTS locks (
    key TEXT PRIMARY KEY, token TEXT NOT NULL, instance_id TEXT NOT NULL, lease_until INTEGER NOT NULL,
    fence INTEGER NOT NULL
  );`;

export class SqliteFile {
  readonly #path: string;
  #database: Database | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  open(): void {
    if (this.#database !== undefined) return;
    const database = new sqlite.Database(this.#path);
    database.exec(`PRAGMA busy_timeout = 2000; ${SCHEMA}`);
    this.#database = database;
  }

  close(): void {
    this.#database?.close();
    this.#database = undefined;
  }

  all(sql: string, ...values: Value[]): Row[] {
    return this.#open().all(sql, values) as Row[];
  }

  /** Reads rows one by one, as of one moment. */
  *each(sql: string, ...values: Value[]): Generator<Row> {
    const statement = this.#open().prepare(sql);
    try {
      yield* statement.iterate(values) as Iterable<Row>;
    } finally {
      statement.finalize();
    }
  }

  /** Returns how many rows the statement has changed. */
  run(sql: string, ...values: Value[]): number {
    return this.#open().run(sql, values).changes;
  }

  /**
   * Runs a transition. BEGIN IMMEDIATE takes the lock for writing first: what `work` reads is still true when it
   * writes, whichever process wrote before. So the precondition is inside the write.
   */
  async write<T>(work: () => T): Promise<T> {
    const database = this.#open();
    try {
      database.exec('BEGIN IMMEDIATE');
    } catch (cause) {
      throw new StoreError('sqlite: another process is writing to the file', { cause, transient: true });
    }
    try {
      const answer = work();
      database.exec('COMMIT');
      return answer;
    } catch (error) {
      if (database.inTransaction) database.exec('ROLLBACK');
      throw error;
    }
  }

  #open(): Database {
    if (this.#database === undefined)
      throw new StoreError('sqlite: the store is closed', { transient: true });
    return this.#database;
  }
}

const MARK = '\0';

/** JSON with dates: a date is a text that begins with a mark, and a text that begins with one gets another. */
export const encode = (value: unknown): string =>
  JSON.stringify(value, function (this: Record<string, unknown>, key, json: unknown) {
    const raw = this[key];
    if (raw instanceof Date) return `${MARK}d${String(raw.getTime())}`;
    return typeof raw === 'string' && raw.startsWith(MARK) ? MARK + raw : json;
  });

export const decode = (text: Value | undefined): unknown =>
  JSON.parse(String(text), (_key, value: unknown) => {
    if (typeof value !== 'string' || !value.startsWith(MARK)) return value;
    return value.startsWith(MARK + MARK) ? value.slice(1) : new Date(Number(value.slice(2)));
  });

export const unsupported = (what: string) => (): Promise<never> =>
  Promise.reject(new StoreError(`sqlite: this store has no ${what}.`));
