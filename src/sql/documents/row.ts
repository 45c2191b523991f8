/** Reads a row as a document with a schedule, and its primary key as an id. */
import { failureOf, lockMarkOf } from '../../store/helpers/document-fields.js';
import type { DocumentJob } from '../../store/documents.js';
import { partOf, textAt, type DocumentTable, type Place } from './table.js';
import { quoted } from '../schema/names.js';
import { parseExact } from '../tables/exact.js';
import { literal } from '../reactive/names.js';
import { revived } from '../reactive/record.js';
import type { Column, Shape } from '../tables/shape.js';

type Row = Readonly<Record<string, unknown>>;

/** True if the column's JSON is not a text that its type could be read back from. */
const isNested = ({ isArray, type }: Column): boolean => isArray || type === 'json' || type === 'jsonb';

/** A SQL expression: the primary key as users see it, either its value or an object of its columns. */
export function idJson({ shape }: DocumentTable): string {
  const value = (column: Column): string => {
    const sql = `${quoted(shape.table)}.${quoted(column.name)}`;
    return `to_json(${isNested(column) ? `${sql}::text` : sql})`;
  };
  const [first, ...others] = shape.key;
  if (first !== undefined && others.length === 0) return value(first);
  return `json_build_object(${shape.key.map((column) => `${literal(column.name)}, ${value(column)}`).join(', ')})`;
}

/** A SQL expression: the whole row. The name of the table alone would not do, since a column may have the same name. */
export function rowJson({ shape }: DocumentTable): string {
  let row = 'tidemill_row';
  while (shape.columns.some(({ name }) => name === row)) row += '_';
  return `(select row_to_json(${row}) from (select ${quoted(shape.table)}.*) ${row})`;
}

/** The parts besides the due time that decide what the end of a run writes. */
const SCHEDULE = ['interval', 'repeatUntil', 'autoRemove', 'timezone'] as const;

/** A SQL expression: what the schedule says, as a text that does not depend on the session. */
export function revision({ parts }: DocumentTable): string {
  const texts = SCHEDULE.flatMap((part) => {
    const place = parts[part];
    if (place === undefined) return [];
    if (place.kind === 'json') return [textAt(place)];
    return [place.kind === 'column' ? `${place.sql}::text` : `extract(epoch from ${place.sql})::text`];
  });
  return `json_build_array(${texts.join(', ')})::text`;
}

/** A SQL expression: a row with its id and its revision, for `readJob`. */
export const jobJson = (table: DocumentTable): string =>
  `json_build_object('id', ${idJson(table)}, 'row', ${rowJson(table)}, 'revision', ${revision(table)})::text`;

const keyText = (value: unknown): string => {
  if (typeof value === 'string') return value;
  if (value instanceof Date) return value.toISOString();
  return typeof value === 'bigint' ? value.toString() : JSON.stringify(value ?? null);
};

/** The id as texts, one for each column of the primary key. */
export function keyTexts({ key }: Shape, id: unknown): readonly string[] {
  if (key.length === 1) return [keyText(id)];
  return key.map(({ name }) => keyText((id as Row | null)?.[name]));
}

const hasZone = /(?:Z|[+-]\d\d(?::?\d\d)?)$/u;

/**
 * Times without a zone are in UTC. A value that is not a time is passed on unchanged: the scheduler reports what is
 * wrong with it.
 */
function timeOf(value: unknown, { kind }: Place): unknown {
  if (typeof value !== 'string') return value;
  const at = new Date(kind === 'timestamp' && !hasZone.test(value) ? `${value}Z` : value);
  const isIso = kind !== 'json' || ISO.test(value);
  return isIso && !Number.isNaN(at.getTime()) ? at : value;
}

/** Times in JSON have the format of `Date.toISOString`, so that texts sort as times do. */
const ISO = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/u;

/** The schedule in a row. `said` is its revision. */
function jobOf(table: DocumentTable, id: unknown, row: Row, said?: string): DocumentJob {
  const { parts, sleepUntil, shape } = table;
  const time = (place: Place | undefined): never =>
    (place === undefined ? undefined : timeOf(partOf(row, place), place)) as never;
  return {
    id,
    sleepUntil: time(sleepUntil),
    interval: partOf(row, parts.interval) as never,
    repeatUntil: time(parts.repeatUntil),
    autoRemove: partOf(row, parts.autoRemove) as never,
    timezone: partOf(row, parts.timezone) as never,
    failure: failureOf(partOf(row, parts.failure)),
    lockedUntil: lockMarkOf(partOf(row, parts.failure)),
    ...(said === undefined ? {} : { revision: said }),
    get data() {
      const own = new Set(
        Object.values(parts).flatMap(({ path, column }) => (path.length === 0 ? [column.name] : [])),
      );
      return Object.fromEntries(Object.entries(this.document ?? {}).filter(([name]) => !own.has(name)));
    },
    document: revived(row, shape) as Row,
  };
}

/** Reads a row that a statement returned as `jobJson`, or without its revision. */
export function readJob(table: DocumentTable, json: string): DocumentJob {
  const {
    id,
    row,
    revision: said,
  } = parseExact(json) as Readonly<{
    id: unknown;
    row: Row;
    revision?: string;
  }>;
  return jobOf(table, id, row, said);
}

/** Reads a row that the user has read. Its times become dates, whether the driver returned dates or texts. */
export function jobOfRow(table: DocumentTable, row: Row): DocumentJob {
  const { key } = table.shape;
  const [first, ...others] = key;
  const id =
    first !== undefined && others.length === 0
      ? row[first.name]
      : Object.fromEntries(key.map(({ name }) => [name, row[name]]));
  return jobOf(table, id, row);
}
