import { randomBytes } from 'node:crypto';
import type { Sql } from './connection.js';
import type { Queryable } from './driver.js';
import { run } from './errors.js';
import { migrationsFrom } from './migrate.js';
import { namesIn, quoted } from './names.js';
import { rows } from './rows.js';

/** Everything that a schema consists of, as the server would spell it, without the schema's own name. */
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

/** Thrown to undo what was only made to be looked at. */
class Undo extends Error {}

/** What the migrations make, made and undone again: so there is no second list that could differ from them. */
async function intended({ driver }: Sql): Promise<ReadonlyMap<string, string>> {
  const names = namesIn(`tidemill_check_${randomBytes(6).toString('hex')}`);
  let made: ReadonlyMap<string, string> = new Map();
  const make = driver.transaction(async (transaction) => {
    await transaction.query(`create schema ${quoted(names.schema)}`);
    for (const statement of migrationsFrom(0, names)) await transaction.query(statement);
    made = await describe(transaction, names.schema);
    throw new Undo();
  });
  await make.catch((error: unknown) => {
    if (!(error instanceof Undo)) throw error;
  });
  return made;
}

/** What is missing or different in the schema, as text; what is there besides is nobody's business. */
export async function schemaFaults(sql: Sql): Promise<readonly string[]> {
  return run('compare the schema', async () => {
    const there = await describe(sql.driver, sql.names.schema);
    return [...(await intended(sql))].flatMap(([what, wanted]) => {
      const found = there.get(what);
      if (found === wanted) return [];
      return [found === undefined ? `${what} is missing: ${wanted}` : `${what} is ${found}, not ${wanted}`];
    });
  });
}
