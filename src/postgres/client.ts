import type { Queryable } from '../sql/connection/driver.js';

/** The part of a node-postgres client that the store uses. */
export interface PostgresClient extends Queryable {
  release(error?: boolean | Error): void;
  on(event: string, listener: (...args: unknown[]) => void): unknown;
  removeListener(event: string, listener: (...args: unknown[]) => void): unknown;
}

/** The part of a node-postgres pool that the store uses. */
export interface PostgresPool extends Queryable {
  connect(): Promise<PostgresClient>;
  /** The settings of the pool. Connections for leases and wake-ups are opened beside it, with the same settings. */
  readonly options?: { readonly max?: number };
  readonly totalCount?: number;
  readonly idleCount?: number;
}
