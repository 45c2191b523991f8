import { Client, Pool, type PoolClient } from 'pg';
import { TidemillError } from '../core/errors.js';
import type { Driver, Listening, ListenHandlers, Queryable } from '../sql/driver.js';
import { quoted } from '../sql/names.js';
import { checkedOut } from './checked-out.js';
import { Prepared } from './prepared.js';

/** What is used of a client of node-postgres. */
export interface PostgresClient extends Queryable {
  release(error?: boolean | Error): void;
  on(event: string, listener: (...args: unknown[]) => void): unknown;
  removeListener(event: string, listener: (...args: unknown[]) => void): unknown;
}

/** What is used of a pool of node-postgres. */
export interface PostgresPool extends Queryable {
  connect(): Promise<PostgresClient>;
  /** Where it says how many connections it may have, that is checked. */
  readonly options?: { readonly max?: number };
}

interface Heard {
  readonly channel: string;
  readonly payload?: string;
}

/** A pool of the user's own is never closed. */
export function borrowed(pool: PostgresPool, listenUrl?: string): Driver {
  const listener = listenUrl === undefined ? () => checkedOut(pool) : () => connectAlone(listenUrl);
  return {
    query: (text, values) => pool.query(text, values),
    often: pool,
    transaction: (work) => inTransaction(pool, work),
    listen: async (channel, handlers) => listen(await listener(), channel, handlers),
    close: () => Promise.resolve(),
  };
}

/** A statement that waits for somebody's lock does not hold up the end for longer than this. */
const CLOSE_LIMIT_MS = 5_000;

/** A pool of our own. */
export function opened(url: string, connections: number, listenUrl: string = url): Driver {
  const pool = new Pool({ connectionString: url, max: connections, application_name: 'tidemill' });
  // An idle connection that breaks is replaced with the next query; without a listener it would end the process.
  pool.on('error', () => undefined);
  const busy = new Set<PoolClient>();
  pool.on('acquire', (client) => busy.add(client));
  pool.on('release', (_error, client) => busy.delete(client));
  const close = async (): Promise<void> => {
    // Ending a client that waits for an answer closes its connection.
    const cutOff = (): void => busy.forEach((client) => void endOf(client).catch(() => undefined));
    const limit = setTimeout(cutOff, CLOSE_LIMIT_MS);
    await pool.end().finally(() => clearTimeout(limit));
  };
  return { ...borrowed(pool, listenUrl), often: new Prepared(pool), close };
}

/** The client of a pool has it, too; its type does not say so. */
const endOf = (client: PoolClient): Promise<void> => (client as unknown as Client).end();

/** A connection outside the pool: one that listens would be missing there. */
async function connectAlone(url: string): Promise<PostgresClient> {
  const client = new Client({
    connectionString: url,
    application_name: 'tidemill listener',
    keepAlive: true,
  });
  client.on('error', () => undefined);
  await client.connect();
  const release = (): void => void client.end().catch(() => undefined);
  return Object.assign(client, { release });
}

async function inTransaction<T>(
  pool: PostgresPool,
  work: (transaction: Queryable) => Promise<T>,
): Promise<T> {
  let broken: Error | undefined;
  const onError = (error: unknown): void => void (broken = error as Error);
  const client = await checkedOut(pool, onError);
  try {
    await client.query('begin isolation level read committed');
    const answer = await work(client);
    await commit(client);
    return answer;
  } catch (error) {
    await client.query('rollback').catch((failure: unknown) => (broken = failure as Error));
    throw error;
  } finally {
    client.removeListener('error', onError);
    client.release(broken);
  }
}

/** A transaction in which a statement has failed answers a commit with a rollback, and no error. */
async function commit(client: PostgresClient): Promise<void> {
  const { command } = (await client.query('commit')) as { readonly command?: string };
  if (command === 'ROLLBACK')
    throw new TidemillError(
      'TRANSACTION_FAILED',
      'A statement of this transaction had failed, so nothing of it was written; let its error through.',
    );
}

async function listen(client: PostgresClient, channel: string, handlers: ListenHandlers): Promise<Listening> {
  let open = true;
  const onMessage = (heard: unknown): void => {
    const { channel: on, payload = '' } = heard as Heard;
    if (open && on === channel) handlers.message(payload);
  };
  const end = (error?: unknown): void => {
    if (!open) return;
    open = false;
    client.removeListener('notification', onMessage);
    // Destroyed and not given back: a connection that listens must not serve anybody else.
    client.release(error instanceof Error ? error : true);
  };
  const onBroken = (error?: unknown): void => {
    if (!open) return;
    end(error);
    handlers.broken(error ?? new Error('the listening connection was closed'));
  };
  client.on('notification', onMessage);
  client.on('error', onBroken);
  client.on('end', onBroken);
  try {
    await client.query(`listen ${quoted(channel)}`);
  } catch (error) {
    end();
    throw error;
  }
  return {
    close: () => {
      end();
      return Promise.resolve();
    },
  };
}
