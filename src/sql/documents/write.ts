import { pause } from '../../core/clock.js';
import { StoreError } from '../../core/errors.js';
import type { DocumentChanges, DocumentWrite } from '../../store/documents.js';
import type { Sql } from '../connection/connection.js';
import { DocumentParameters } from './parameters.js';
import { keyTexts, revision } from './row.js';
import { keyColumns, textAt, unlike, withAt, type DocumentTable, type Place } from './table.js';
import { run } from '../connection/errors.js';
import { quoted } from '../schema/names.js';
import { literal } from '../reactive/names.js';
import { typeOf, type Column } from '../tables/shape.js';
import { rows as rowsOf } from '../connection/rows.js';
import { timeText } from '../connection/values.js';

/** The parts that a scheduler writes. */
const WRITTEN = ['sleepUntil', 'autoRemove', 'failure', 'mark'] as const;
type Written = (typeof WRITTEN)[number];

/** Where each part is. The mark of a lock is kept beside the failures. */
function placeOf({ parts }: DocumentTable, part: Written): Place | undefined {
  if (part !== 'mark') return parts[part];
  const { failure } = parts;
  return failure === undefined ? undefined : { ...failure, path: [...failure.path, 'lockedUntil'] };
}

const givenName = (table: DocumentTable): string => unlike(table, 'tidemill_given');
const foundName = (table: DocumentTable): string => unlike(table, 'tidemill_found');

/** A SQL expression: a text as a value of the column. */
function columnValue({ kind, column }: Place, text: string): string {
  if (kind === 'timestamp') return `(${text}::timestamptz at time zone 'UTC')`;
  return `${text}::${typeOf(column)}`;
}

/** A SQL expression: a text as JSON. Times are JSON texts; anything else is JSON already. */
const jsonValue = (part: Written, text: string): string =>
  part === 'sleepUntil' || part === 'mark'
    ? `coalesce(to_jsonb(${text}), 'null'::jsonb)`
    : `coalesce(${text}::jsonb, 'null'::jsonb)`;

/** A SQL expression: the document with the part written. A failure of null is removed. */
function jsonWith(document: string, part: Written, { path }: Place, text: string): string {
  const written = withAt(document, path, jsonValue(part, text));
  if (part !== 'failure') return written;
  const off = path.length === 0 ? 'null' : `${document} #- array[${path.map(literal).join(', ')}]`;
  return `case when ${text} is null then ${off} else ${written} end`;
}

const asJsonb = ({ sql, column }: Place): string => (column.type === 'jsonb' ? sql : `(${sql})::jsonb`);
const fromJsonb = ({ column }: Place, value: string): string =>
  column.type === 'jsonb' ? value : `(${value})::json`;

/** The assignments that lock one row: the end of the lock, given as a text, and with `marks` its mark. */
export function lockAssignments(table: DocumentTable, text: string, marks: boolean): string {
  const values = new Map<string, string>();
  for (const part of marks ? (['sleepUntil', 'mark'] as const) : (['sleepUntil'] as const)) {
    const place = placeOf(table, part);
    if (place === undefined) continue;
    const { name } = place.column;
    const value =
      place.kind === 'json'
        ? fromJsonb(
            place,
            jsonWith(
              values.has(name) ? `(${values.get(name) ?? ''})::jsonb` : asJsonb(place),
              part,
              place,
              text,
            ),
          )
        : columnValue(place, text);
    values.set(name, value);
  }
  return [...values].map(([name, value]) => `${quoted(name)} = ${value}`).join(', ');
}

/** What a batch writes to each column, as SQL expressions, and the joins that build these step by step. */
function columnsOf(table: DocumentTable): {
  readonly joins: string;
  readonly values: ReadonlyMap<string, string>;
} {
  const { parts } = table;
  const given = givenName(table);
  const values = new Map<string, string>();
  const joins: string[] = [];
  for (const part of WRITTEN) {
    const place = placeOf(table, part);
    if (place === undefined) continue;
    const { name } = place.column;
    const [isSet, text] = [`${given}.${quoted(`${part}_set`)}`, `${given}.${quoted(part)}`];
    if (place.kind !== 'json') {
      values.set(name, `case when ${isSet} then ${columnValue(place, text)} else ${place.sql} end`);
      continue;
    }
    // Several parts may be in one column; each builds on the one before.
    const before = values.get(name) ?? asJsonb(place);
    const step = `${given}_${part.toLowerCase()}`;
    joins.push(`cross join lateral (select ${before} as before) as ${step}_before`);
    const document = `${step}_before.before`;
    joins.push(
      `cross join lateral (select case when ${isSet} then ${jsonWith(document, part, place, text)} else ${document} end as after) as ${step}`,
    );
    values.set(name, `${step}.after`);
  }
  for (const place of Object.values(parts))
    if (place.kind === 'json' && values.has(place.column.name) && place.column.type === 'json')
      values.set(place.column.name, fromJsonb(place, values.get(place.column.name) ?? 'null'));
  return { joins: joins.join('\n'), values };
}

/** A condition: due time and schedule are still as expected. Times are compared in milliseconds. */
function fence(table: DocumentTable): string {
  const { sleepUntil } = table;
  const text = `${givenName(table)}.fence`;
  const same =
    sleepUntil.kind === 'json'
      ? `${textAt(sleepUntil)} is not distinct from ${text}`
      : `date_trunc('milliseconds', ${sleepUntil.sql}) is not distinct from ${columnValue(sleepUntil, text)}`;
  const said = `${givenName(table)}.revision`;
  return `(not ${givenName(table)}.fenced or ${same}) and (${said} is null or ${said} = ${revision(table)})`;
}

const byKey = (table: DocumentTable): string =>
  keyColumns(table)
    .map((key, at) => `${key} = ${givenName(table)}.k${String(at)}::${typeOf(table.shape.key[at] as Column)}`)
    .join(' and ');

/**
 * Returns true for each row that was written, and false for each that another open transaction holds: waiting for it
 * would hold up the rest of the batch. A row that is not returned has changed meanwhile, or is gone.
 */
export function writeStatement(
  table: DocumentTable,
  writes: readonly MarkedWrite[],
  removes: boolean,
): { readonly text: string; readonly args: DocumentParameters } {
  const args = new DocumentParameters();
  const { from, shape } = table;
  const [given, found] = [givenName(table), foundName(table)];
  const keys = keyColumns(table);
  const names = keys.map((_key, at) => `k${String(at)}`);
  const rows = args.json(writes.map((write, at) => givenOf(table, write, at)));
  const columns = [
    'i integer',
    ...names.map((name) => `${name} text`),
    'fenced boolean',
    'fence text',
    'revision text',
    ...WRITTEN.flatMap((part) => [`${quoted(`${part}_set`)} boolean`, `${quoted(part)} text`]),
  ];
  const { joins, values } = removes ? { joins: '', values: new Map<string, string>() } : columnsOf(table);
  const chosen = [
    `${given}.i`,
    ...keys.map((key, at) => `${key} as ${names[at] ?? ''}`),
    ...[...values.values()].map((value, at) => `${value} as c${String(at)}`),
  ];
  const same = keys.map((key, at) => `${key} = ${found}.${names[at] ?? ''}`).join(' and ');
  const set = [...values.keys()]
    .map((column, at) => `${quoted(column)} = ${found}.c${String(at)}`)
    .join(', ');
  const act = removes
    ? `delete from ${from} using ${found} where ${same}`
    : `update ${from} set ${set} from ${found} where ${same}`;
  const text = `with ${given} as materialized (
      select * from json_to_recordset(${rows}) as g(${columns.join(', ')})
    ), ${found} as materialized (
      select ${chosen.join(', ')} from ${given} join ${from} on ${byKey(table)} ${joins}
      where ${fence(table)} for update of ${quoted(shape.table)} skip locked
    ), tidemill_written as (${act} returning ${found}.i)
    select json_build_array(i, true)::text as json from tidemill_written
    union all
    select json_build_array(${given}.i, false)::text from ${given} join ${from} on ${byKey(table)}
    where ${fence(table)} and not exists (select from ${found} where ${found}.i = ${given}.i)`;
  return { text, args };
}

/** A renewal may write a mark as well. */
type MarkedWrite = DocumentWrite & { readonly mark?: Date };

const textOf = (value: Date | null | undefined): string | null =>
  value === null || value === undefined ? null : timeText(value);

/** Every value as a text, next to whether it is to be written. */
function givenOf({ shape }: DocumentTable, write: MarkedWrite, at: number): Record<string, unknown> {
  const { sleepUntil, autoRemove, failure }: DocumentChanges = 'changes' in write ? write.changes : {};
  return {
    i: at,
    ...Object.fromEntries(keyTexts(shape, write.id).map((text, index) => [`k${String(index)}`, text])),
    fenced: write.ifSleepUntil !== undefined,
    fence: textOf(write.ifSleepUntil),
    revision: write.ifRevision ?? null,
    sleepUntil_set: sleepUntil !== undefined,
    sleepUntil: textOf(sleepUntil),
    autoRemove_set: autoRemove !== undefined,
    autoRemove: autoRemove === null || autoRemove === undefined ? null : String(autoRemove),
    failure_set: failure !== undefined,
    failure: failure === null || failure === undefined ? null : JSON.stringify(failure),
    mark_set: write.mark !== undefined,
    mark: textOf(write.mark),
  };
}

/**
 * A search for due documents briefly locks the rows that it visits, even those that turn out to be locked documents.
 * These are the pauses between tries; after the last one the row counts as held.
 */
const PATIENCE_MS: readonly number[] = [5, 20, 80, 160];

async function writeAll(
  sql: Sql,
  table: DocumentTable,
  writes: readonly MarkedWrite[],
  removes: boolean,
): Promise<readonly boolean[]> {
  const written = writes.map(() => false);
  let left = writes.map((write, at) => ({ write, at }));
  for (const waitMs of [0, ...PATIENCE_MS]) {
    if (left.length === 0) return written;
    if (waitMs > 0) await pause(sql.clock, waitMs);
    const tried = left;
    const { text, args } = writeStatement(
      table,
      tried.map(({ write }) => write),
      removes,
    );
    const answers = new Map(await rowsOf<[number, boolean]>(sql.driver, text, args.texts));
    for (const [place, { at }] of tried.entries()) written[at] = answers.get(place) === true;
    left = tried.filter((_write, place) => answers.get(place) === false);
  }
  if (left.length === 0) return written;
  throw new StoreError('An open transaction holds a document whose outcome is to be recorded.', {
    transient: true,
  });
}

/** Writes updates in one statement and deletions in another, each row under its own precondition. */
export async function settle(
  sql: Sql,
  table: DocumentTable,
  writes: readonly MarkedWrite[],
): Promise<boolean[]> {
  const isRemoval = (write: DocumentWrite): boolean => 'remove' in write;
  const kinds = [true, false].map((removes) => writes.filter((write) => isRemoval(write) === removes));
  const [removed = [], updated = []] = await run(
    'record documents',
    () => Promise.all(kinds.map((kind, at) => writeAll(sql, table, kind, at === 0))),
    true,
  );
  const answers = { removed: [...removed], updated: [...updated] };
  return writes.map((write) => (isRemoval(write) ? answers.removed : answers.updated).shift() === true);
}
