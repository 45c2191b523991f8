/**
 * What the SQL store needs of a database. It knows no driver: src/postgres and src/embedded each bring one.
 *
 * Statements must not depend on how a driver converts values, since a user's transaction may come from any driver. So
 * parameters are texts and numbers, cast in the statement, and every row is one text column, `json`.
 */
import type { Shortage } from '../../store/port.js';

/**
 * A caller's transaction: a client of node-postgres, a transaction of PGlite, an adapter of the caller's own. Which values
 * it takes is up to its driver; the store passes texts, numbers and null only.
 */
export interface SqlTransaction {
  query(
    text: string,
    values?: unknown[],
  ): Promise<{ readonly rows: readonly Readonly<Record<string, unknown>>[] }>;
}

/** Anything that runs a statement of the store. */
export interface Queryable {
  query(
    text: string,
    values?: (string | number | null)[],
  ): Promise<{ readonly rows: readonly Readonly<Record<string, unknown>>[] }>;
}

export interface ListenHandlers {
  readonly message: (payload: string) => void;
  /** The connection is lost, and no more messages will arrive. */
  readonly broken: (error: unknown) => void;
  /** Another connection broke while nothing used it. */
  readonly idle?: (error: unknown) => void;
}

export interface Listening {
  close(): Promise<void>;
}

/** An open database. Each query is a transaction of its own; the statements of a transaction go through its handle. */
export interface Driver extends Queryable {
  /** For frequent statements on few rows: the driver may cache their plans for a while. */
  readonly prepared: Queryable;
  /** For statements that may take long, such as those on a whole table. All others time out. */
  readonly unhurried: Queryable;
  /**
   * For leases: uses a connection that no caller's transaction can occupy. A statement without an answer within the
   * limit is given up, and the next one uses another connection.
   */
  vital(limitMs: number): Queryable;
  /** Runs `work` at READ COMMITTED. Commits if it resolves, rolls back if it rejects. */
  transaction<T>(work: (transaction: Queryable) => Promise<T>, pace?: 'unhurried'): Promise<T>;
  /** Like `transaction`, for a caller's work, which may take long: leaves some connections free for everything else. */
  lend<T>(work: (transaction: Queryable) => Promise<T>): Promise<T>;
  /** Wraps a caller's transaction for statements of the store, which time out. */
  limited(transaction: Queryable): Queryable;
  /** Tells the driver that an instance holds a lease of this length: statements must time out by its end. */
  leaseOf?(leaseMs: number): void;
  /** What is short, such as connections; undefined while nothing is. */
  shortage?(): Shortage | undefined;
  /** Throws if the caller is inside a transaction that occupies the only connection. */
  checkOutside?(): void;
  /** Listens on a channel from when the promise resolves. `unavailable` says why this driver cannot. */
  listen(channel: string, handlers: ListenHandlers): Promise<Listening | { readonly unavailable: string }>;
  close(): Promise<void>;
}
