/** Filters that compare fields of a payload or a document with plain values. They are safe to take from user input. */
import { OptionError } from './errors.js';
import { show } from './options.js';

/** A value that a field is compared with. */
export type Scalar = string | number | boolean | null;

/** Dot paths and the value each must have. In an array, on the path or at its end, one matching item is enough. */
export type FieldValues = Readonly<Record<string, Scalar>>;

const MOST_PATHS = 10;
const LONGEST_PATH = 200;
/** Never data; assigning to them could pollute a prototype. */
const NO_KEYS: ReadonlySet<string> = new Set(['__proto__', 'constructor', 'prototype']);

const isKey = (key: string): boolean =>
  key !== '' && !key.startsWith('$') && !key.includes('\0') && !NO_KEYS.has(key);

export const isFieldPath = (path: string): boolean =>
  path.length <= LONGEST_PATH && path.split('.').every(isKey);

const isScalar = (value: unknown): value is Scalar =>
  value === null ||
  typeof value === 'string' ||
  typeof value === 'boolean' ||
  (typeof value === 'number' && Number.isFinite(value));

/** Other objects, such as a Map, may have no own keys. An empty filter would match everything. */
const isPlainObject = (value: unknown): value is object =>
  typeof value === 'object' &&
  value !== null &&
  [Object.prototype, null].includes(Object.getPrototypeOf(value) as object | null);

/** Allow-list: accepts only paths of plain keys, and values that no database interprets as an operator. */
export function checkFieldValues(where: string, option: string, given: unknown): FieldValues {
  if (!isPlainObject(given))
    throw new OptionError(
      `${where}: ${option} must map paths to values, such as { 'user.id': 5 }; got ${show(given)}.`,
    );
  const entries = Object.entries(given) as [string, unknown][];
  if (entries.length > MOST_PATHS)
    throw new OptionError(
      `${where}: ${option} can compare at most ${String(MOST_PATHS)} paths, got ${String(entries.length)}.`,
    );
  for (const [path, value] of entries) {
    if (!isFieldPath(path))
      throw new OptionError(
        `${where}: ${option} has the path ${show(path)}; a path is made of keys and dots, such as 'user.id'.`,
      );
    if (!isScalar(value))
      throw new OptionError(
        `${where}: ${option} compares ${show(path)} with ${show(value)}; the value must be a string, a number, true, false or null.`,
      );
  }
  return Object.fromEntries(entries) as FieldValues;
}

/** True if the value at the path equals `wanted`, or is an array that contains it. */
function hasAt(value: unknown, keys: readonly string[], wanted: Scalar): boolean {
  const [key, ...rest] = keys;
  if (key === undefined) return value === wanted || (Array.isArray(value) && value.includes(wanted));
  if (Array.isArray(value)) return value.some((item) => !Array.isArray(item) && hasAt(item, keys, wanted));
  return (
    typeof value === 'object' &&
    value !== null &&
    Object.hasOwn(value, key) &&
    hasAt(Reflect.get(value, key), rest, wanted)
  );
}

/** For stores that filter in the process. */
export const matchesFields = (value: unknown, fields: FieldValues): boolean =>
  Object.entries(fields).every(([path, wanted]) => hasAt(value, path.split('.'), wanted));
