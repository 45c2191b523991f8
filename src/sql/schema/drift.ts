import { randomBytes } from 'node:crypto';
import type { Sql } from '../connection/connection.js';
import type { Queryable } from '../connection/driver.js';
import { run } from '../connection/errors.js';
import { migrationsFrom } from './migrate.js';
import { namesIn, quoted } from './names.js';
import { rows } from '../connection/rows.js';

/** All columns, indexes and constraints of a schema as the server spells them, without the name of the schema. */
const DESCRIBE = `
  with tables as (
    select c.oid, c.relname from pg_class c join pg_namespace s on s.oid = c.relnamespace
    where s.nspname = $1::text and c.relkind = 'r'
  )
  select json_build_array('column ' || t.relname || '.' || a.attname,
    format_type(a.atttypid, a.atttypmod) || case when a.attnotnull then ' not null' else '' end)::text as json
  from tables t join pg_attribute a on a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped
  union all
  select json_build_array('index ' || c.relname,
    replace(pg_get_indexdef(i.indexrelid), quote_ident($1::text) || '.', '') || case when i.indisvalid then '' else ' invalid' end)::text
  from tables t join pg_index i on i.indrelid = t.oid join pg_class c on c.oid = i.indexrelid
  union all
  select json_build_array('constraint ' || t.relname || '.' || o.conname, pg_get_constraintdef(o.oid))::text
  from tables t join pg_constraint o on o.conrelid = t.oid`;

const describe = async (on: Queryable, schema: string): Promise<ReadonlyMap<string, string>> =>
  new Map(await rows<[string, string]>(on, DESCRIBE, [schema]));

/** Thrown to roll back a schema that was made only to be described. */
class RollbackError extends Error {}

/**
 * What the migrations make. They run in a schema that is rolled back, so there is no second list that could differ from
 * them.
 */
async function intended({ driver }: Sql): Promise<ReadonlyMap<string, string>> {
  const names = namesIn(`tidemill_check_${randomBytes(6).toString('hex')}`);
  let made: ReadonlyMap<string, string> = new Map();
  const make = driver.transaction(async (transaction) => {
    await transaction.query(`create schema ${quoted(names.schema)}`);
    for (const statement of migrationsFrom(0, names)) await transaction.query(statement);
    made = await describe(transaction, names.schema);
    throw new RollbackError();
  }, 'unhurried');
  await make.catch((error: unknown) => {
    if (!(error instanceof RollbackError)) throw error;
  });
  return made;
}

/** A part of the schema that is not as the migrations made it. */
export interface Drift {
  /** Such as `index jobs_due` or `column jobs.data`. */
  readonly what: string;
  readonly wanted: string;
  /** Absent if it is missing. */
  readonly found?: string;
}

/** What is missing or different in the schema. Anything additional is ignored. */
export async function schemaDrift(sql: Sql): Promise<readonly Drift[]> {
  return run('compare the schema', async () => {
    const there = await describe(sql.driver, sql.names.schema);
    const drift = [...(await intended(sql))].flatMap(([what, wanted]): Drift[] => {
      const found = there.get(what);
      if (found === wanted) return [];
      return [{ what, wanted, ...(found === undefined ? {} : { found }) }];
    });
    return drift.filter((one) => !comesWithAnother(one, drift));
  });
}

/** The index of a constraint comes with the constraint, so it is not reported by itself. */
const comesWithAnother = ({ what }: Drift, drift: readonly Drift[]): boolean =>
  what.startsWith('index ') &&
  drift.some(
    (other) => other.what.startsWith('constraint ') && other.what.endsWith(`.${what.slice('index '.length)}`),
  );

export const driftText = ({ what, wanted, found }: Drift): string =>
  found === undefined ? `${what} is missing: ${wanted}` : `${what} is ${found}, not ${wanted}`;

/**
 * True if another index or constraint has the name, possibly one that a newer version made: fixing it drops that one.
 */
export const mendsByDropping = ({ what, found }: Drift): boolean =>
  found !== undefined && !what.startsWith('column ');

const NOT_NULL = / not null$/u;

/** The statements that fix it. */
export function mending({ what, wanted, found }: Drift, schema: string): string {
  const [kind = '', name = ''] = what.split(/ (.*)/u);
  const within = (part: string): string => `${quoted(schema)}.${quoted(part)}`;
  if (kind === 'index') {
    const drop = found === undefined ? [] : [`drop index ${within(name)};`];
    return [...drop, `${wanted.replace(/ ON (?:ONLY )?/u, (on) => `${on}${quoted(schema)}.`)};`].join(' ');
  }
  const [table = '', part = ''] = name.split('.');
  const alter = `alter table ${within(table)}`;
  if (kind === 'constraint') {
    const drop = found === undefined ? [] : [`${alter} drop constraint ${quoted(part)};`];
    return [...drop, `${alter} add constraint ${quoted(part)} ${wanted};`].join(' ');
  }
  if (found === undefined) return `${alter} add column ${quoted(part)} ${wanted};`;
  return changedColumn(`${alter} alter column ${quoted(part)}`, wanted, found);
}

function changedColumn(alter: string, wanted: string, found: string): string {
  const [type, had] = [wanted.replace(NOT_NULL, ''), found.replace(NOT_NULL, '')];
  const [needs, has] = [NOT_NULL.test(wanted), NOT_NULL.test(found)];
  return [
    ...(type === had ? [] : [`${alter} type ${type};`]),
    ...(needs === has ? [] : [`${alter} ${needs ? 'set' : 'drop'} not null;`]),
  ].join(' ');
}
