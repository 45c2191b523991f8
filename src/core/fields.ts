/** Comparisons of parts of a payload or a document with plain values: what a person may type into a filter. */
import { OptionError } from './errors.js';
import { show } from './options.js';

/** A value that a part is compared with. */
export type Scalar = string | number | boolean | null;

/** Dot paths with the value that each must have. Where a list is on the way, or at the end, one of its items will do. */
export type FieldValues = Readonly<Record<string, Scalar>>;

const MOST_PATHS = 10;
const LONGEST_PATH = 200;
/** They name no data, and assigning to them would change more than a document. */
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

/** Anything else may keep its keys where `Object.entries` does not see them, and would then match everything. */
const isPlainObject = (value: unknown): value is object =>
  typeof value === 'object' &&
  value !== null &&
  [Object.prototype, null].includes(Object.getPrototypeOf(value) as object | null);

/** An allow-list: paths of plain keys, and values that no database reads as anything but themselves. */
export function checkFieldValues(where: string, option: string, given: unknown): FieldValues {
  if (!isPlainObject(given))
    throw new OptionError(
      `${where}: ${option} must be paths and values such as { 'user.id': 5 }, got ${show(given)}.`,
    );
  const entries = Object.entries(given) as [string, unknown][];
  if (entries.length > MOST_PATHS)
    throw new OptionError(`${where}: ${option} may compare ${String(MOST_PATHS)} paths at most.`);
  for (const [path, value] of entries) {
    if (!isFieldPath(path))
      throw new OptionError(
        `${where}: ${option} has the path ${show(path)}; a path is made of keys and dots, such as 'user.id'.`,
      );
    if (!isScalar(value))
      throw new OptionError(
        `${where}: ${option} compares ${show(path)} with ${show(value)}; it must be a text, a number, true, false or null.`,
      );
  }
  return Object.fromEntries(entries) as FieldValues;
}

/** Whether the part of a value at a path is, or has among its items, the wanted one. */
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

/** For stores that compare by themselves. */
export const matchesFields = (value: unknown, fields: FieldValues): boolean =>
  Object.entries(fields).every(([path, wanted]) => hasAt(value, path.split('.'), wanted));
