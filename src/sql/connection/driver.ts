/**
 * What the SQL store needs of a database. It knows no driver: src/postgres and src/embedded each bring one.
 *
 * Statements must not depend on how a driver converts values, since a user's transaction may come from any of them:
 * parameters are texts and numbers, cast in the statement, and every row is one text column, `json`.
 */
import type { Shortage } from '../../store/port.js';

/** Anything that answers a statement: a client of node-postgres, a transaction of PGlite, an adapter of your own. */
export interface Queryable {
  query(
    text: string,
    values?: (string | number | null)[],
  ): Promise<{ readonly rows: readonly Readonly<Record<string, unknown>>[] }>;
}

export interface ListenHandlers {
  readonly message: (payload: string) => void;
  /** The connection is gone; nothing more will be heard. */
  readonly broken: (error: unknown) => void;
}

export interface Listening {
  close(): Promise<void>;
}

/** An open database. A query is a statement by itself; those of a transaction go through its own handle. */
export interface Driver extends Queryable {
  /** The same for statements on few rows that are asked again and again: their plan may be kept for a while. */
  readonly prepared: Queryable;
  /** For statements that may take long, such as those on a whole table. All others are given up after a while. */
  readonly unhurried: Queryable;
  /**
   * For leases: on a connection that no caller's transaction can take. What is not answered within the limit is given up,
   * and the next statement goes to another connection.
   */
  vital(limitMs: number): Queryable;
  /** Runs `work` at READ COMMITTED; commits where it resolves, rolls back where it rejects. */
  transaction<T>(work: (transaction: Queryable) => Promise<T>, pace?: 'unhurried'): Promise<T>;
  /** The same for work of a caller's, which may last: it leaves some connections for all else. */
  lend<T>(work: (transaction: Queryable) => Promise<T>): Promise<T>;
  /** A caller's transaction for statements of ours, which are given up after a while. */
  limited(transaction: Queryable): Queryable;
  /** Somebody lives by a lease of this length: statements are given up by its end. */
  leaseOf?(leaseMs: number): void;
  /** What there is too little of; undefined while there is enough. */
  shortage?(): Shortage | undefined;
  /** Throws inside a transaction, where it is the only connection that there is. */
  checkOutside?(): void;
  /** Hears a channel once it resolves. `unavailable` says why there is nothing to hear. */
  listen(channel: string, handlers: ListenHandlers): Promise<Listening | { readonly unavailable: string }>;
  close(): Promise<void>;
}
