/** The shape of a table: found by name, and read from the catalog. */
import { createHash } from 'node:crypto';
import { OptionError } from '../../core/errors.js';
import { show, suggestion } from '../../core/options.js';
import type { Queryable } from '../connection/driver.js';
import { quoted } from '../schema/names.js';
import { rows } from '../connection/rows.js';

export interface Column {
  readonly name: string;
  /** The type behind a domain; an array has a type of its own, such as `_int4`. */
  readonly type: string;
  readonly typeSchema: string;
  readonly isArray: boolean;
  readonly isEnum: boolean;
  /** The declared type, to tell whether it has changed. */
  readonly declared: string;
}

export interface Shape {
  readonly schema: string;
  readonly table: string;
  /** `schema.table`, as `collection` accepts it, whatever the search path is. */
  readonly name: string;
  /** As in pg_class. */
  readonly kind: string;
  readonly temporary: boolean;
  readonly isChild: boolean;
  readonly hasChildren: boolean;
  readonly columns: readonly Column[];
  /** The columns of the primary key, in its order. */
  readonly key: readonly Column[];
  /**
   * Its own triggers that call a function of Tidemill's schema: the name, the function, and whether it is enabled on
   * the table and all its partitions.
   */
  readonly triggers: readonly (readonly [string, string, boolean])[];
  /** True if policies hide rows from the store's role. */
  readonly hidesRows: boolean;
  /** Changes once rows may have been added, removed or changed without a trigger. */
  readonly fingerprint: string;
}

const PART = /^(?:"(?:[^"]|"")+"|[^".]+)$/u;
const shown = (part: string): string => (PART.test(part) && !part.startsWith('"') ? part : quoted(part));

const baseType = `(
  with recursive base as (
    select a.atttypid as oid
    union all
    select d.typbasetype from base join pg_catalog.pg_type d on d.oid = base.oid where d.typtype = 'd'
  )
  select json_build_object('name', a.attname, 'type', t.typname, 'typeSchema', tn.nspname,
    'isArray', t.typcategory = 'A', 'isEnum', t.typtype = 'e',
    'declared', dn.nspname || '.' || d.typname || ':' || a.atttypmod)
  from base join pg_catalog.pg_type t on t.oid = base.oid and t.typtype <> 'd'
  join pg_catalog.pg_namespace tn on tn.oid = t.typnamespace
  join pg_catalog.pg_type d on d.oid = a.atttypid
  join pg_catalog.pg_namespace dn on dn.oid = d.typnamespace)`;

/**
 * A digest of the catalog entries of a table, with the transactions that wrote them. So it also changes if triggers
 * were disabled for a moment, a partition was detached and attached again, or a column was rewritten with the same
 * type.
 *
 * For partitions it includes the file as well, since truncating a single partition fires no trigger. Plain tables
 * record their own truncation, so rewriting one (VACUUM FULL) causes no reconciliation.
 */
const FINGERPRINT = `(
  select md5(string_agg(f.part, ' ' order by f.part)) from (
    select 'table ' || c.oid as part
    union all
    select 'column ' || a.attnum || ' ' || a.xmin from pg_catalog.pg_attribute a
    where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
    union all
    select 'generated ' || d.adnum || ' ' || d.xmin from pg_catalog.pg_attrdef d
    join pg_catalog.pg_attribute a on a.attrelid = d.adrelid and a.attnum = d.adnum
    where d.adrelid = c.oid and a.attgenerated <> ''
    union all
    select 'label ' || e.oid || ' ' || e.enumlabel from pg_catalog.pg_enum e
    where e.enumtypid in (
      with recursive used as (
        select a.atttypid as oid from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0
        union
        select inner_type.oid from used join pg_catalog.pg_type t on t.oid = used.oid
        cross join lateral (values (t.typelem), (t.typbasetype)) as inner_type(oid) where inner_type.oid <> 0
      ) select used.oid from used)
    union all
    select 'part ' || i.inhrelid || ' ' || i.xmin || ' ' || coalesce(pg_catalog.pg_relation_filenode(i.inhrelid), 0)
    from pg_catalog.pg_partition_tree(c.oid) t join pg_catalog.pg_inherits i on i.inhrelid = t.relid
    where t.relid <> c.oid
    union all
    select 'trigger ' || g.oid || ' ' || g.xmin from ours g
  ) f)`;

/** $1 table · $2 schema, or null for the search path · $3 Tidemill's schema */
const SHAPE = `
  with c as materialized (
    select c.oid, c.relname, c.relkind, c.relpersistence, n.nspname
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where c.relname = $1::text
      and case when $2::text is null then pg_catalog.pg_table_is_visible(c.oid) else n.nspname = $2::text end
  ), ours as materialized (
    select g.oid, g.xmin::text as xmin, g.tgname, g.tgrelid, g.tgfoid, g.tgparentid, g.tgenabled, p.proname as called
    from pg_catalog.pg_trigger g
    join pg_catalog.pg_proc p on p.oid = g.tgfoid
    join pg_catalog.pg_namespace pn on pn.oid = p.pronamespace
    where pn.nspname = $3::text
      and g.tgrelid in (select c.oid from c union select t.relid from c, pg_catalog.pg_partition_tree(c.oid) t)
  )
  select json_build_object(
    'schema', c.nspname, 'table', c.relname, 'kind', c.relkind, 'temporary', c.relpersistence = 't',
    'isChild', exists (select from pg_catalog.pg_inherits where inhrelid = c.oid),
    'hasChildren', exists (select from pg_catalog.pg_inherits where inhparent = c.oid),
    'columns', (
      select coalesce(json_agg(${baseType} order by a.attnum), '[]')
      from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped),
    'key', (
      select coalesce(json_agg(a.attname order by k.place), '[]')
      from pg_catalog.pg_index i
      cross join unnest(i.indkey) with ordinality as k(attnum, place)
      join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum = k.attnum
      where i.indrelid = c.oid and i.indisprimary and k.place <= i.indnkeyatts),
    'hidesRows', case when c.relkind in ('r', 'p') then pg_catalog.row_security_active(c.oid) else false end,
    'triggers', (
      select coalesce(json_agg(json_build_array(g.tgname, g.called, not exists (
        select from ours o where o.tgfoid = g.tgfoid and o.tgenabled not in ('O', 'A')))), '[]')
      from ours g where g.tgrelid = c.oid and g.tgparentid = 0),
    'fingerprint', ${FINGERPRINT}
  )::text as json
  from c`;

type Row = Omit<Shape, 'name' | 'key'> & { readonly key: readonly string[] };

/** Returns undefined if there is no such table. */
export async function readShape(
  on: Queryable,
  tidemill: string,
  { schema, table }: { readonly schema?: string; readonly table: string },
): Promise<Shape | undefined> {
  const [row] = await rows<Row>(on, SHAPE, [table, schema ?? null, tidemill]);
  if (row === undefined) return undefined;
  const key = row.key.map((name) => row.columns.find((column) => column.name === name) as Column);
  return { ...row, key, name: `${shown(row.schema)}.${shown(row.table)}` };
}

const KINDS: Readonly<Record<string, string>> = {
  v: 'a view',
  m: 'a materialized view',
  f: 'a foreign table',
  S: 'a sequence',
  c: 'a composite type',
  i: 'an index',
  I: 'an index',
};

/** Rejects tables that cannot be watched. */
export function checkShape(where: string, shape: Shape): void {
  const name = show(shape.name);
  const kind = KINDS[shape.kind];
  if (kind !== undefined)
    throw new OptionError(
      `${where}: ${name} is ${kind}, whose changes cannot be watched; name the table behind it.`,
    );
  if (shape.temporary)
    throw new OptionError(
      `${where}: ${name} is temporary, so only one session sees it; use a permanent table.`,
    );
  if (shape.hidesRows)
    throw new OptionError(
      `${where}: row-level security hides rows of ${name} from the store's role, so their changes would be lost. Use a ` +
        `role that sees all rows (ALTER ROLE … BYPASSRLS), or the owner of the table without FORCE ROW LEVEL SECURITY.`,
    );
  if (shape.kind === 'r' && shape.hasChildren)
    throw new OptionError(
      `${where}: ${name} has children by inheritance, and one key may be in several of them; name the children, or ` +
        'use partitions.',
    );
  if (shape.key.length === 0)
    throw new OptionError(
      `${where}: ${name} has no primary key, so its rows cannot be told apart; add one: ` +
        `ALTER TABLE ${tableOf(shape)} ADD PRIMARY KEY (…).`,
    );
}

export async function missingTable(
  where: string,
  on: Queryable,
  { schema, table }: { readonly schema?: string; readonly table: string },
): Promise<OptionError> {
  const near = await rows<string>(
    on,
    `select to_json(c.relname)::text as json from pg_catalog.pg_class c
     join pg_catalog.pg_namespace n on n.oid = c.relnamespace
     where c.relkind in ('r', 'p')
       and case when $1::text is null then pg_catalog.pg_table_is_visible(c.oid) else n.nspname = $1::text end
       and n.nspname not in ('pg_catalog', 'information_schema')`,
    [schema ?? null],
  );
  const searched = schema === undefined ? 'on the search path' : `in the schema ${show(schema)}`;
  return new OptionError(
    `${where}: there is no table ${show(table)} ${searched}.${suggestion(table, near)} Create it before you define the task.`,
  );
}

export const tableOf = ({ schema, table }: Pick<Shape, 'schema' | 'table'>): string =>
  `${quoted(schema)}.${quoted(table)}`;

export const typeOf = ({ type, typeSchema }: Column): string => `${quoted(typeSchema)}.${quoted(type)}`;

const digest = (value: unknown): string =>
  createHash('sha256').update(JSON.stringify(value)).digest('hex').slice(0, 16);

/** If it changes, snapshots and filters may mean something else. */
export const signatureOf = ({ columns, key, kind }: Shape): string =>
  digest([columns.map(({ name, declared }) => [name, declared]), key.map(({ name }) => name), kind]);

/**
 * True if the table may have been written to without being recorded. Older versions kept no fingerprint, so nothing is
 * known of their tables.
 */
export const isUnseen = (kept: string | null, { fingerprint: now }: Shape): boolean =>
  kept !== null && kept !== now;

/**
 * Writes to a partition or a child do not fire the statement triggers of the parent: only row triggers see all of them.
 */
export const isRowLevel = ({ kind, isChild }: Shape): boolean => kind === 'p' || isChild;

/** Raise it when the triggers of reactive/feed/capture.ts change. */
const CAPTURE_VERSION = 1;

/** Identifies how the changes of a table are captured. Triggers with another identity are recreated. */
export const captureOf = (shape: Shape): string =>
  digest([
    CAPTURE_VERSION,
    shape.schema,
    shape.table,
    isRowLevel(shape),
    shape.key.map(({ name, type, typeSchema }) => [name, typeSchema, type]),
  ]);
