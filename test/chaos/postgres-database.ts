import type { PostgresServer } from '@tidemill/servers';
import pg from 'pg';
import { postgres } from '../../src/postgres/index.js';
import { FreezingProxy } from './freezing-proxy.js';
import {
  inTurn,
  OUTAGE_MS,
  random,
  sleep,
  type ChaosDatabase,
  type Harm,
  type Harms,
} from './chaos-database.js';
import { limited } from './limits.js';

/** Small enough that another program can take what is left. */
export const POSTGRES_SETTINGS = { max_connections: '60' } as const;
const LEFT_OVER = 3;
const HELD_MS = 2_500;
/** A server that accepts connections but does not answer must not hold up the next fault. */
const ANSWER_MS = 30_000;
const GOODBYE_MS = 5_000;

/**
 * PostgreSQL. Connections are ended, frozen and exhausted, rows and old snapshots are held, and the server is killed,
 * for moments and for longer than a lease.
 */
export async function postgresDatabase(server: PostgresServer): Promise<ChaosDatabase> {
  const name = `chaos_${String(Date.now())}`;
  const address = server.url.replace(/postgres$/u, name);
  await withClient(server.url, (client) => client.query(`create database ${name}`));
  await withClient(address, (client) =>
    client.query(`create table effects (what text);
      create table docs (_id integer primary key, version bigint not null, active boolean not null)`),
  );
  const at = new URL(address);
  const proxy = await FreezingProxy.before({ host: at.hostname, port: Number(at.port) });
  at.host = proxy.host;
  return {
    address: at.href,
    direct: address,
    open: () => postgres({ url: address }),
    harm: (harm) => harmServer(server, address, proxy, harm),
    effects: () =>
      withClient(address, async (client) => {
        const { rows } = await client.query<{ what: string }>('select what from effects');
        return rows.map(({ what }) => what);
      }),
    clear: async () => {
      proxy.close();
      await withClient(server.url, (client) => client.query(`drop database ${name} with (force)`));
    },
  };
}

async function connected(url: string): Promise<pg.Client> {
  const client = new pg.Client({
    connectionString: url,
    connectionTimeoutMillis: ANSWER_MS,
    query_timeout: ANSWER_MS,
  });
  // This connection may be ended together with all the others.
  client.on('error', () => undefined);
  await client.connect();
  return client;
}

const ended = (client: pg.Client): Promise<void> =>
  limited('the end of a connection', client.end(), GOODBYE_MS).catch(() => undefined);

async function withClient<T>(url: string, work: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = await connected(url);
  try {
    return await work(client);
  } finally {
    await ended(client);
  }
}

const KILLS: readonly string[] = ['server killed', 'outage'];

/** A fault that runs into another fault's effects may fail itself. */
async function harmServer(
  server: PostgresServer,
  url: string,
  proxy: FreezingProxy,
  harm: Harm,
): Promise<void> {
  const snapshot = holdSnapshot(url, harm.going);
  const harms: Harms = [
    ['connections ended', () => onOthers(url, 'pg_terminate_backend', 0.7)],
    ['rows held', () => holdRows(url)],
    ['queries cancelled', () => onOthers(url, 'pg_cancel_backend', 1)],
    ['connections used up', () => useUp(url)],
    ['server killed', () => kill(server, random(2_500))],
    ['connections frozen', async () => proxy.freeze()],
    ['outage', () => kill(server, OUTAGE_MS)],
  ];
  await inTurn(
    harms,
    harm,
    () => 500 + random(1_000),
    (what, error) => {
      // Without its server there is nothing left to harm, or to wait for.
      if (KILLS.includes(what)) throw error;
    },
  );
  await limited('the old snapshot to be let go', snapshot);
}

/** A transaction that stays open keeps vacuum from removing rows that die after it began. */
async function holdSnapshot(url: string, going: () => boolean): Promise<void> {
  while (going()) {
    await withClient(url, async (client) => {
      await client.query('begin isolation level repeatable read');
      while (going()) {
        await client.query('select count(*) from effects');
        await sleep(500);
      }
    }).catch(() => sleep(200));
  }
}

const onOthers = (url: string, what: string, share: number): Promise<unknown> =>
  withClient(url, (client) =>
    client.query(
      `select ${what}(pid) from pg_stat_activity
       where datname = current_database() and pid <> pg_backend_pid() and random() < $1`,
      [share],
    ),
  );

/** As a user's transaction might. */
const holdRows = (url: string): Promise<unknown> =>
  withClient(url, async (client) => {
    await client.query('begin');
    for (const work of ['jobs', 'tasks'])
      await client.query(
        `select from tidemill.${work} where status in ('pending', 'processing') and random() < 0.3
         for update skip locked`,
      );
    await sleep(HELD_MS);
    await client.query('rollback');
  });

/** Another program takes all but a few connections, and clients that lost theirs must find another. */
async function useUp(url: string): Promise<void> {
  const hog: pg.Client[] = [];
  const take = async (): Promise<void> => {
    for (;;) hog.push(await connected(url));
  };
  await take().catch(() => undefined);
  try {
    await Promise.all(hog.splice(0, LEFT_OVER).map(ended));
    const own = `select pg_terminate_backend(pid) from pg_stat_activity
      where datname = current_database() and application_name <> '' and random() < 0.5`;
    await hog[0]?.query(own);
    await take().catch(() => undefined);
    await Promise.all(hog.splice(0, LEFT_OVER).map(ended));
    await sleep(HELD_MS);
  } finally {
    await Promise.all(hog.map(ended));
  }
}

async function kill(server: PostgresServer, downMs: number): Promise<void> {
  server.kill('SIGKILL');
  await sleep(downMs);
  await limited('PostgreSQL to start again', server.restart());
}
