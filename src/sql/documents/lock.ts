import type { DocumentJob, DocumentLook, Misfit } from '../../store/documents.js';
import type { Sql } from '../connection/connection.js';
import { DocumentParameters } from './parameters.js';
import { idJson, jobJson, keyTexts, readJob } from './row.js';
import { keyColumns, textAt, unlike, type DocumentTable, type Place } from './table.js';
import { lockAssignments } from './write.js';
import { run } from '../connection/errors.js';
import { parseExact } from '../tables/exact.js';
import { typeOf, type Column } from '../tables/shape.js';
import { conditionOf } from '../tables/translate.js';
import { timeText } from '../connection/values.js';

/** Times inside JSON are texts of this one form, and are compared as texts. */
export const ISO = `'^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d\\.\\d{3}Z$'`;
export const asText = (time: string): string =>
  `to_char((${time}) at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')`;

/** The SQL expression that due times sort by. It may be indexed. */
export const sortKey = (place: Place): string =>
  place.kind === 'json' ? `(${textAt(place)} collate "C")` : place.sql;

/** A condition: due at the time `time`, a SQL expression. */
export function isDue(place: Place, time: string): string {
  if (place.kind === 'json') return `${sortKey(place)} <= ${asText(time)} and ${textAt(place)} ~ ${ISO}`;
  const bound = place.kind === 'timestamp' ? `((${time}) at time zone 'UTC')` : `(${time})`;
  return `${place.sql} <= ${bound} and ${place.sql} > '-infinity'`;
}

/** From the first text up to, but not including, the second. */
type TextRange = readonly [from: string, to: string];

/**
 * The ranges between the times of one century and the next, from the year 2000 on: texts such as `25 December`, whose
 * third character is no digit. Looks take turns with them, one range each, so that a look reads a few pages only.
 */
const BETWEEN_CENTURIES: readonly [TextRange, ...TextRange[]] = [
  ['20', '200'],
  ...Array.from({ length: 20 }, (_, at): TextRange => [
    `${String(20 + at)}:`,
    at === 19 ? '4' : `${String(21 + at)}0`,
  ]),
];

/** The range that a look asks for. */
const rangeOf = (look: number): TextRange =>
  BETWEEN_CENTURIES[look % BETWEEN_CENTURIES.length] ?? BETWEEN_CENTURIES[0];

/**
 * A condition: neither a time nor null. It consists of ranges, so that an index serves it: texts that sort before every
 * time, before the present, between two centuries, or after any time that is planned for. A text that begins like a
 * future time is found once that time has come.
 */
function isMisfit(place: Place, time: string, [from, to]: TextRange, args: DocumentParameters): string {
  if (place.kind !== 'json') return `${place.sql} = '-infinity'`;
  const text = sortKey(place);
  const between = `(${text} >= ${args.add(from, 'text')} and ${text} < ${args.add(to, 'text')})`;
  return `((${text} <= ${asText(time)} or ${text} >= '4' or ${between}) and ${textAt(place)} !~ ${ISO})`;
}

export const NOW = 'statement_timestamp()';

export const matching = ({ where, shape, condition }: DocumentTable, args: DocumentParameters): string => {
  const sql = conditionOf(where, shape, condition, args);
  return sql === undefined ? 'true' : `(${sql}\n)`;
};

export interface LockRequest {
  readonly lockUntil: Date;
  readonly limit: number;
  readonly marks?: boolean;
  readonly notAfter?: Date | undefined;
}

/**
 * Skips rows that other transactions hold. A lock that has already ended by the server's clock would let another
 * instance in at once. In that case the estimate of that clock was wrong, and nothing is locked. Nor is anything after
 * the permits behind the lock have ended.
 */
export function lockStatement(
  table: DocumentTable,
  { lockUntil, limit, guarded, marks = false, notAfter }: LockRequest & { readonly guarded: boolean },
): { readonly text: string; readonly args: DocumentParameters } {
  const { from, sleepUntil } = table;
  const args = new DocumentParameters();
  const until = args.add(timeText(lockUntil), 'text');
  const due = unlike(table, 'tidemill_due');
  const keys = keyColumns(table);
  const guards = [
    ...(guarded ? [`${until}::timestamptz > ${NOW}`] : []),
    ...(notAfter === undefined
      ? []
      : [`${args.add(timeText(notAfter), 'text')}::timestamptz >= clock_timestamp()`]),
  ];
  const text = `with ${due} as materialized (
      select ${keys.map((key, at) => `${key} as k${String(at)}`).join(', ')},
        ${jobJson(table)} as json
      from ${from}
      where ${isDue(sleepUntil, NOW)} and ${[matching(table, args), ...guards].join(' and ')}
      order by ${sortKey(sleepUntil)} limit ${args.add(String(limit), 'integer')}
      for update skip locked
    )
    update ${from} set ${lockAssignments(table, until, marks)}
    from ${due} where ${keys.map((key, at) => `${key} = ${due}.k${String(at)}`).join(' and ')}
    returning ${due}.json`;
  return { text, args };
}

export async function lock(
  { driver, clock }: Sql,
  table: DocumentTable,
  request: LockRequest,
): Promise<readonly DocumentJob[]> {
  const guarded = request.lockUntil.getTime() > clock.now();
  const { text, args } = lockStatement(table, { ...request, guarded });
  const { rows } = await run('lock documents', () => driver.prepared.query(text, args.texts), true);
  const jobs = rows.map(({ json }) => readJob(table, json as string));
  return jobs.sort((a, b) => Number(a.sleepUntil) - Number(b.sleepUntil));
}

/** Reads a row by its id, whatever its state. */
export async function readOne(
  { driver }: Sql,
  table: DocumentTable,
  id: unknown,
): Promise<DocumentJob | undefined> {
  const args = new DocumentParameters();
  const text = `select ${jobJson(table)} as json from ${table.from} where ${isOneOf(table, [id], args)}`;
  const { rows } = await run('read a document', () => driver.query(text, args.texts));
  return rows.map(({ json }) => readJob(table, json as string))[0];
}

/** The search for due rows by itself, to be explained. */
export function dueStatement(table: DocumentTable): {
  readonly text: string;
  readonly args: DocumentParameters;
} {
  const { from, sleepUntil } = table;
  const args = new DocumentParameters();
  const text = `select 1 from ${from} where ${isDue(sleepUntil, NOW)} and ${matching(table, args)}
    order by ${sortKey(sleepUntil)} limit 1`;
  return { text, args };
}

const MOST_MISFITS = 10;
/** One year, so that the end of the look-ahead stays a valid time. */
const LONGEST_MS = 365 * 86_400_000;

/** A condition: the row has one of these ids. */
export function isOneOf(table: DocumentTable, ids: readonly unknown[], args: DocumentParameters): string {
  const { key } = table.shape;
  const given = unlike(table, 'tidemill_given');
  const texts = ids.map((id) =>
    Object.fromEntries(keyTexts(table.shape, id).map((text, at) => [`k${String(at)}`, text])),
  );
  const columns = key.map((_column, at) => `k${String(at)} text`).join(', ');
  const same = keyColumns(table).map(
    (name, at) => `${name} = ${given}.k${String(at)}::${typeOf(key[at] as Column)}`,
  );
  return `exists (select from json_to_recordset(${args.json(texts)}) as ${given}(${columns}) where ${same.join(' and ')})`;
}

export interface LookRequest {
  readonly withinMs: number;
  /** Misfits that were already reported. */
  readonly known: readonly unknown[];
  /** The number of this look: each one searches only a part of the misfits. */
  readonly turn?: number;
}

/** Returns one row: when the next document is due, the misfits, and the server's time. */
export function lookStatement(
  table: DocumentTable,
  { withinMs, known, turn = 0 }: LookRequest,
): { readonly text: string; readonly args: DocumentParameters } {
  const { from, sleepUntil } = table;
  const args = new DocumentParameters();
  const within = `${NOW} + ${args.add(String(Math.min(withinMs, LONGEST_MS) / 1_000), 'double precision')} * interval '1 second'`;
  const due =
    sleepUntil.kind === 'timestamp' ? `(${sleepUntil.sql} at time zone 'UTC')` : sortKey(sleepUntil);
  const matches = matching(table, args);
  const unknown = known.length === 0 ? '' : ` and not ${isOneOf(table, known, args)}`;
  const text = `select json_build_object(
      'now', (extract(epoch from ${NOW}) * 1000)::text,
      'due', (select to_json(${due}) from ${from} where ${isDue(sleepUntil, within)} and ${matches}
        order by ${sortKey(sleepUntil)} limit 1),
      'misfits', (select coalesce(json_agg(m), '[]') from (
        select ${idJson(table)} as id, ${sleepUntil.kind === 'json' ? textAt(sleepUntil) : `${sleepUntil.sql}::text`} as value
        from ${from} where ${isMisfit(sleepUntil, NOW, rangeOf(turn), args)} and ${matches}${unknown}
        limit ${String(MOST_MISFITS)}) m)
    )::text as json`;
  return { text, args };
}

export async function look(
  { driver, clock }: Sql,
  table: DocumentTable,
  request: LookRequest,
): Promise<DocumentLook> {
  const { text, args } = lookStatement(table, request);
  const sentAt = clock.monotonic();
  const { rows } = await run('look for documents', () => driver.prepared.query(text, args.texts));
  const seen = parseExact(rows[0]?.['json'] as string) as {
    readonly now: string;
    readonly due: string | null;
    readonly misfits: readonly Misfit[];
  };
  clock.learn(new Date(Math.floor(Number(seen.now))), sentAt, clock.monotonic());
  const dueAt = seen.due === null ? Number.NaN : new Date(seen.due).getTime();
  return {
    // A text that only looks like a time counts as due: the lock finds it, and parks it.
    dueInMs: seen.due === null ? null : Number.isNaN(dueAt) ? 0 : dueAt - Number(seen.now),
    misfits: seen.misfits,
  };
}
