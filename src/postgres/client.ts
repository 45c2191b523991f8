import type { Queryable } from '../sql/connection/driver.js';

/** What is used of a client of node-postgres. */
export interface PostgresClient extends Queryable {
  release(error?: boolean | Error): void;
  on(event: string, listener: (...args: unknown[]) => void): unknown;
  removeListener(event: string, listener: (...args: unknown[]) => void): unknown;
}

/** What is used of a pool of node-postgres. */
export interface PostgresPool extends Queryable {
  connect(): Promise<PostgresClient>;
  /** How it was made. Connections for leases and wake-ups are made in the same way, beside the pool. */
  readonly options?: { readonly max?: number };
  readonly totalCount?: number;
  readonly idleCount?: number;
}
