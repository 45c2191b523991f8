import { closest, distance } from 'fastest-levenshtein';
import { hideCredentials } from './text/credentials.js';
import { OptionError } from './errors.js';
import { calledHere } from './foreign-options.js';

/** Formats a value for an error message: short, recognisable, and without credentials. */
export function show(value: unknown): string {
  if (typeof value === 'string') {
    // A misplaced argument may be a database URL.
    const safe = hideCredentials(value);
    return JSON.stringify(safe.length > 60 ? `${safe.slice(0, 57)}...` : safe);
  }
  if (typeof value === 'function') return 'a function';
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? 'an invalid Date' : value.toISOString();
  if (typeof value === 'bigint') return `${String(value)}n`;
  if (typeof value !== 'object' || value === null) return String(value);
  if (Array.isArray(value)) return `an array of ${String(value.length)}`;
  const prototype = Object.getPrototypeOf(value) as { constructor?: { name?: string } } | null;
  return prototype === Object.prototype
    ? 'a plain object'
    : `an instance of ${prototype?.constructor?.name ?? 'nothing'}`;
}

/** " Did you mean …?" with a known name that shares the beginning or is spelled alike, or '' if none is close. */
export function suggestion(key: string, known: readonly string[]): string {
  const given = key.toLowerCase();
  const alike = (name: string): boolean => {
    const other = name.toLowerCase();
    if (given.length > 1 && (other.startsWith(given) || given.startsWith(other))) return true;
    return distance(given, other) <= other.length / 3;
  };
  const near = known.filter(alike);
  return near.length > 0 ? ` Did you mean "${closest(key, near)}"?` : '';
}

/** Reads an option that has two names. Throws an OptionError if both are given. */
export function eitherName<O extends object, Name extends keyof O, Alias extends keyof O>(
  where: string,
  options: O,
  name: Name,
  alias: Alias,
): O[Name] | O[Alias] {
  if (options[name] !== undefined && options[alias] !== undefined)
    throw new OptionError(`${where}: ${String(alias)} is another name of ${String(name)}; pass one of them.`);
  return options[name] ?? options[alias];
}

/** Options of another call that a caller may look for here: their names, and that call. */
export interface Elsewhere {
  readonly keys: readonly string[];
  readonly call: string;
}

/**
 * Throws unless `options` is an object with known keys only. `undefined` counts as an empty object. An option that
 * belongs `elsewhere` is answered with the call that takes it.
 */
export function checkKeys(
  where: string,
  options: unknown,
  known: readonly string[],
  elsewhere?: Elsewhere,
): void {
  if (options === undefined) return;
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new OptionError(`${where}: options must be an object, got ${show(options)}.`);
  }
  for (const key of Object.keys(options)) {
    if (known.includes(key)) continue;
    const hint =
      elsewhere?.keys.includes(key) === true
        ? ` It belongs to ${elsewhere.call}.`
        : calledHere(key, known) || suggestion(key, known);
    throw new OptionError(`${where}: unknown option "${key}".${hint} Known options: ${known.join(', ')}.`);
  }
}

export function checkText(where: string, option: string, value: unknown): string {
  if (typeof value === 'string' && value.trim() !== '') return value;
  throw new OptionError(`${where}: ${option} must be a non-empty string, got ${show(value)}.`);
}

/** A lone surrogate is not a character: a database rejects it or stores a different text. */
export const HALF_PAIR = 'has half of a surrogate pair, which no database can store';

/** Checks a text that will be stored: a name, a key, an id. */
export function checkName(where: string, option: string, value: unknown): string {
  const text = checkText(where, option, value);
  if (text.isWellFormed()) return text;
  throw new OptionError(`${where}: ${option} ${HALF_PAIR}; use another one (got ${show(text)}).`);
}

export function checkInteger(
  where: string,
  option: string,
  value: unknown,
  min: number,
  max: number,
): number {
  if (typeof value === 'number' && Number.isInteger(value) && value >= min && value <= max) return value;
  const range =
    max === Number.MAX_SAFE_INTEGER ? `of at least ${String(min)}` : `from ${String(min)} to ${String(max)}`;
  throw new OptionError(`${where}: ${option} must be a whole number ${range}, got ${show(value)}.`);
}

export function checkBoolean(where: string, option: string, value: unknown): boolean {
  if (typeof value === 'boolean') return value;
  throw new OptionError(`${where}: ${option} must be true or false, got ${show(value)}.`);
}

export function checkDate(where: string, option: string, value: unknown): Date {
  if (value instanceof Date && !Number.isNaN(value.getTime())) return value;
  throw new OptionError(`${where}: ${option} must be a valid Date, got ${show(value)}.`);
}

export function checkFunction(where: string, option: string, value: unknown): void {
  if (typeof value === 'function') return;
  throw new OptionError(`${where}: ${option} must be a function, got ${show(value)}.`);
}

export function checkOneOf<T extends string>(
  where: string,
  option: string,
  value: unknown,
  known: readonly T[],
): T {
  if (typeof value === 'string' && (known as readonly string[]).includes(value)) return value as T;
  const hint = typeof value === 'string' ? suggestion(value, known) : '';
  throw new OptionError(`${where}: ${option} must be one of ${known.join(', ')}, got ${show(value)}.${hint}`);
}

/** The `limit` of a count. Default: Infinity. */
export function checkMost(where: string, options: { readonly limit?: number }): number {
  checkKeys(where, options, ['limit']);
  return options.limit === undefined
    ? Infinity
    : checkInteger(where, 'limit', options.limit, 1, Number.MAX_SAFE_INTEGER);
}

/** A time range; either end may be open. */
export function checkRange(where: string, value: unknown): { readonly from?: Date; readonly to?: Date } {
  if (value instanceof Date || typeof value !== 'object')
    throw new OptionError(`${where} must be { from?, to? } with dates, got ${show(value)}.`);
  checkKeys(where, value, ['from', 'to']);
  const { from, to } = value as { from?: unknown; to?: unknown };
  return {
    ...(from === undefined ? {} : { from: checkDate(where, 'from', from) }),
    ...(to === undefined ? {} : { to: checkDate(where, 'to', to) }),
  };
}
