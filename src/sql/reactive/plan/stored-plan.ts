/**
 * A definition as JSON. A fragment has a field of its own there, `filterSql`, which nothing but a definition has. Beside
 * it, `filter` keeps the form that older instances of the library read and write: an object with the key `sql`. So that no
 * comparison is ever taken for that, one with a column called `sql` is stored inside `$and`.
 */
import { isSqlFragment, SqlFragment } from '../../../core/text/sql-fragment.js';
import type { TaskPlan } from '../../../store/reactive.js';
import { fromStored, toStored } from '../../connection/values.js';

interface StoredPlan extends TaskPlan {
  readonly filterSql?: { readonly text: string; readonly values: readonly unknown[] };
}

/** JSON has no bigints; a number of any length is as good as text to a comparison with a column. */
export const encoded = (value: unknown): string =>
  JSON.stringify(toStored(value), (_key, item: unknown) => (typeof item === 'bigint' ? String(item) : item));

/** The filter as older instances know it. It also identifies the filter, so that an upgrade looks at no row again. */
export function storedFilter(filter: unknown): unknown {
  if (isSqlFragment(filter)) {
    const { text, values } = filter;
    return values.length === 0 ? { sql: text } : { sql: text, values };
  }
  return hasSqlKey(filter) ? { $and: [filter] } : filter;
}

const hasSqlKey = (filter: unknown): filter is { readonly sql: unknown; readonly values?: unknown } =>
  typeof filter === 'object' && filter !== null && Object.hasOwn(filter, 'sql');

/** In a fragment the type of a value counts. */
const fromValue = (value: unknown): unknown =>
  typeof value === 'bigint' ? { $bigint: String(value) } : value;
const toValue = (value: unknown): unknown =>
  typeof value === 'object' && value !== null && '$bigint' in value ? BigInt(String(value.$bigint)) : value;

export function toStoredPlan(plan: TaskPlan): string {
  const { filter } = plan;
  if (filter === undefined) return encoded(plan);
  const filterSql = isSqlFragment(filter)
    ? { filterSql: { text: filter.text, values: filter.values.map(fromValue) } }
    : {};
  return encoded({ ...plan, filter: storedFilter(filter), ...filterSql });
}

/** Of a value that was just parsed; it is changed in place. */
export function fromStoredPlan(parsed: unknown): TaskPlan {
  const { filterSql, ...plan } = fromStored(parsed) as StoredPlan;
  if (filterSql !== undefined)
    return { ...plan, filter: new SqlFragment(filterSql.text, filterSql.values.map(toValue)) };
  const { filter } = plan;
  if (!hasSqlKey(filter)) return plan;
  // An older instance wrote it.
  return {
    ...plan,
    filter: new SqlFragment(String(filter.sql), Array.isArray(filter.values) ? filter.values : []),
  };
}
