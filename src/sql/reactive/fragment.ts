/** A condition that the user wrote in SQL. Its text is the user's own; its values are parameters, always. */
import { OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import { refusesText, timeText } from '../values.js';
import type { Arguments } from './arguments.js';

export interface Fragment {
  readonly sql: string;
  readonly values?: readonly unknown[];
}

/** What is no parameter and no bracket, however it looks: texts, names, comments; then what matters here. */
const TOKENS =
  /(?<skip>[eE]'(?:[^'\\]|\\[\s\S]|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*[\s\S]*?\*\/|(?<tag>\$(?:[A-Za-z_\u0080-\uffff][\w\u0080-\uffff]*)?\$)[\s\S]*?\k<tag>|[A-Za-z_\u0080-\uffff][\w$\u0080-\uffff]*)|\$(?<number>\d+)|(?<bracket>[()])|(?<end>;)|(?<open>['"]|\/\*|\$)/gu;

export const isFragment = (filter: unknown): filter is Fragment =>
  typeof filter === 'object' && filter !== null && Object.hasOwn(filter, 'sql');

const TYPES: readonly (readonly [(value: unknown) => boolean, string])[] = [
  [(value) => typeof value === 'string', 'text'],
  [(value) => typeof value === 'number' && Number.isFinite(value), 'numeric'],
  [(value) => typeof value === 'bigint', 'numeric'],
  [(value) => typeof value === 'boolean', 'boolean'],
  [(value) => value instanceof Date && !Number.isNaN(value.getTime()), 'timestamptz'],
  [(value) => value === null, 'text'],
];

const typeOfValue = (value: unknown): string | undefined => TYPES.find(([is]) => is(value))?.[1];

/** A value that was checked, as the text of a parameter. */
export function textOfValue(value: unknown): string | null {
  if (value === null) return null;
  return value instanceof Date ? timeText(value) : (value as string | number).toString();
}

interface Part {
  readonly text: string;
  /** Counts from 1. */
  readonly parameter?: number;
}

function partsOf(where: string, sql: string): readonly Part[] {
  const parts: Part[] = [];
  let depth = 0;
  let at = 0;
  const refuse = (why: string): OptionError =>
    new OptionError(`${where}: filter.sql ${why}; got ${show(sql)}.`);
  for (const match of sql.matchAll(TOKENS)) {
    const { number, bracket, end, open } = match.groups ?? {};
    if (end !== undefined) throw refuse('must be one condition, without a semicolon');
    if (open !== undefined) throw refuse('has a text, a name or a comment that does not end');
    if (bracket !== undefined) depth += bracket === '(' ? 1 : -1;
    if (depth < 0) break;
    if (number === undefined) continue;
    parts.push({ text: sql.slice(at, match.index) }, { text: match[0], parameter: Number(number) });
    at = match.index + match[0].length;
  }
  if (depth !== 0) throw refuse('must have as many closing brackets as opening ones');
  return [...parts, { text: sql.slice(at) }];
}

/** Refuses what cannot be run as one condition; throws. */
export function checkFragment(where: string, filter: Fragment): void {
  const { sql, values = [], ...others } = filter;
  const [unknown] = Object.keys(others);
  if (unknown !== undefined)
    throw new OptionError(`${where}: filter takes { sql, values } alone, and not "${unknown}" beside them.`);
  if (typeof (sql as unknown) !== 'string' || sql.trim() === '' || refusesText(sql) !== null)
    throw new OptionError(`${where}: filter.sql must be a condition such as 'total > $1', got ${show(sql)}.`);
  if (!Array.isArray(values))
    throw new OptionError(`${where}: filter.values must be a list, got ${show(values)}.`);
  for (const [index, value] of (values as unknown[]).entries()) {
    const fault = typeof value === 'string' ? refusesText(value) : null;
    if (typeOfValue(value) === undefined || fault !== null)
      throw new OptionError(
        `${where}: filter.values[${String(index)}] ${fault ?? `must be a text, number, boolean, Date or null, got ${show(value)}`}.`,
      );
  }
  const used = partsOf(where, sql).flatMap(({ parameter }) => parameter ?? []);
  const most = Math.max(0, ...used);
  if (most > values.length || used.includes(0) || new Set(used).size < values.length)
    throw new OptionError(
      `${where}: filter.sql uses ${used.length === 0 ? 'no parameter' : `parameters up to $${String(most)}`}, and ` +
        `filter.values has ${String(values.length)}; each value must be used, and each parameter have one.`,
    );
}

/** The condition, its parameters under the numbers that they have in the whole statement. */
export function fragmentSql(filter: Fragment, args: Arguments): string {
  const values = (filter.values ?? []).map((value) =>
    args.add(textOfValue(value), typeOfValue(value) ?? 'text'),
  );
  return partsOf('filter', filter.sql)
    .map(({ text, parameter }) => (parameter === undefined ? text : (values[parameter - 1] as string)))
    .join('');
}
