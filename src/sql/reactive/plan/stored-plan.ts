/**
 * A definition as JSON. A fragment has a field of its own, `filterSql`, that only definitions have. Next to it,
 * `filter` keeps the form that older versions read and write: an object with the key `sql`. So that no comparison is
 * mistaken for that, a filter on a column named `sql` is stored inside `$and`.
 */
import { isSqlFragment, SqlFragment } from '../../../core/text/sql-fragment.js';
import type { TaskPlan } from '../../../store/reactive/reactive.js';
import { fromStored, toStored } from '../../connection/values.js';

interface StoredPlan extends TaskPlan {
  readonly filterSql?: { readonly text: string; readonly values: readonly unknown[] };
}

/** JSON has no bigints. For a comparison with a column, text does as well as a number. */
export const encoded = (value: unknown): string =>
  JSON.stringify(toStored(value), (_key, item: unknown) => (typeof item === 'bigint' ? String(item) : item));

/**
 * The filter as older versions know it. It also identifies the filter, so that an upgrade does not reconcile any table.
 */
export function storedFilter(filter: unknown): unknown {
  if (isSqlFragment(filter)) {
    const { text, values } = filter;
    return values.length === 0 ? { sql: text } : { sql: text, values };
  }
  return hasSqlKey(filter) ? { $and: [filter] } : filter;
}

const hasSqlKey = (filter: unknown): filter is { readonly sql: unknown; readonly values?: unknown } =>
  typeof filter === 'object' && filter !== null && Object.hasOwn(filter, 'sql');

/** In a fragment the type of a value matters, so bigints stay bigints. */
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

/** Takes a value that was just parsed, and changes it in place. */
export function fromStoredPlan(parsed: unknown): TaskPlan {
  const { filterSql, ...plan } = fromStored(parsed) as StoredPlan;
  if (filterSql !== undefined)
    return { ...plan, filter: new SqlFragment(filterSql.text, filterSql.values.map(toValue)) };
  const { filter } = plan;
  if (!hasSqlKey(filter)) return plan;
  // Written by an older version.
  return {
    ...plan,
    filter: new SqlFragment(String(filter.sql), Array.isArray(filter.values) ? filter.values : []),
  };
}
