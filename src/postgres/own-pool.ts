import { Client, Pool, type PoolClient, type PoolConfig } from 'pg';
import type { PostgresClient } from './client.js';

/** Closing waits no longer than this for a running statement, which may itself wait for a lock. */
const CLOSE_LIMIT_MS = 5_000;

/**
 * Settings of all connections that the store opens: detect one that the network dropped, and do not wait for a server
 * that is gone.
 */
const ALIVE = {
  keepAlive: true,
  keepAliveInitialDelayMillis: 10_000,
  connectionTimeoutMillis: 10_000,
} as const;

/** A pool that the library opens and closes. */
export function ownPool(config: PoolConfig): { readonly pool: Pool; readonly end: () => Promise<void> } {
  const pool = new Pool(Object.assign(config, ALIVE));
  // The next query replaces an idle connection that broke; without a listener, the error would end the process.
  pool.on('error', () => undefined);
  const busy = new Set<PoolClient>();
  pool.on('acquire', (client) => busy.add(client));
  pool.on('release', (_error, client) => busy.delete(client));
  const end = async (): Promise<void> => {
    // Ending a client that waits for a response closes its connection.
    const cutOff = (): void => busy.forEach((client) => void endOf(client).catch(() => undefined));
    const limit = setTimeout(cutOff, CLOSE_LIMIT_MS);
    await pool.end().finally(() => clearTimeout(limit));
  };
  return { pool, end };
}

/** A client of a pool has `end`, too, although its type does not say so. */
const endOf = (client: PoolClient): Promise<void> => (client as unknown as Client).end();

/** Opens a connection outside any pool, to reach the server in another way than the pool does. */
export async function connectAlone(url: string): Promise<PostgresClient> {
  const client = new Client({ connectionString: url, application_name: 'tidemill listener', ...ALIVE });
  client.on('error', () => undefined);
  await client.connect();
  const release = (): void => void client.end().catch(() => undefined);
  return Object.assign(client, { release });
}
