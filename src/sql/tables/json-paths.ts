/** Comparisons with a value inside a JSON column, as in MongoDB: by type, and looking into arrays. */
import type { Arguments } from './arguments.js';
import { SQL_OPERATOR } from './columns.js';
import type { Comparison, Field } from './fields.js';

/** Quoted keys, so that nothing in them has a meaning in the path. Lax mode goes through arrays on the path. */
const pathOf = (path: readonly string[]): string =>
  ['lax $', ...path.map((key) => `.${JSON.stringify(key)}`)].join('');

const asJson = (value: unknown): string => {
  if (value instanceof Date) return JSON.stringify(value.toISOString());
  return typeof value === 'bigint' ? String(value) : JSON.stringify(value);
};

const isContainer = (value: unknown): boolean =>
  typeof value === 'object' && value !== null && !(value instanceof Date);

export function jsonCondition(
  _where: string,
  { sql, path, column }: Field,
  { operator, operand }: Comparison,
  args: Arguments,
): string {
  const document = column.type === 'jsonb' ? sql : `(${sql})::jsonb`;
  const exists = (filter: string, variables: string): string =>
    `coalesce(jsonb_path_exists(${document}, ${args.add(`${pathOf(path)}${filter}`, 'jsonpath')}, ${variables}, true), false)`;
  if (operator === '$exists') return operand === true ? exists('', `'{}'`) : `(not ${exists('', `'{}'`)})`;
  if (operand === null) {
    if (operator !== '$eq' && operator !== '$gte' && operator !== '$lte') return 'false';
    // A missing value counts as null.
    return `(${exists(' ? (@ == null)', `'{}'`)} or not ${exists('', `'{}'`)})`;
  }
  if (isContainer(operand)) {
    if (operator !== '$eq') return 'false';
    // The value itself, or an element of it.
    const [whole, item] = ['', '[*]'].map((end) => args.add(`${pathOf(path)}${end}`, 'jsonpath')) as [
      string,
      string,
    ];
    const values = [whole, item].map((at) => `select jsonb_path_query(${document}, ${at}, '{}', true)`);
    return `(${args.add(asJson(operand), 'jsonb')} in (${values.join(' union all ')}))`;
  }
  const compared = operator === '$eq' ? '==' : (SQL_OPERATOR[operator] as string);
  return exists(
    ` ? (@ ${compared} $value)`,
    `jsonb_build_object('value', ${args.add(asJson(operand), 'jsonb')})`,
  );
}
