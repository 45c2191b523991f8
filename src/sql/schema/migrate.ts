import { StoreError } from '../../core/errors.js';
import type { Driver, Queryable } from '../connection/driver.js';
import { migrations } from './migrations/index.js';
import type { Migration } from './migrations/migration.js';
import { quoted, type Names } from './names.js';
import { rows } from '../connection/rows.js';

/** The version of the schema that this code needs. */
export const NEWEST: number = migrations.at(-1)?.version ?? 0;

/** Reads the catalog tables: `to_regclass` may still say what was true before the wait for the lock. */
const THERE = `select to_json(exists(
    select from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = $1::text and c.relname = 'migrations'))::text as json`;

/** The current version of the schema; 0 if there is none. */
export async function versionOf(on: Queryable, names: Names): Promise<number> {
  const [there] = await rows<boolean>(on, THERE, [names.schema]);
  if (there !== true) return 0;
  const [version] = await rows<number>(
    on,
    `select to_json(coalesce(max(version), 0))::text as json from ${names.migrations}`,
  );
  return version ?? 0;
}

/**
 * The oldest version of the schema whose code may use it, according to the steps that this code does not know; 0 if
 * there are none.
 */
export async function compatibleSince(on: Queryable, names: Names): Promise<number> {
  const [since] = await rows<number>(
    on,
    `select to_json(max(coalesce(compatible_since, version)))::text as json from ${names.migrations}
     where version > $1::integer`,
    [NEWEST],
  );
  return since ?? 0;
}

/**
 * Brings the schema up to date, even if several instances try at once. If it already is, this only reads its version.
 */
export async function migrate(driver: Driver, names: Names): Promise<void> {
  const seen = await versionOf(driver, names);
  await refuseNewer(driver, seen, names);
  if (seen >= NEWEST) return;
  await driver.transaction(async (transaction) => {
    await transaction.query('select pg_advisory_xact_lock(hashtextextended($1::text, 0))', [
      `tidemill:${names.schema}`,
    ]);
    const version = await versionOf(transaction, names);
    await refuseNewer(transaction, version, names);
    for (const statement of await statementsFrom(transaction, version, names))
      await transaction.query(statement);
  }, 'unhurried');
}

/**
 * For users who do not let the application change the schema: throws an error that says what is missing and how to add
 * it. A tool that visits the store migrates nothing, so `visit` says what to check instead.
 */
export async function checkMigrated(on: Queryable, names: Names, visit: boolean): Promise<void> {
  const version = await versionOf(on, names);
  await refuseNewer(on, version, names);
  if (version >= NEWEST) return;
  const found = `The schema ${quoted(names.schema)} is at version ${String(version)}`;
  const needs = `this version of Tidemill needs ${String(NEWEST)}`;
  if (visit && version === 0)
    throw new StoreError(
      `${found}: this database has no tables of Tidemill there. Check the database in the URL and the name of the schema. ` +
        'An instance of your application creates the tables when it starts.',
    );
  throw new StoreError(
    visit
      ? `${found}, and ${needs}. Start an instance of your application with this version, which migrates the schema, or ` +
          'use the version that your application has.'
      : `${found}, and ${needs}. Run the statements of \`store.migrationScript(${String(version)})\`, or leave \`migrate\` on.`,
  );
}

/** Accepts a newer schema if it says that code of this version works with it. */
async function refuseNewer(on: Queryable, version: number, names: Names): Promise<void> {
  if (version <= NEWEST) return;
  const since = await compatibleSince(on, names);
  if (since <= NEWEST) return;
  throw new StoreError(
    `The schema ${quoted(names.schema)} is at version ${String(version)}, which a newer version of Tidemill created. It works with ` +
      `versions from ${String(since)} on; this one knows ${String(NEWEST)}. Update tidemill here, or use another \`schema\`.`,
  );
}

async function statementsFrom(on: Queryable, version: number, names: Names): Promise<readonly string[]> {
  // Checked first, since `create schema if not exists` needs a privilege that the role may lack even if the schema
  // exists.
  const [there] = await rows<boolean>(
    on,
    `select to_json(exists(select from pg_namespace where nspname = $1::text))::text as json`,
    [names.schema],
  );
  return [
    ...(there === true ? [] : [`create schema ${quoted(names.schema)}`]),
    ...migrationsFrom(version, names),
  ];
}

/** Interpolates only constants of this code. The first steps were released before `compatible_since` existed. */
function noted({ version, name, compatibleSince: since }: Migration, { migrations: table }: Names): string {
  return since === undefined
    ? `insert into ${table} (version, name) values (${String(version)}, '${name}')`
    : `insert into ${table} (version, name, compatible_since) values (${String(version)}, '${name}', ${String(since)})`;
}

/** The statements that lead from a version to the newest one. */
export function migrationsFrom(version: number, names: Names): readonly string[] {
  const table = `create table ${names.migrations} (
    version integer primary key,
    name text not null,
    applied_at timestamptz(3) not null default now()
  )`;
  const steps = migrations
    .filter((step) => step.version > version)
    .flatMap((step) => [...step.up(names), noted(step, names)]);
  return [...(version === 0 ? [table] : []), ...steps];
}
