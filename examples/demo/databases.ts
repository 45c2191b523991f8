import { fileURLToPath } from 'node:url';
import { MongoClient } from 'mongodb';
import pg from 'pg';
import { Tidemill, type Store } from 'tidemill';
import { embedded } from 'tidemill/embedded';
import { memory } from 'tidemill/memory';
import { mongodb } from 'tidemill/mongodb';
import { postgres } from 'tidemill/postgres';

/** What the demo must know of a kind of database. `space` is a database or a schema of the demo's own. */
export interface Database {
  /** What the screen calls it. */
  readonly title: string;
  /** It lives inside the process that opens it, and no other can reach it. */
  readonly inProcess: boolean;
  readonly store: (url: string, space: string) => Store;
  /** Rejects where nobody answers. */
  readonly reach: (url: string) => Promise<unknown>;
  readonly drop: (url: string, space: string) => Promise<unknown>;
}

const PATIENCE_MS = 5_000;
const nothing = (): Promise<void> => Promise.resolve();

const mongo: Database = {
  title: 'MongoDB',
  inProcess: false,
  store: (uri, database) => mongodb({ uri, database }),
  reach: (url) => withMongo(url, (client) => client.db('admin').command({ ping: 1 })),
  drop: (url, space) => withMongo(url, (client) => client.db(space).dropDatabase()),
};

const postgresql: Database = {
  title: 'PostgreSQL',
  inProcess: false,
  store: (url, schema) => postgres({ url, schema, connections: 4 }),
  reach: (url) => withPostgres(url, (client) => client.query('select 1')),
  drop: (url, space) => withPostgres(url, (client) => client.query(dropSchema(space))),
};

const inFolder: Database = {
  title: 'the embedded store, PostgreSQL inside this process',
  inProcess: true,
  store: (url, schema) => embedded({ dir: folderOf(url), schema }),
  reach: nothing,
  drop: async (url, schema) => {
    await using mill = new Tidemill({ store: embedded({ dir: folderOf(url), schema }) });
    await mill.withTransaction((transaction) => transaction.query(dropSchema(schema)));
  },
};

const inMemory: Database = {
  title: 'the embedded store, PostgreSQL inside this process',
  inProcess: true,
  store: () => embedded(),
  reach: nothing,
  drop: nothing,
};

const memoryOnly: Database = {
  title: 'the memory store',
  inProcess: true,
  store: () => memory(),
  reach: nothing,
  drop: nothing,
};

const byScheme: Readonly<Record<string, Database>> = {
  embedded: inMemory,
  memory: memoryOnly,
  file: inFolder,
  mongodb: mongo,
  'mongodb+srv': mongo,
  postgres: postgresql,
  postgresql,
};

/** Undefined where no store knows such a URL. */
export function databaseAt(url: string): Database | undefined {
  const scheme = /^([a-z+]+):/u.exec(url)?.[1] ?? '';
  return Object.hasOwn(byScheme, scheme) ? byScheme[scheme] : undefined;
}

/** Of a `file:` URL. */
const folderOf = (url: string): string =>
  url.startsWith('file://') ? fileURLToPath(url) : url.slice('file:'.length);

const dropSchema = (name: string): string => `drop schema if exists "${name}" cascade`;

async function withMongo(url: string, use: (client: MongoClient) => Promise<unknown>): Promise<void> {
  await using client = new MongoClient(url, { serverSelectionTimeoutMS: PATIENCE_MS });
  await use(client);
}

async function withPostgres(url: string, use: (client: pg.Client) => Promise<unknown>): Promise<void> {
  const client = new pg.Client({ connectionString: url, connectionTimeoutMillis: PATIENCE_MS });
  await client.connect();
  try {
    await use(client);
  } finally {
    await client.end();
  }
}
