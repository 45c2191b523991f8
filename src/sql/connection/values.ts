import { HALF_PAIR } from '../../core/options.js';
import { setOwn } from '../../core/set-own.js';

/**
 * How values are stored in jsonb. JSON has no dates, and jsonb no negative zero. Each becomes an object with one key
 * that says what it is: `{ "$date": "2026-…Z" }` or `{ "$number": "-0" }`. A user's own object of that shape gets one
 * more `$`, which reading removes.
 */
const MARK = /^\$+(?:date|number)$/u;
/** Every marked value contains this. Most texts do not, and need no closer look. */
const HINT = '"$';

export function toStored(value: unknown): unknown {
  if (typeof value !== 'object') return Object.is(value, -0) ? { $number: '-0' } : value;
  if (value === null) return null;
  if (value instanceof Date) return { $date: value.toISOString() };
  if (Array.isArray(value)) return value.map(toStored);
  const entries = Object.entries(value);
  const [only] = entries;
  if (entries.length === 1 && only !== undefined && MARK.test(only[0]))
    return { [`$${only[0]}`]: toStored(only[1]) };
  return Object.fromEntries(entries.map(([key, item]) => [key, toStored(item)]));
}

/** Takes a value that was just parsed, and changes it in place. */
export function fromStored(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) value[index] = fromStored(item);
    return value;
  }
  const keys = Object.keys(value);
  const [key] = keys;
  if (keys.length === 1 && key !== undefined && MARK.test(key)) return unmarked(key, Reflect.get(value, key));
  for (const name of keys) {
    const item: unknown = Reflect.get(value, name);
    if (typeof item === 'object' && item !== null) setOwn(value, name, fromStored(item));
  }
  return value;
}

function unmarked(key: string, item: unknown): unknown {
  if (key === '$date') return new Date(String(item));
  if (key === '$number') return Number(item);
  return { [key.slice(1)]: fromStored(item) };
}

/** True if the text of a row may contain marked values. */
export const mayBeMarked = (json: string): boolean => json.includes(HINT);

/** Why PostgreSQL cannot store a text; null if it can. */
export function refusesText(text: string): string | null {
  if (text.includes('\0')) return 'has U+0000, which PostgreSQL cannot store';
  return text.isWellFormed() ? null : HALF_PAIR;
}

export const isStorable = (text: string): boolean => refusesText(text) === null;

/** For text that only people read, such as an error message: replaces characters that cannot be stored. */
export const readable = (text: string): string => text.replaceAll(/\0|\p{Surrogate}/gu, '\uFFFD');

/** PostgreSQL reads ISO 8601 years from 0001 on; earlier times are raised to this one. */
const FIRST = Date.parse('0001-01-01T00:00:00Z');

/** Outcomes of the same moment share their times, and formatting a date is slow. */
const written = new Map<number, string>();
const MOST_WRITTEN = 1_000;

/** A time as the text of a parameter. JavaScript writes a year of five digits with a sign, PostgreSQL without one. */
export function timeText(at: Date): string {
  const time = Math.max(FIRST, at.getTime());
  const known = written.get(time);
  if (known !== undefined) return known;
  if (written.size === MOST_WRITTEN) written.clear();
  const text = new Date(time).toISOString().replace(/^\+0?/u, '');
  written.set(time, text);
  return text;
}
