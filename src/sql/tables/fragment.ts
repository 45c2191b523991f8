/** Conditions that users write in SQL: the tag that makes them, and how they become part of a statement. */
import { OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import { isSqlFragment, SqlFragment } from '../../core/text/sql-fragment.js';
import { refusesText, timeText } from '../connection/values.js';
import type { Arguments } from './arguments.js';

/** What may be interpolated: a value, which becomes a parameter, or another fragment, which is put in parentheses. */
export type SqlValue = string | number | bigint | boolean | Date | null | SqlFragment;

/**
 * First what can contain neither a parameter nor a bracket: texts, names and comments. Then the tokens that matter
 * here.
 */
const TOKENS =
  /(?<skip>[eE]'(?:[^'\\]|\\[\s\S]|'')*'|'(?:[^']|'')*'|"(?:[^"]|"")*"|--[^\n]*|\/\*[\s\S]*?\*\/|(?<tag>\$(?:[A-Za-z_\u0080-\uffff][\w\u0080-\uffff]*)?\$)[\s\S]*?\k<tag>|[A-Za-z_\u0080-\uffff][\w$\u0080-\uffff]*)|\$(?<number>\d+)|(?<bracket>[()])|(?<end>;)|(?<open>['"]|\/\*|\$)/gu;

const TYPES: readonly (readonly [(value: unknown) => boolean, string])[] = [
  [(value) => typeof value === 'string', 'text'],
  [(value) => typeof value === 'number' && Number.isFinite(value), 'numeric'],
  [(value) => typeof value === 'bigint', 'numeric'],
  [(value) => typeof value === 'boolean', 'boolean'],
  [(value) => value instanceof Date && !Number.isNaN(value.getTime()), 'timestamptz'],
  [(value) => value === null, 'text'],
];

const typeOfValue = (value: unknown): string | undefined => TYPES.find(([is]) => is(value))?.[1];

/** A checked value as the text of a parameter. */
export function textOfValue(value: unknown): string | null {
  if (value === null) return null;
  return value instanceof Date ? timeText(value) : (value as string | number).toString();
}

interface Part {
  readonly text: string;
  /** Counts from 1. */
  readonly parameter?: number;
}

/** The text and its parameters in turn, as the server reads them. */
function partsOf(text: string): readonly Part[] {
  const parts: Part[] = [];
  let at = 0;
  for (const match of text.matchAll(TOKENS)) {
    const number = match.groups?.['number'];
    if (number === undefined) continue;
    parts.push({ text: text.slice(at, match.index) }, { text: match[0], parameter: Number(number) });
    at = match.index + match[0].length;
  }
  return [...parts, { text: text.slice(at) }];
}

/** The text of a fragment, its parameters renamed as in the statement or fragment that it becomes part of. */
const renamed = (fragment: SqlFragment, nameOf: (parameter: number) => string): string =>
  partsOf(fragment.text)
    .map(({ text, parameter }) => (parameter === undefined ? text : nameOf(parameter)))
    .join('');

const refusal = (why: string, text: string): OptionError =>
  new OptionError(`sql\`…\`: ${why}; got ${show(text)}.`);

/** A template that is being put together. */
class Composition {
  text = '';
  readonly values: unknown[] = [];
  /** What each `${…}` begins with, by its position in the text. */
  readonly places = new Map<number, string>();

  add(value: SqlValue): void {
    const before = this.values.length;
    const name = (parameter: number): string => `$${String(before + parameter)}`;
    this.places.set(this.text.length, isSqlFragment(value) ? '(' : name(1));
    if (isSqlFragment(value)) {
      // The line break ends a comment that the fragment may end with.
      this.text += `(${renamed(value, name)}\n)`;
      this.values.push(...value.values);
    } else {
      checkValue(before + 1, value);
      this.text += name(1);
      this.values.push(value);
    }
  }
}

function checkValue(number: number, value: unknown): void {
  const fault = typeof value === 'string' ? refusesText(value) : null;
  if (typeOfValue(value) !== undefined && fault === null) return;
  const why =
    fault ?? `must be a string, number, bigint, boolean, Date, null or another fragment, got ${show(value)}`;
  throw new OptionError(`sql\`…\`: value ${String(number)} ${why}.`);
}

/** Rejects text that cannot run as one condition, and values in places where no value can stand. */
function checkText({ text, values, places }: Composition): void {
  let depth = 0;
  let parameters = 0;
  const open = new Map(places);
  for (const { 0: token, index, groups = {} } of text.matchAll(TOKENS)) {
    if (groups['end'] !== undefined) throw refusal('must be one condition, without a semicolon', text);
    if (groups['open'] !== undefined)
      throw refusal('has a string, a quoted name or a comment that does not end', text);
    if (open.get(index) === token) open.delete(index);
    if (groups['number'] !== undefined) parameters += 1;
    if (groups['bracket'] !== undefined) depth += token === '(' ? 1 : -1;
    if (depth < 0) break;
  }
  if (depth !== 0) throw refusal('must have as many closing brackets as opening ones', text);
  if (open.size > 0)
    throw refusal('${…} cannot stand inside quotes or a comment, nor touch a name or a number', text);
  if (parameters !== values.length)
    throw refusal('write each value as ${…}; a parameter such as $1 is numbered by the tag', text);
}

/**
 * A condition in SQL, for `filter`, `sourceDocFilter` and `condition`: sql`total > ${100} and not archived`. Each value
 * is sent as a parameter. Backslashes reach the server as written.
 */
export function sql(strings: TemplateStringsArray, ...values: readonly SqlValue[]): SqlFragment {
  // Parsed JSON is never an array with a property of its own, so it cannot pass for a template.
  const raw: unknown = Array.isArray(strings) && Object.hasOwn(strings, 'raw') ? strings.raw : undefined;
  if (!Array.isArray(raw))
    throw new OptionError(`sql is a template tag: write sql\`total > \${100}\`, not sql(${show(strings)}).`);
  const composition = new Composition();
  for (const [at, text] of (raw as readonly string[]).entries()) {
    composition.text += text;
    if (at < values.length) composition.add(values[at] as SqlValue);
  }
  const { text } = composition;
  const fault = refusesText(text);
  if (text.trim() === '') throw refusal('must be a condition such as sql`total > ${100}`', text);
  if (fault !== null) throw refusal(fault, text);
  checkText(composition);
  return new SqlFragment(text, composition.values);
}

/** The condition, its parameters numbered as in the whole statement. */
export function fragmentSql(fragment: SqlFragment, args: Arguments): string {
  const values = fragment.values.map((value) => args.add(textOfValue(value), typeOfValue(value) ?? 'text'));
  return renamed(fragment, (parameter) => values[parameter - 1] as string);
}
