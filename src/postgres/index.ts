/** The PostgreSQL store: PostgreSQL 14 or newer, over node-postgres. */
import { PostgresStore, type PostgresOptions } from './store.js';

export function postgres(options: PostgresOptions): PostgresStore {
  return new PostgresStore(options);
}

export { PostgresStore, type PostgresOptions };
export type { PostgresClient, PostgresPool } from './client.js';
export type { SqlFragment } from '../core/text/sql-fragment.js';
// `Queryable` is its earlier name.
export type { SqlTransaction, SqlTransaction as Queryable } from '../sql/connection/driver.js';
export { sql, type SqlValue } from '../sql/tables/fragment.js';
