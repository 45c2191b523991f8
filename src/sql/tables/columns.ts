/** Comparisons with a column, by the type and the collation of the column. */
import { OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import type { Arguments } from './arguments.js';
import { SQL_INSTEAD } from '../reactive/plan/filter.js';
import { textOfValue } from './fragment.js';
import { typeOf } from './shape.js';
import type { Comparison, Field } from './fields.js';

const NUMBERS: ReadonlySet<string> = new Set(['int2', 'int4', 'int8', 'numeric', 'oid']);
const FLOATS: ReadonlySet<string> = new Set(['float4', 'float8']);
const TEXTS: ReadonlySet<string> = new Set(['text', 'varchar', 'bpchar', 'name', 'citext']);
const DAYS: ReadonlySet<string> = new Set(['date', 'timestamp']);

export const SQL_OPERATOR: Readonly<Record<string, string>> = {
  $eq: '=',
  $gt: '>',
  $gte: '>=',
  $lt: '<',
  $lte: '<=',
};

const NUMERIC = /^[+-]?\d+(?:\.\d+)?$/u;

/** The value as the column's type, or as one that compares with it exactly. Undefined if they cannot be compared. */
function operandOf({ column }: Field, value: unknown, args: Arguments): string | undefined {
  const { type, isArray } = column;
  const text = textOfValue(value);
  if (isArray) return undefined;
  if (NUMBERS.has(type) || FLOATS.has(type)) {
    const isNumber = typeof value === 'number' || typeof value === 'bigint';
    if (!isNumber && !(typeof value === 'string' && NUMERIC.test(value))) return undefined;
    // Integers are compared as numeric, so that a fraction does not raise an error.
    return args.add(text, FLOATS.has(type) ? typeOf(column) : 'numeric');
  }
  if (type === 'bool') return typeof value === 'boolean' ? args.add(text, 'boolean') : undefined;
  if (value instanceof Date) {
    if (type === 'timestamptz') return args.add(text, 'timestamptz');
    return DAYS.has(type) ? `(${args.add(text, 'timestamptz')} at time zone 'UTC')` : undefined;
  }
  if (typeof value !== 'string') return undefined;
  return args.add(text, TEXTS.has(type) && type !== 'citext' ? 'text' : typeOf(column));
}

export function columnCondition(
  where: string,
  field: Field,
  { operator, operand }: Comparison,
  args: Arguments,
): string {
  const { sql, column, name } = field;
  // A column always exists, so `$exists` asks whether it is set.
  if (operator === '$exists') return operand === true ? `(${sql} is not null)` : `(${sql} is null)`;
  if (operand === null) {
    if (operator === '$eq' || operator === '$gte' || operator === '$lte') return `(${sql} is null)`;
    return 'false';
  }
  const value = operandOf(field, operand, args);
  if (value === undefined)
    throw new OptionError(
      `${where}: filter: the column "${name}" is ${column.isArray ? `an array (${column.type})` : column.type}, and cannot be ` +
        `compared with ${show(operand)}. ${SQL_INSTEAD}`,
    );
  return `((${sql} ${SQL_OPERATOR[operator] as string} ${value}) is true)`;
}
