import { Client, Pool, type PoolClient, type PoolConfig } from 'pg';
import type { PostgresClient } from './client.js';

/** A statement that waits for somebody's lock does not hold up the end for longer than this. */
const CLOSE_LIMIT_MS = 5_000;

/** What all connections of our own have: one that the network dropped is noticed, and a server that is gone is not waited for. */
const ALIVE = {
  keepAlive: true,
  keepAliveInitialDelayMillis: 10_000,
  connectionTimeoutMillis: 10_000,
} as const;

/** A pool that the library opens and closes. */
export function ownPool(config: PoolConfig): { readonly pool: Pool; readonly end: () => Promise<void> } {
  const pool = new Pool(Object.assign(config, ALIVE));
  // An idle connection that breaks is replaced with the next query; without a listener it would end the process.
  pool.on('error', () => undefined);
  const busy = new Set<PoolClient>();
  pool.on('acquire', (client) => busy.add(client));
  pool.on('release', (_error, client) => busy.delete(client));
  const end = async (): Promise<void> => {
    // Ending a client that waits for an answer closes its connection.
    const cutOff = (): void => busy.forEach((client) => void endOf(client).catch(() => undefined));
    const limit = setTimeout(cutOff, CLOSE_LIMIT_MS);
    await pool.end().finally(() => clearTimeout(limit));
  };
  return { pool, end };
}

/** The client of a pool has it, too; its type does not say so. */
const endOf = (client: PoolClient): Promise<void> => (client as unknown as Client).end();

/** A connection outside any pool, to a server that is reached in another way. */
export async function connectAlone(url: string): Promise<PostgresClient> {
  const client = new Client({ connectionString: url, application_name: 'tidemill listener', ...ALIVE });
  client.on('error', () => undefined);
  await client.connect();
  const release = (): void => void client.end().catch(() => undefined);
  return Object.assign(client, { release });
}
