/** The scripts of privileges/, run as their readers would, for stores that connect with exactly those rights. */
import { mkdtempSync, readdirSync, readFileSync, unlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { MongoClient, type Document } from 'mongodb';
import pg from 'pg';

const ROLE = 'tidemill';
const PASSWORD = 'least';
const SCHEMAS = 1_000;

const script = (name: string): string =>
  readFileSync(resolve(import.meta.dirname, '../../privileges', name), 'utf8');

/** One part of the script, with the variables that psql would substitute. */
export function postgresScript(part: 1 | 2 | 3, variables: Readonly<Record<string, string>>): string {
  const text = script('postgres.sql').split(/^-- \d\. /mu)[part] ?? '';
  const role = { role: ROLE, ...variables } as Record<string, string | undefined>;
  return text
    .split('\n')
    .slice(1)
    .join('\n')
    .replaceAll(/:"(?<name>\w+)"/gu, (_whole, name: string) => {
      const value = role[name];
      if (value === undefined) throw new Error(`postgres.sql has a variable ${name} that is not set`);
      return `"${value.replaceAll('"', '""')}"`;
    });
}

/** Creates a schema for each store in advance: a store has no right to create one. */
export async function preparePostgres(
  url: string,
): Promise<{ readonly url: string; readonly schemas: string }> {
  const folder = mkdtempSync(join(tmpdir(), 'tidemill-schemas-'));
  const client = new pg.Client(url);
  await client.connect();
  const schemas = Array.from({ length: SCHEMAS }, (_, number) => `least_${String(number)}`);
  const [first = '', ...others] = schemas.map((schema) => postgresScript(1, { schema }));
  await client.query([first, ...others.map((text) => text.replace(/^create role .*$/mu, ''))].join('\n'));
  for (const schema of schemas) writeFileSync(join(folder, schema), '');
  await client.end();
  return { url: url.replace('postgres@', `${ROLE}@`), schemas: folder };
}

/** What a handler needs that writes to a table in the store's transactions; not part of the script. */
export const handlerGrant = (table: string): string => `grant insert on table ${table} to ${ROLE}`;

/** A schema that no other store of the run has. */
export function takeSchema(folder: string): string {
  for (const schema of readdirSync(folder)) {
    try {
      unlinkSync(join(folder, schema));
      return schema;
    } catch {
      // Another process took it.
    }
  }
  throw new Error('all schemas are taken; make more of them');
}

interface Shell {
  readonly getSiblingDB: (name: string) => { readonly createRole: (role: Document) => void };
}

type MongoshScript = (
  db: Shell,
  database: string,
  watched: readonly string[],
  scheduled: readonly string[],
) => void;

/** The commands of the script. */
function mongodbCommands(...names: [database: string, watched: string[], scheduled: string[]]): Document[] {
  const commands: Document[] = [];
  const db: Shell = {
    getSiblingDB: () => ({
      createRole: ({ role, ...rest }) => void commands.push({ createRole: role as string, ...rest }),
    }),
  };
  // eslint-disable-next-line @typescript-eslint/no-implied-eval -- the script of the repository, as mongosh runs it
  const run = new Function('db', 'database', 'watched', 'scheduled', script('mongodb.js')) as MongoshScript;
  run(db, ...names);
  return commands;
}

/** Every test has its own database: the same rights on any of them, for the collections that tests use. */
export async function prepareMongodb(uri: string): Promise<string> {
  const client = await MongoClient.connect(uri);
  const admin = client.db('admin');
  for (const command of mongodbCommands('', ['things', 'others', 'probes'], ['reminders']))
    await admin.command(command);
  // Handlers of the tests write to it in the store's transactions.
  const written = { resource: { db: '', collection: 'others' }, actions: ['insert', 'createCollection'] };
  await admin.command({ createRole: 'handlers', privileges: [written], roles: [] });
  await admin.command({ createUser: ROLE, pwd: PASSWORD, roles: [ROLE, 'handlers'] });
  await client.close();
  return uri.replace(/\/\/[^@]*@/u, `//${ROLE}:${PASSWORD}@`).replace('/?', '/?authSource=admin&');
}
