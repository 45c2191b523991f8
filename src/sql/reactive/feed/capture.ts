/** Triggers that record which rows changed. They run inside the writer's transaction, and must cost little. */
import { createHash } from 'node:crypto';
import type { Queryable } from '../../connection/driver.js';
import { quoted, type Names } from '../../schema/names.js';
import { rows } from '../../connection/rows.js';
import { literal, reactiveNames } from '../names.js';
import { captureOf, isRowLevel, tableOf, type Column, type Shape } from '../../tables/shape.js';

/** Types whose text does not depend on the session. */
const PLAIN: ReadonlySet<string> = new Set([
  'int2',
  'int4',
  'int8',
  'numeric',
  'text',
  'varchar',
  'bpchar',
  'uuid',
  'bool',
  'name',
  'oid',
]);

const isPlain = ({ type, typeSchema, isEnum }: Column): boolean =>
  isEnum || (typeSchema === 'pg_catalog' && PLAIN.has(type));

/** The settings of migration 2, for a function that runs in a user's session. */
const SETTINGS = `set timezone = 'UTC' set datestyle = 'ISO, YMD' set intervalstyle = 'postgres'
    set extra_float_digits = 1 set bytea_output = 'hex'`;

/** A SQL expression: the exact text of a row's key. */
export const keyText = (key: readonly Column[], row: string): string =>
  `json_build_array(${key.map(({ name }) => `${row}.${quoted(name)}::text`).join(', ')})::text`;

/** Several Tidemill schemas may watch one table. */
const prefixOf = ({ schema }: Names): string =>
  `tidemill_${createHash('sha256').update(schema).digest('hex').slice(0, 8)}`;

const functionName = (shape: Shape): string => `capture_${captureOf(shape)}`;

/** A partition inherits the triggers of its parent, and may have some of its own besides. */
const triggerName = (names: Names, shape: Shape, part: string): string =>
  `${prefixOf(names)}_${captureOf(shape)}_${part}`;

const triggerNames = (names: Names, shape: Shape): readonly string[] => {
  const parts = isRowLevel(shape) ? ['row', 'truncate'] : ['insert', 'update', 'delete', 'moved', 'truncate'];
  return parts.map((part) => triggerName(names, shape, part));
};

/** True if the table has exactly the triggers that it should have. */
export function isCaptured(names: Names, shape: Shape): boolean {
  const own = ownTriggers(names, shape);
  const wanted = triggerNames(names, shape);
  const right = own.filter(
    ([name, called, enabled]) => enabled && called === functionName(shape) && wanted.includes(name),
  );
  return right.length === wanted.length && own.length === wanted.length;
}

/**
 * The body of the trigger function of one table. It runs with the rights of the role that created it, so the application's role
 * needs none. It wakes the planner only if the planner has asked for it: PostgreSQL serializes the commits of
 * transactions that notify.
 */
function captureBody(names: Names, shape: Shape): string {
  const { changes, idle, changesChannel, mayCapture } = reactiveNames(names);
  const source = literal(captureOf(shape));
  const note = (kind: string, key: string, from = ''): string =>
    `insert into ${changes} (source, key, kind) select ${source}, ${key}, '${kind}'${from};`;
  const key = (row: string): string => keyText(shape.key, row);
  return `
  begin
    if not ${mayCapture}() then return null; end if;
    if TG_OP = 'TRUNCATE' then ${note('truncate', `''`)}
    elsif TG_LEVEL = 'STATEMENT' then
      if TG_OP = 'INSERT' then ${note('insert', key('n'), ' from tidemill_new n')}
      elsif TG_OP = 'UPDATE' then ${note('update', key('n'), ' from tidemill_new n')}
      else ${note('delete', key('o'), ' from tidemill_old o')}
      end if;
    elsif TG_ARGV[0] = 'moved' then ${note('delete', key('old'))}
    elsif TG_OP = 'INSERT' then ${note('insert', key('new'))}
    elsif TG_OP = 'DELETE' then ${note('delete', key('old'))}
    else
      ${note('update', key('new'))}
      if ${moved(shape)} then ${note('delete', key('old'))} end if;
    end if;
    if found and (select last_value from ${idle}) = 1 then
      perform pg_notify(${literal(changesChannel)}, '');
    end if;
    return null;
  end`;
}

const captureFunction = (names: Names, shape: Shape): string =>
  `create or replace function ${names.table(functionName(shape))}() returns trigger
    language plpgsql security definer set search_path = pg_catalog, pg_temp
    ${shape.key.every(isPlain) ? '' : SETTINGS}
  as ${literal(captureBody(names, shape))}`;

/** $1 Tidemill's schema · $2 the name of a function · $3 its body */
const OUTDATED = `select 'true' as json from pg_catalog.pg_proc p
  join pg_catalog.pg_namespace n on n.oid = p.pronamespace
  where n.nspname = $1::text and p.proname = $2::text and p.prosrc <> $3::text
    and pg_catalog.pg_has_role(p.proowner, 'usage')`;

/** True if an older version made the function of a table, and this role may replace it. */
export const isFunctionOutdated = async (on: Queryable, names: Names, shape: Shape): Promise<boolean> => {
  const values = [names.schema, functionName(shape), captureBody(names, shape)];
  return (await rows<boolean>(on, OUTDATED, values)).length > 0;
};

/** The triggers stay, so the table is neither locked nor reconciled. */
export const renewFunction = async (on: Queryable, names: Names, shape: Shape): Promise<void> => {
  await on.query(captureFunction(names, shape));
};

/** True if the key was written differently: equal values may have different texts, and the key is the text. */
const moved = ({ key }: Shape): string => {
  const row = (of: string): string => `row(${key.map(({ name }) => `${of}.${quoted(name)}`).join(', ')})`;
  return `pg_catalog.record_image_ne(${row('old')}, ${row('new')})`;
};

/** All statements that make a table watched; also what its owner has to run if the store may not. */
export function captureStatements(names: Names, shape: Shape): readonly string[] {
  const table = tableOf(shape);
  const call = names.table(functionName(shape));
  const trigger = (part: string, when: string, action = `execute function ${call}()`): string =>
    `create trigger ${quoted(triggerName(names, shape, part))} after ${when} ${action}`;
  const on = `on ${table}`;
  const each = isRowLevel(shape)
    ? [trigger('row', `insert or update or delete ${on} for each row`)]
    : [
        trigger('insert', `insert ${on} referencing new table as tidemill_new for each statement`),
        trigger('update', `update ${on} referencing new table as tidemill_new for each statement`),
        trigger('delete', `delete ${on} referencing old table as tidemill_old for each statement`),
        trigger(
          'moved',
          `update ${on} for each row when (${moved(shape)})`,
          `execute function ${call}('moved')`,
        ),
      ];
  return [
    ...dropStatements(names, shape),
    captureFunction(names, shape),
    `revoke all on function ${call}() from public`,
    ...each,
    trigger('truncate', `truncate ${on} for each statement`),
  ];
}

const ownTriggers = (names: Names, { triggers }: Shape): Shape['triggers'] =>
  triggers.filter(([name]) => name.startsWith(prefixOf(names)));

export const dropStatements = (names: Names, shape: Shape): readonly string[] =>
  ownTriggers(names, shape).map(([name]) => `drop trigger ${quoted(name)} on ${tableOf(shape)}`);

/** $1 Tidemill's schema · $2 names of functions */
const UNUSED = `select to_json(p.proname)::text as json from pg_catalog.pg_proc p
  join pg_catalog.pg_namespace n on n.oid = p.pronamespace
  where n.nspname = $1::text and p.proname = any(array(select json_array_elements_text($2::text::json)))
    and not exists (select from pg_catalog.pg_trigger g where g.tgfoid = p.oid)
    and pg_catalog.pg_has_role(p.proowner, 'usage')`;

/**
 * Drops the functions that the triggers of this shape called, once no trigger calls them. One may still serve a table
 * that was renamed. Every caller that creates or drops triggers has locked the table, so an unused function cannot come
 * into use meanwhile.
 */
export async function dropUnusedFunctions(on: Queryable, names: Names, shape: Shape): Promise<void> {
  const called = ownTriggers(names, shape).map(([, name]) => name);
  for (const name of await rows<string>(on, UNUSED, [names.schema, JSON.stringify(called)]))
    await on.query(`drop function ${names.table(name)}()`);
}
