/**
 * A table of the user whose rows have schedules: where the parts of a schedule are in a row, and how to read and write
 * them.
 */
import { OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import { valueAt } from '../../core/text/paths.js';
import { DEFAULT_FIELDS } from '../../store/helpers/document-fields.js';
import type { DocumentFields, DocumentPlace } from '../../store/documents.js';
import type { Queryable } from '../connection/driver.js';
import { quoted } from '../schema/names.js';
import { fieldOf, isJson, type Field } from '../tables/fields.js';
import { literal } from '../reactive/names.js';
import { missingTable, readShape, tableOf, type Shape } from '../tables/shape.js';
import { parseName } from '../tables/table-name.js';

type Part = keyof DocumentFields;

/** Where a part of a schedule is: in a timestamp column, in any other column, or inside JSON. */
export interface Place extends Field {
  readonly kind: 'timestamptz' | 'timestamp' | 'json' | 'column';
}

/** What every statement on the rows of one table needs. */
export interface DocumentTable {
  readonly where: string;
  readonly shape: Shape;
  /** Its name for `from`. Columns are qualified with the bare name of the table. */
  readonly from: string;
  readonly sleepUntil: Place;
  /** The parts that the table has; a part without a column is absent. */
  readonly parts: Readonly<Partial<Record<Part, Place>>>;
  readonly condition: unknown;
}

const snake = (name: string): string => name.replaceAll(/[A-Z]/gu, (letter) => `_${letter.toLowerCase()}`);

const TABLES = ['r', 'p'];

function checkTable(where: string, shape: Shape): void {
  if (!TABLES.includes(shape.kind))
    throw new OptionError(
      `${where}: ${show(shape.name)} is not a table; name the table whose rows are to run.`,
    );
  if (shape.hidesRows)
    throw new OptionError(
      `${where}: row-level security hides rows of ${show(shape.name)} from the store's role, so they would never run. Use a ` +
        `role that sees all rows (ALTER ROLE … BYPASSRLS), or the owner of the table without FORCE ROW LEVEL SECURITY.`,
    );
  if (shape.key.length > 0) return;
  throw new OptionError(
    `${where}: ${show(shape.name)} has no primary key, so its rows cannot be told apart; add one: ` +
      `ALTER TABLE ${tableOf(shape)} ADD PRIMARY KEY (…).`,
  );
}

function placeOf(where: string, shape: Shape, name: string): Place {
  const field = fieldOf(where, shape, name);
  const { type, typeSchema } = field.column;
  if (isJson(field.column)) return { ...field, kind: 'json' };
  const isTime = typeSchema === 'pg_catalog' && (type === 'timestamptz' || type === 'timestamp');
  return { ...field, kind: isTime ? type : 'column' };
}

/** Looks a part up by the given path, or by its own name, in camel case or snake case. */
function find(
  where: string,
  shape: Shape,
  part: Part,
  given: string | null | undefined,
  names: readonly string[],
): Place | undefined {
  if (given === null) return undefined;
  if (given !== undefined) return placeOf(`${where}: fields.${part}`, shape, given);
  const name = names.find((one) => shape.columns.some((column) => column.name === one));
  return name === undefined ? undefined : placeOf(where, shape, name);
}

function checkTime(where: string, part: Part, place: Place | undefined): void {
  if (place === undefined || place.kind !== 'column') return;
  throw new OptionError(
    `${where}: ${show(place.name)}, which holds ${part}, must be a timestamptz, a timestamp, or inside jsonb; it is ` +
      `${place.column.type}.`,
  );
}

/** Reads the shape of the table, and rejects one whose rows cannot be run. */
export async function readTable(
  where: string,
  on: Queryable,
  tidemill: string,
  { collection, fields = {}, condition }: DocumentPlace,
): Promise<DocumentTable> {
  const name = parseName(where, collection);
  const shape = await readShape(on, tidemill, name);
  if (shape === undefined) throw await missingTable(where, on, name);
  checkTable(where, shape);
  const parts: Partial<Record<Part, Place>> = {};
  for (const [part, own] of Object.entries(DEFAULT_FIELDS) as [Part, string][]) {
    const place = find(where, shape, part, fields[part], [own, snake(own)]);
    if (place !== undefined) parts[part] = place;
  }
  const { sleepUntil } = parts;
  if (sleepUntil === undefined)
    throw new OptionError(
      `${where}: ${show(shape.name)} has no column "sleepUntil" or "sleep_until"; name the one that it has: ` +
        "fields: { sleepUntil: 'remind_at' }.",
    );
  checkTime(where, 'sleepUntil', sleepUntil);
  checkTime(where, 'repeatUntil', parts.repeatUntil);
  if (parts.failure !== undefined && parts.failure.kind !== 'json')
    throw new OptionError(
      `${where}: ${show(parts.failure.name)}, which holds failures, must be jsonb, or inside it.`,
    );
  return { where, shape, from: tableOf(shape), sleepUntil, parts, condition };
}

/** A SQL expression: a value inside a JSON column, as text. */
export function textAt({ sql, path, column }: Place): string {
  const keys = path.map(literal);
  const last = keys.pop();
  const inner = [column.type === 'jsonb' ? sql : `(${sql})::jsonb`, ...keys].join(' -> ');
  return last === undefined ? `(${inner} #>> '{}')` : `(${inner} ->> ${last})`;
}

/** A SQL expression: `document` with another value at the path. Missing objects on the path are created. */
export function withAt(document: string, path: readonly string[], value: string): string {
  const [key, ...rest] = path;
  if (key === undefined) return value;
  const object = `(case when jsonb_typeof(${document}) = 'object' then ${document} else '{}'::jsonb end)`;
  const inner = withAt(`(${document} -> ${literal(key)})`, rest, value);
  return `jsonb_set(${object}, array[${literal(key)}], ${inner})`;
}

/** The value of a part in a row that was read, as in JSON. */
export function partOf(row: Readonly<Record<string, unknown>>, place: Place | undefined): unknown {
  if (place === undefined) return undefined;
  const value = row[place.column.name];
  return place.path.length === 0 ? value : valueAt(value, place.path.join('.'));
}

/** The columns of the primary key, qualified with the name of the table. */
export const keyColumns = ({ shape }: DocumentTable): readonly string[] =>
  shape.key.map(({ name }) => `${quoted(shape.table)}.${quoted(name)}`);

/** A name for use inside a statement that differs from the name of the table. */
export const unlike = ({ shape }: DocumentTable, name: string): string =>
  shape.table.startsWith(name) ? `${shape.table}_`.replaceAll(/\W/gu, '_') : name;
