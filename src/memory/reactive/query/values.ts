/** How MongoDB orders and compares values, for the types that a document in memory may have. */

export type Plain = Readonly<Record<string, unknown>>;

export const isPlain = (value: unknown): value is Plain =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date);

/** The rank of a type in MongoDB's sort order. A missing value comes before null. */
export function rankOf(value: unknown): number {
  if (value === undefined) return 0;
  if (value === null) return 1;
  if (typeof value === 'number' || typeof value === 'bigint') return 2;
  if (typeof value === 'string') return 3;
  if (Array.isArray(value)) return 5;
  if (typeof value === 'boolean') return 6;
  return value instanceof Date ? 7 : 4;
}

const sign = (a: number | bigint | string, b: number | bigint | string): number =>
  a < b ? -1 : a > b ? 1 : 0;

/** NaN equals itself and comes before every other number. */
function compareNumbers(a: number | bigint, b: number | bigint): number {
  const [noA, noB] = [Number.isNaN(a), Number.isNaN(b)];
  return noA || noB ? Number(noB) - Number(noA) : sign(a, b);
}

const SURROGATE = /[\ud800-\udfff]/u;

/** By UTF-8 bytes, which differs from JavaScript's order only if a surrogate is involved. */
function compareTexts(a: string, b: string): number {
  return SURROGATE.test(a) || SURROGATE.test(b) ? Buffer.compare(Buffer.from(a), Buffer.from(b)) : sign(a, b);
}

function compareArrays(a: readonly unknown[], b: readonly unknown[]): number {
  for (let at = 0; at < Math.min(a.length, b.length); at += 1) {
    const order = compareValues(a[at], b[at]);
    if (order !== 0) return order;
  }
  return a.length - b.length;
}

/** Compares field by field, in the order of the fields: by type, then name, then value. */
function compareObjects(a: Plain, b: Plain): number {
  const [left, right] = [fieldsOf(a), fieldsOf(b)];
  for (let at = 0; at < Math.min(left.length, right.length); at += 1) {
    const [[nameA, valueA], [nameB, valueB]] = [left[at], right[at]] as [
      [string, unknown],
      [string, unknown],
    ];
    const order =
      rankOf(valueA) - rankOf(valueB) || compareTexts(nameA, nameB) || compareValues(valueA, valueB);
    if (order !== 0) return order;
  }
  return left.length - right.length;
}

/** The fields of an object; one whose value is undefined counts as missing. */
const fieldsOf = (value: Plain): [string, unknown][] =>
  Object.entries(value).filter(([, item]) => item !== undefined);

export function compareValues(a: unknown, b: unknown): number {
  const order = rankOf(a) - rankOf(b);
  if (order !== 0) return Math.sign(order);
  if (typeof a === 'string') return compareTexts(a, b as string);
  if (typeof a === 'number' || typeof a === 'bigint') return compareNumbers(a, b as number | bigint);
  if (typeof a === 'boolean') return Number(a) - Number(b);
  if (a instanceof Date) return sign(a.getTime(), (b as Date).getTime());
  if (Array.isArray(a)) return compareArrays(a, b as readonly unknown[]);
  return isPlain(a) ? compareObjects(a, b as Plain) : 0;
}

export const isEqual = (a: unknown, b: unknown): boolean => compareValues(a, b) === 0;

/** True for a value that an expression treats as true. */
export const isTrue = (value: unknown): boolean =>
  value !== undefined && value !== null && value !== false && value !== 0 && value !== 0n;

/** Tags values that JSON lacks. The tags are unambiguous: no id has a key that begins with `$`. */
function tagged(value: unknown): unknown {
  if (value instanceof Date) return { $date: value.getTime() };
  if (typeof value === 'bigint')
    return Number.isSafeInteger(Number(value)) ? Number(value) : { $long: String(value) };
  if (Array.isArray(value)) return value.map(tagged);
  if (!isPlain(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, tagged(item)]));
}

function untagged(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(untagged);
  if (!isPlain(value)) return value;
  const { $date: time, $long: long } = value;
  if (typeof time === 'number') return new Date(time);
  if (typeof long === 'string') return BigInt(long);
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, untagged(item)]));
}

/** A text that only equal values share. Used for ids and definitions. */
export const textOf = (value: unknown): string => JSON.stringify({ value: tagged(value) });

export const fromText = (text: string): unknown =>
  untagged((JSON.parse(text) as { readonly value: unknown }).value);
