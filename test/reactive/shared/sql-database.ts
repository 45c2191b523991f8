import { randomBytes } from 'node:crypto';
import pg from 'pg';
import { inject, onTestFinished } from 'vitest';
import { postgres, sql } from '../../../src/postgres/index.js';
import type { Store } from '../../../src/store/port.js';
import { handlerGrant } from '../../support/rights.js';
import { freshEmbedded, freshSchema, grantTable, sharedEmbedded } from '../../support/stores.js';
import { addressOf } from './store-at.js';
import type { Database, StoredTask, Thing, Things } from './test-databases.js';

type Ask = (text: string, values?: unknown[]) => Promise<{ readonly rows: Record<string, unknown>[] }>;

const unique = (): string => `data_${randomBytes(6).toString('hex')}`;

const camelCase = (column: string): string =>
  column.replaceAll(/_(?<letter>[a-z])/gu, (_match, letter: string) => letter.toUpperCase());
const snakeCase = (field: string): string =>
  field.replaceAll(/[A-Z]/gu, (letter) => `_${letter.toLowerCase()}`);

const stored = (row: Record<string, unknown>): StoredTask =>
  Object.fromEntries(
    Object.entries(row)
      .filter(([, value]) => value !== null)
      .map(([column, value]) => [camelCase(column), value]),
  ) as unknown as StoredTask;

const rowOf = (task: StoredTask): object => ({
  key: JSON.stringify([String(task['sourceDocId'])]),
  touched: false,
  overtaken: false,
  unplannable: false,
  ...Object.fromEntries(Object.entries(task).map(([field, value]) => [snakeCase(field), value])),
});

function things(ask: Ask, table: string): Things {
  const insertMany = (rows: readonly Thing[]): Promise<unknown> =>
    ask(`insert into ${table} select * from json_populate_recordset(null::${table}, $1::json)`, [
      JSON.stringify(rows),
    ]);
  return {
    insertMany,
    insertOne: (row) => insertMany([row]),
    updateOne: ({ _id }, { $set }) => {
      const changes = Object.keys($set).map((column, at) => `${column} = $${String(at + 2)}`);
      const values = Object.entries($set).map(([field, value]): unknown =>
        field === 'info' ? JSON.stringify(value) : value,
      );
      return ask(`update ${table} set ${changes.join(', ')} where _id = $1`, [_id, ...values]);
    },
    deleteOne: ({ _id }) => ask(`delete from ${table} where _id = $1`, [_id]),
  };
}

/** Three tables in a schema that is first on the search path, and a separate schema for Tidemill. */
async function sqlDatabase(ask: Ask, data: string, tidemill: string, store: () => Store): Promise<Database> {
  await ask(`create schema ${data}`);
  for (const table of ['things', 'others'])
    await ask(
      `create table ${data}.${table} (_id integer primary key, n integer, other integer, status text, until timestamptz, info jsonb)`,
    );
  await ask(`create table ${data}.probes (_id text primary key)`);
  await ask(
    `create function ${data}.goes(status text) returns boolean language sql as 'select status = ''go'''`,
  );
  return {
    store,
    sourceName: `${data}.things`,
    docs: things(ask, `${data}.things`),
    others: things(ask, `${data}.others`),
    probe: (id) => ask(`insert into ${data}.probes values ($1)`, [id]),
    ids: async (collection) => {
      const { rows } = await ask(`select _id from ${data}.${collection} order by _id`);
      return rows.map(({ _id }) => Number(_id));
    },
    conflict: () => Object.assign(new Error('passing'), { code: '40001' }),
    tasks: async () => (await ask(`select * from ${tidemill}.tasks`)).rows.map(stored),
    unplanned: async () => {
      const { rows } = await ask(`select from ${tidemill}.changes where key = '["1"]'`);
      return rows.length;
    },
    putTasks: (tasks) =>
      ask(
        `insert into ${tidemill}.tasks select * from json_populate_recordset(null::${tidemill}.tasks, $1::json)`,
        [JSON.stringify(tasks.map(rowOf))],
      ),
    deleteTasks: (task, ids) =>
      ask(`delete from ${tidemill}.tasks where task = $1 and source_doc_id = any($2::jsonb[])`, [task, ids]),
    amendTasks: (task, fields) => {
      const changes = Object.keys(fields).map((field, at) => `${snakeCase(field)} = $${String(at + 2)}`);
      const text = `update ${tidemill}.tasks set ${changes.join(', ')} where task = $1`;
      return ask(text, [task, ...Object.values(fields)]);
    },
    fragile: {
      filter: sql`goes(status)`,
      spoil: async () => {
        await ask(`alter function ${data}.goes(text) rename to went`);
        return () => ask(`alter function ${data}.went(text) rename to goes`);
      },
    },
    filters: {
      notOver: sql`until > statement_timestamp()`,
      over: sql`until <= statement_timestamp()`,
      failing: sql`1 / other > 0`,
    },
  };
}

export async function postgresDatabase(): Promise<Database> {
  const [data, schema] = [unique(), freshSchema()];
  const options = `?options=${encodeURIComponent(`-c search_path=${data}`)}`;
  const url = `${inject('postgresStoreUrl')}${options}`;
  const pool = new pg.Pool({ connectionString: `${inject('postgresUrl')}${options}`, max: 4 });
  onTestFinished(() => pool.end());
  const database = await sqlDatabase(
    (text, values) => pool.query(text, values),
    data,
    schema,
    () => postgres({ url, schema, connections: 4 }),
  );
  for (const table of ['things', 'others', 'probes'])
    await grantTable((text) => pool.query(text), 2, data, table);
  if (inject('schemas') !== '') await pool.query(handlerGrant(`${data}.others`));
  const bare = async (work: (handle: unknown) => Promise<void>): Promise<void> => {
    const client = await pool.connect();
    await work(client).finally(() => client.release());
  };
  return { ...database, bare, address: addressOf(url, schema) };
}

export async function embeddedDatabase(): Promise<Database> {
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
