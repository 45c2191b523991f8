/** Lists and counts rows with schedules, for people. */
import { OptionError } from '../../core/errors.js';
import type { DocumentQuery, DocumentState, FoundDocuments } from '../../store/documents.js';
import type { Sql } from '../connection/connection.js';
import { asText, isDue, isOneOf, ISO, matching, NOW, sortKey } from './lock.js';
import { DocumentParameters } from './parameters.js';
import { idJson, keyTexts, readJob, rowJson } from './row.js';
import { keyColumns, textAt, type DocumentTable, type Place } from './table.js';
import { isTimeLimit, isUnstorable, run } from '../connection/errors.js';
import { withinLimit } from '../connection/time-limit.js';
import { typeOf, type Column } from '../tables/shape.js';
import { conditionOf } from '../tables/translate.js';
import { isStorable, timeText } from '../connection/values.js';

/** Time limit for filters that no index serves. */
const TIME_LIMIT_MS = 5_000;

const hasTime = (place: Place): string =>
  place.kind === 'json'
    ? `${textAt(place)} ~ ${ISO}`
    : `${place.sql} > '-infinity' and ${place.sql} < 'infinity'`;

const isNull = (place: Place): string =>
  place.kind === 'json' ? `${textAt(place)} is null` : `${place.sql} is null`;

function bounded(place: Place, operator: '<=' | '>=' | '>', time: string): string {
  if (place.kind === 'json') return `${sortKey(place)} ${operator} ${asText(time)}`;
  return `${place.sql} ${operator} ${place.kind === 'timestamp' ? `((${time}) at time zone 'UTC')` : `(${time})`}`;
}

/** A SQL expression: whether the last run failed for good. */
const hasEnded = ({ parts }: DocumentTable): string =>
  parts.failure === undefined
    ? 'false'
    : `coalesce(${textAt({ ...parts.failure, path: [...parts.failure.path, 'ended'] })} = 'true', false)`;

function stateCondition(table: DocumentTable, states: readonly DocumentState[]): string {
  const { sleepUntil } = table;
  const all: Readonly<Record<DocumentState, string>> = {
    due: isDue(sleepUntil, NOW),
    waiting: `${bounded(sleepUntil, '>', NOW)} and ${hasTime(sleepUntil)}`,
    failed: `${isNull(sleepUntil)} and ${hasEnded(table)}`,
    parked: `${isNull(sleepUntil)} and not ${hasEnded(table)}`,
  };
  if (states.includes('due') && states.includes('waiting')) return hasTime(sleepUntil);
  return `(${states.map((state) => `(${all[state]})`).join(' or ') || 'false'})`;
}

/** Parses the `key` of an earlier answer: the parts of the primary key, as texts. */
function keyOfText({ shape }: DocumentTable, text: string): readonly string[] | undefined {
  try {
    const parts = JSON.parse(text) as unknown;
    const fits = Array.isArray(parts) && parts.length === shape.key.length;
    return fits && parts.every((part) => typeof part === 'string' && isStorable(part))
      ? (parts as string[])
      : undefined;
  } catch {
    return undefined;
  }
}

const idOf = ({ shape }: DocumentTable, texts: readonly string[]): unknown =>
  texts.length === 1 ? texts[0] : Object.fromEntries(shape.key.map(({ name }, at) => [name, texts[at]]));

const isTimed = ({ states }: DocumentQuery): boolean =>
  states?.some((state) => state === 'due' || state === 'waiting') === true;

function afterCondition(table: DocumentTable, query: DocumentQuery, args: DocumentParameters): string[] {
  const { after, direction } = query;
  const texts = after && keyOfText(table, after.key);
  if (after === undefined || texts === undefined) return [];
  const keys = texts.map((text, at) => `${args.add(text, 'text')}::${typeOf(table.shape.key[at] as Column)}`);
  const at = after.at === null ? undefined : `${args.add(timeText(after.at), 'text')}::timestamptz`;
  const { sleepUntil } = table;
  const time =
    at === undefined || !isTimed(query)
      ? []
      : [
          sleepUntil.kind === 'json'
            ? asText(at)
            : sleepUntil.kind === 'timestamp'
              ? `(${at} at time zone 'UTC')`
              : at,
        ];
  const columns = [...(time.length === 0 ? [] : [sortKey(sleepUntil)]), ...keyColumns(table)];
  return [`(${columns.join(', ')}) ${direction === 1 ? '>' : '<'} (${[...time, ...keys].join(', ')})`];
}

function findDocumentsStatement(
  table: DocumentTable,
  query: DocumentQuery,
): { readonly text: string; readonly args: DocumentParameters } {
  const args = new DocumentParameters();
  const { sleepUntil, from } = table;
  const all = [...conditions(table, query, args), ...afterCondition(table, query, args)];
  const order = query.direction === 1 ? 'asc' : 'desc';
  const sorted = [...(isTimed(query) ? [sortKey(sleepUntil)] : []), ...keyColumns(table)];
  const text = `select json_build_object('id', ${idJson(table)}, 'row', ${rowJson(table)})::text as json from ${from}
    where ${all.join(' and ')}
    order by ${sorted.map((column) => `${column} ${order}`).join(', ')} limit ${args.add(String(query.limit + 1), 'integer')}`;
  return { text, args };
}

type Asked = Omit<DocumentQuery, 'direction' | 'after'>;

function conditions(table: DocumentTable, query: Asked, args: DocumentParameters): string[] {
  const { where, shape, sleepUntil, parts } = table;
  const { states, keys, error, data, sleepUntil: range } = query;
  const ids = keys?.flatMap((text) => {
    const texts = keyOfText(table, text);
    return texts === undefined ? [] : [idOf(table, texts)];
  });
  const reason = parts.failure && { ...parts.failure, path: [...parts.failure.path, 'reason'] };
  const fields = data === undefined ? undefined : conditionOf(`${where}: data`, shape, data, args);
  return [
    matching(table, args),
    ...(states === undefined ? [] : [stateCondition(table, states)]),
    ...(ids === undefined ? [] : [isOneOf(table, ids, args)]),
    ...(error === undefined
      ? []
      : [
          reason && isStorable(error)
            ? `strpos(lower(${textAt(reason)}), lower(${args.add(error, 'text')})) > 0`
            : 'false',
        ]),
    ...(fields === undefined ? [] : [fields]),
    ...(range?.from === undefined
      ? []
      : [bounded(sleepUntil, '>=', `${args.add(timeText(range.from), 'text')}::timestamptz`)]),
    ...(range?.to === undefined
      ? []
      : [bounded(sleepUntil, '<=', `${args.add(timeText(range.to), 'text')}::timestamptz`)]),
  ];
}

export async function countDocuments({ driver }: Sql, table: DocumentTable, query: Asked): Promise<number> {
  const args = new DocumentParameters();
  const all = conditions(table, query, args);
  const text = `select count(*)::text as json from (
    select from ${table.from} where ${all.join(' and ')} limit ${args.add(String(query.limit), 'integer')}) counted`;
  const what = 'count documents';
  const { rows } = await run(what, () =>
    withinLimit(driver, what, TIME_LIMIT_MS, (on) => on.query(text, args.texts)),
  );
  return Number(rows[0]?.['json'] ?? 0);
}

const NOTHING = { documents: [], more: false } as const;

export async function findDocuments(
  { driver }: Sql,
  table: DocumentTable,
  query: DocumentQuery,
): Promise<FoundDocuments<Record<string, unknown>>> {
  const { text, args } = findDocumentsStatement(table, query);
  return run('find documents', async () => {
    try {
      const rows = await driver.transaction(async (transaction) => {
        await transaction.query(`select set_config('statement_timeout', $1::text, true)`, [
          String(TIME_LIMIT_MS),
        ]);
        return (await transaction.query(text, args.texts)).rows;
      });
      const found = rows.slice(0, query.limit).map(({ json }) => {
        const job = readJob(table, json as string);
        return { key: JSON.stringify(keyTexts(table.shape, job.id)), job };
      });
      return { documents: found, more: rows.length > query.limit, partial: false };
    } catch (error) {
      if (isTimeLimit(error)) return { ...NOTHING, partial: true };
      // A value that the column's type cannot hold matches no row.
      if (isUnstorable(error) && !(error instanceof OptionError)) return { ...NOTHING, partial: false };
      throw error;
    }
  });
}
