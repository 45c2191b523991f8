/** Dot paths into plain objects, as documents have them. */

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null;

/** The value at a path; undefined where there is none. */
export function valueAt(document: unknown, path: string): unknown {
  let value = document;
  for (const key of path.split('.')) {
    if (!isObject(value) || !Object.hasOwn(value, key)) return undefined;
    value = value[key];
  }
  return value;
}

/** A copy of the document in which the value at a path is another; undefined takes it out. */
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

/** An id as text, for people: a database's own type says it best, anything else is JSON. It never throws. */
export function idText(id: unknown): string {
  if (typeof id === 'string') return id;
  try {
    const text = JSON.stringify(id, asJson) as string | undefined;
    return text === undefined ? String(id) : text.replaceAll(/^"|"$/gu, '');
  } catch {
    return Object.prototype.toString.call(id);
  }
}
