import { StoreError } from '../../core/errors.js';
import type { Driver, Queryable } from '../connection/driver.js';
import { migrations } from './migrations/index.js';
import type { Migration } from './migrations/migration.js';
import { quoted, type Names } from './names.js';
import { rows } from '../connection/rows.js';

/** The version of the schema that this code works on. */
export const NEWEST: number = migrations.length;

/** Asked of the catalogue's tables: to_regclass may remember that there was nothing before the lock was waited for. */
const THERE = `select to_json(exists(
    select from pg_class c join pg_namespace n on n.oid = c.relnamespace
    where n.nspname = $1::text and c.relname = 'migrations'))::text as json`;

/** The version of the schema as it is; 0 where there is none. */
export async function versionOf(on: Queryable, names: Names): Promise<number> {
  const [there] = await rows<boolean>(on, THERE, [names.schema]);
  if (there !== true) return 0;
  const [version] = await rows<number>(
    on,
    `select to_json(coalesce(max(version), 0))::text as json from ${names.migrations}`,
  );
  return version ?? 0;
}

/** The oldest version whose programs may use the schema, as far as steps that this program does not know say so. */
export async function compatibleSince(on: Queryable, names: Names): Promise<number> {
  const [since] = await rows<number>(
    on,
    `select to_json(max(coalesce(compatible_since, version)))::text as json from ${names.migrations}
     where version > $1::integer`,
    [NEWEST],
  );
  return since ?? 0;
}

/** Brings the schema up to date, whoever else tries the same at the same moment. Costs one look where it is. */
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

/** For those who do not let a program change their schema: says what is missing, and how to get it. */
export async function checkMigrated(on: Queryable, names: Names): Promise<void> {
  const version = await versionOf(on, names);
  await refuseNewer(on, version, names);
  if (version >= NEWEST) return;
  throw new StoreError(
    `The schema ${quoted(names.schema)} is at version ${String(version)}, and this version of Tidemill needs ` +
      `${String(NEWEST)}. Run the statements of \`store.migrationScript(${String(version)})\`, or leave \`migrate\` on.`,
  );
}

/** A newer schema is taken where it says that programs of this version work on it. */
async function refuseNewer(on: Queryable, version: number, names: Names): Promise<void> {
  if (version <= NEWEST) return;
  const since = await compatibleSince(on, names);
  if (since <= NEWEST) return;
  throw new StoreError(
    `The schema ${quoted(names.schema)} is at version ${String(version)}, which a newer version of Tidemill made. It works with ` +
      `versions from ${String(since)} on; this one knows ${String(NEWEST)}. Update tidemill here, or use another \`schema\`.`,
  );
}

async function statementsFrom(on: Queryable, version: number, names: Names): Promise<readonly string[]> {
  // Asked for, since creating one that is there needs a right that the role may not have.
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

/** All of it is the code's own words. The first steps were made before there was a place to say what they work beside. */
function noted({ version, name, compatibleSince: since }: Migration, { migrations: table }: Names): string {
  return since === undefined
    ? `insert into ${table} (version, name) values (${String(version)}, '${name}')`
    : `insert into ${table} (version, name, compatible_since) values (${String(version)}, '${name}', ${String(since)})`;
}

/** The statements that lead from a version to the newest. */
export function migrationsFrom(version: number, names: Names): readonly string[] {
  const table = `create table ${names.migrations} (
    version integer primary key,
    name text not null,
    applied_at timestamptz(3) not null default now()
  )`;
  const steps = migrations.slice(version).flatMap((step) => [...step.up(names), noted(step, names)]);
  return [...(version === 0 ? [table] : []), ...steps];
}
