/** The embedded store: PostgreSQL inside this process, in a folder or in memory. */
import { EmbeddedStore, type EmbeddedOptions } from './store.js';

export function embedded(options: EmbeddedOptions = {}): EmbeddedStore {
  return new EmbeddedStore(options);
}

export { EmbeddedStore, type EmbeddedOptions };
export type { EmbeddedDatabase } from './driver.js';
export type { SqlFragment } from '../core/text/sql-fragment.js';
// `Queryable` is its earlier name.
export type { SqlTransaction, SqlTransaction as Queryable } from '../sql/connection/driver.js';
export { sql, type SqlValue } from '../sql/tables/fragment.js';
