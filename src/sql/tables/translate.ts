/**
 * Translates comparisons into SQL, typed by the column. Every part is true or false, never unknown, so that `$not` is
 * the exact opposite.
 */
import { OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import { isSqlFragment } from '../../core/text/sql-fragment.js';
import type { Arguments } from './arguments.js';
import { columnCondition } from './columns.js';
import { fieldOf, isJson, type Comparison, type Field } from './fields.js';
import { isComparison, isPlain } from '../reactive/plan/filter.js';
import { fragmentSql } from './fragment.js';
import { jsonCondition } from './json-paths.js';
import type { Shape } from './shape.js';

/** A condition whose columns are qualified with the name of the table; undefined if every row matches. */
export function conditionOf(
  where: string,
  shape: Shape,
  filter: unknown,
  args: Arguments,
): string | undefined {
  if (filter === undefined) return undefined;
  return isSqlFragment(filter) ? fragmentSql(filter, args) : query(where, shape, filter, args);
}

const all = (parts: readonly string[]): string => (parts.length === 0 ? 'true' : `(${parts.join(' and ')})`);
const any = (parts: readonly string[]): string => (parts.length === 0 ? 'false' : `(${parts.join(' or ')})`);

function query(where: string, shape: Shape, filter: unknown, args: Arguments): string {
  const parts = Object.entries(filter as Record<string, unknown>).map(([field, value]) => {
    if (!field.startsWith('$')) return ofField(where, shape, field, value, args);
    const list = (value as unknown[]).map((part) => query(where, shape, part, args));
    if (field === '$and') return all(list);
    return field === '$or' ? any(list) : `(not ${any(list)})`;
  });
  return all(parts);
}

function ofField(where: string, shape: Shape, name: string, value: unknown, args: Arguments): string {
  if (name === '_id' && shape.key.length > 1 && !shape.columns.some((column) => column.name === '_id'))
    return ofWholeKey(where, shape, value, args);
  const field = fieldOf(where, shape, name);
  const comparisons = isComparison(value) ? value : { $eq: value };
  return all(
    Object.entries(comparisons).map(([operator, operand]) =>
      compare(where, field, { operator, operand }, args),
    ),
  );
}

/** A key of several columns is compared as the object that handlers receive. */
function ofWholeKey(where: string, shape: Shape, value: unknown, args: Arguments): string {
  const names = shape.key.map(({ name }) => name);
  const values = isComparison(value) ? (value['$in'] ?? [value['$eq']]) : [value];
  const one = (key: unknown): string => {
    if (!isPlain(key) || Object.keys(key).sort().join() !== [...names].sort().join())
      throw new OptionError(
        `${where}: "_id" of ${show(shape.name)} is compared with an object of ${names.join(', ')}, got ${show(key)}.`,
      );
    return all(names.map((name) => ofField(where, shape, name, key[name], args)));
  };
  return any((Array.isArray(values) ? (values as unknown[]) : [values]).map(one));
}

const OPPOSITE: Readonly<Record<string, string>> = { $ne: '$eq', $nin: '$in' };

/** As in MongoDB, `$ne` and `$nin` also match null and missing values. */
function compare(where: string, field: Field, { operator, operand }: Comparison, args: Arguments): string {
  if (operator === '$not')
    return `(not ${all(
      Object.entries(operand as Record<string, unknown>).map(([inner, value]) =>
        compare(where, field, { operator: inner, operand: value }, args),
      ),
    )})`;
  const opposite = OPPOSITE[operator];
  if (opposite !== undefined) return `(not ${compare(where, field, { operator: opposite, operand }, args)})`;
  if (operator === '$in')
    return any(
      (operand as unknown[]).map((item) => compare(where, field, { operator: '$eq', operand: item }, args)),
    );
  const condition = isJson(field.column) ? jsonCondition : columnCondition;
  return condition(where, field, { operator, operand }, args);
}
