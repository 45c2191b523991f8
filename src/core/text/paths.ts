/** Dot paths into plain objects, such as documents. */

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null;

/** The value at a path, or undefined. */
export function valueAt(document: unknown, path: string): unknown {
  let value = document;
  for (const key of path.split('.')) {
    if (!isObject(value) || !Object.hasOwn(value, key)) return undefined;
    value = value[key];
  }
  return value;
}

/** Returns a copy of the document with `value` at the path; undefined removes the key. */
export function withValueAt(
  document: Readonly<Record<string, unknown>>,
  path: string,
  value: unknown,
): Record<string, unknown> {
  const [key = '', ...rest] = path.split('.');
  const copy = { ...document };
  const inner = copy[key];
  if (rest.length > 0) {
    if (!isObject(inner) && value === undefined) return copy;
    copy[key] = withValueAt(isObject(inner) ? inner : {}, rest.join('.'), value);
  } else if (value === undefined) Reflect.deleteProperty(copy, key);
  else copy[key] = value;
  return copy;
}

const asJson = (_key: string, value: unknown): unknown =>
  typeof value === 'bigint' ? value.toString() : value;

/** An id as readable text: strings as they are, other values as JSON without outer quotes. Never throws. */
export function idText(id: unknown): string {
  if (typeof id === 'string') return id;
  try {
    const text = JSON.stringify(id, asJson) as string | undefined;
    return text === undefined ? String(id) : text.replaceAll(/^"|"$/gu, '');
  } catch {
    return Object.prototype.toString.call(id);
  }
}
