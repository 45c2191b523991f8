/** Facts about reactive tasks that hold on every store whose data can be watched: each yard is a database of a test's own. */
import { randomBytes } from 'node:crypto';
import { MongoClient } from 'mongodb';
import pg from 'pg';
import { describe, inject, onTestFinished } from 'vitest';
import type { TaskStatus, Tidemill, TidemillOptions } from '../../../src/index.js';
import { mongodb } from '../../../src/mongodb/index.js';
import { postgres } from '../../../src/postgres/index.js';
import type { Store } from '../../../src/store/port.js';
import { aMill } from '../../support/mills.js';
import { plannedUpTo, reaches } from '../beacons.js';
import { freshEmbedded, freshUri, sharedEmbedded, useEmbedded } from '../../support/stores.js';

/** What the watched rows and documents may have. */
interface Thing {
  readonly _id: number;
  readonly n?: number | null;
  readonly other?: number | null;
  readonly status?: string | null;
}

interface Things {
  insertOne(thing: Thing): Promise<unknown>;
  insertMany(things: readonly Thing[]): Promise<unknown>;
  updateOne(which: { readonly _id: number }, change: { readonly $set: Partial<Thing> }): Promise<unknown>;
  deleteOne(which: { readonly _id: number }): Promise<unknown>;
}

/** A stored task by the names of its fields in the documentation, with what only the stores use. */
type StoredTask = Record<string, unknown> & { readonly status: TaskStatus };

interface Database {
  readonly docs: Things;
  readonly store: () => Store;
  readonly beacon: (id: string) => Promise<unknown>;
  readonly tasks: () => Promise<readonly StoredTask[]>;
  /** Makes every task of this name due long ago. */
  readonly makeDue: (task: string) => Promise<unknown>;
}

export interface Yard extends Pick<Database, 'docs' | 'tasks' | 'makeDue'> {
  /** An instance of its own. */
  readonly mill: (options?: Partial<TidemillOptions>) => Tidemill;
  /** The stored task of one document, as it is. */
  readonly raw: (task: string, id: unknown) => Promise<StoredTask | undefined>;
  readonly count: (which: Partial<StoredTask>) => Promise<number>;
  /** Waits until a task is in a state. */
  readonly reaches: typeof reaches;
  /** The tasks that are held back in the whole cluster. */
  readonly paused: () => Promise<ReadonlySet<string>>;
  /** Waits until the planner has seen everything that was written before. */
  readonly planned: () => Promise<void>;
}

const unique = (): string => `data_${randomBytes(6).toString('hex')}`;

async function mongodbDatabase(): Promise<Database> {
  const client = new MongoClient(freshUri());
  onTestFinished(() => client.close());
  const stored = client.db().collection('things_tasks');
  const beacons = client.db().collection('beacons_tasks');
  return Promise.resolve({
    docs: client.db().collection<Thing & { _id: number }>('things'),
    store: () => mongodb({ client }),
    beacon: (id) => client.db().collection<{ _id: string }>('beacons').insertOne({ _id: id }),
    tasks: async () =>
      [...(await stored.find().toArray()), ...(await beacons.find().toArray())] as unknown as StoredTask[],
    makeDue: (task) => stored.updateMany({ task }, { $set: { scheduledAt: new Date(0) } }),
  });
}

type Ask = (text: string, values?: unknown[]) => Promise<{ readonly rows: Record<string, unknown>[] }>;

const camelCase = (column: string): string =>
  column.replaceAll(/_(?<letter>[a-z])/gu, (_match, letter: string) => letter.toUpperCase());

const stored = (row: Record<string, unknown>): StoredTask =>
  Object.fromEntries(
    Object.entries(row)
      .filter(([, value]) => value !== null)
      .map(([column, value]) => [camelCase(column), value]),
  ) as unknown as StoredTask;

/** Two tables in a schema that is first on the search path, and a schema of Tidemill's own. */
async function sqlDatabase(ask: Ask, data: string, tidemill: string, store: () => Store): Promise<Database> {
  await ask(`create schema ${data}`);
  await ask(`create table ${data}.things (_id integer primary key, n integer, other integer, status text)`);
  await ask(`create table ${data}.beacons (_id text primary key)`);
  const columns = (thing: object): string[] => Object.keys(thing);
  const insert = (thing: Thing): Promise<unknown> =>
    ask(
      `insert into ${data}.things (${columns(thing).join(', ')}) values (${columns(thing)
        .map((_, at) => `$${at + 1}`)
        .join(', ')})`,
      Object.values(thing) as unknown[],
    );
  return {
    store,
    docs: {
      insertOne: insert,
      insertMany: (things) =>
        ask(
          `insert into ${data}.things select * from json_populate_recordset(null::${data}.things, $1::json)`,
          [JSON.stringify(things)],
        ),
      updateOne: ({ _id }, { $set }) =>
        ask(
          `update ${data}.things set ${columns($set)
            .map((column, at) => `${column} = $${at + 2}`)
            .join(', ')} where _id = $1`,
          [_id, ...(Object.values($set) as unknown[])],
        ),
      deleteOne: ({ _id }) => ask(`delete from ${data}.things where _id = $1`, [_id]),
    },
    beacon: (id) => ask(`insert into ${data}.beacons values ($1)`, [id]),
    tasks: async () => (await ask(`select * from ${tidemill}.tasks`)).rows.map(stored),
    makeDue: (task) => ask(`update ${tidemill}.tasks set scheduled_at = 'epoch' where task = $1`, [task]),
  };
}

async function postgresDatabase(): Promise<Database> {
  const [data, schema] = [unique(), unique()];
  const url = `${inject('postgresUrl')}?options=${encodeURIComponent(`-c search_path=${data}`)}`;
  const pool = new pg.Pool({ connectionString: url, max: 4 });
  onTestFinished(() => pool.end());
  return sqlDatabase(
    (text, values) => pool.query(text, values),
    data,
    schema,
    () => postgres({ url, schema, connections: 4 }),
  );
}

async function embeddedDatabase(): Promise<Database> {
  const [data, schema] = [unique(), unique()];
  const database = sharedEmbedded();
  await database.query(`select set_config('search_path', $1, false)`, [data]);
  // One process has one store object: a second one would be another instance on the same connection.
  const store = freshEmbedded({ schema });
  return sqlDatabase(
    (text, values) => database.query(text, values),
    data,
    schema,
    () => store,
  );
}

async function open(database: () => Promise<Database>): Promise<Yard> {
  const { docs, tasks, makeDue, store, beacon } = await database();
  const matches = (task: StoredTask, which: Partial<StoredTask>): boolean =>
    Object.entries(which).every(([field, value]) => task[field] === value);
  return {
    docs,
    tasks,
    makeDue,
    mill: (options) => aMill(store(), options),
    raw: async (task, id) => (await tasks()).find((one) => matches(one, { task, sourceDocId: id })),
    count: async (which) => (await tasks()).filter((one) => matches(one, which)).length,
    reaches,
    paused: async () => {
      const [eye, holder] = [store(), {}];
      await eye.acquire(holder);
      try {
        const look = await eye.reactive?.tasks(() => new Map()).look([]);
        return look?.cluster.paused ?? new Set();
      } finally {
        await eye.release(holder);
      }
    },
    planned: plannedUpTo({
      light: beacon,
      isSeen: async (id) => (await tasks()).some((one) => matches(one, { task: 'beacon', sourceDocId: id })),
    }),
  };
}

/** Runs the same facts on every store whose data can be watched. */
export function eachYard(what: string, facts: (yard: () => Promise<Yard>) => void): void {
  describe(`${what} (mongodb)`, () => facts(() => open(mongodbDatabase)));
  describe(`${what} (postgres)`, () => facts(() => open(postgresDatabase)));
  describe(`${what} (embedded)`, () => {
    useEmbedded();
    facts(() => open(embeddedDatabase));
  });
}
