/** Aggregation expressions that the memory store supports, in `$expr` and in computed fields of a projection. */
import { OptionError } from '../../../core/errors.js';
import { show } from '../../../core/options.js';
import { compareValues, isPlain, isTrue, type Plain } from './values.js';

/** The input of an expression: a document, and the time for `$$NOW`. */
export interface Scope {
  readonly document: Plain;
  readonly now: Date;
}

export type Expression = (scope: Scope) => unknown;

/** Returns the value at a path. Through an array, these are the values of the items that are objects. */
function valueAt(value: unknown, keys: readonly string[]): unknown {
  const [key, ...rest] = keys;
  if (key === undefined) return value;
  if (Array.isArray(value))
    return value
      .filter(isPlain)
      .map((item) => valueAt(item, keys))
      .filter((item) => item !== undefined);
  return isPlain(value) && Object.hasOwn(value, key) ? valueAt(value[key], rest) : undefined;
}

function variable(where: string, text: string): Expression {
  const [name = '', ...keys] = text.slice(2).split('.');
  if (name === 'NOW' && keys.length === 0) return ({ now }) => now;
  if (name === 'ROOT' || name === 'CURRENT') return ({ document }) => valueAt(document, keys);
  throw new OptionError(
    `${where}: the memory store does not support the variable ${show(text)}; use '$$NOW' or '$$ROOT'.`,
  );
}

type Operator = (operands: readonly Expression[]) => Expression;

const compared =
  (holds: (order: number) => boolean): Operator =>
  ([a, b]) =>
  (scope) =>
    holds(compareValues(a?.(scope), b?.(scope)));

/** Null if an operand is null or missing, as in MongoDB. */
function arithmetic(name: string, of: (a: number, b: number) => number): Operator {
  return (operands) => (scope) => {
    const values = operands.map((operand) => operand(scope) ?? null);
    if (values.includes(null)) return null;
    const numbers = values.map((value) => {
      if (typeof value === 'number') return value;
      throw new OptionError(`${name} only supports numbers in the memory store, got ${show(value)}.`);
    });
    return numbers.reduce(of);
  };
}

const divide: Operator = (operands) =>
  arithmetic('$divide', (a, b) => {
    if (b === 0) throw new OptionError("can't $divide by zero");
    return a / b;
  })(operands);

const OPERATORS: Readonly<Record<string, { readonly count: number; readonly make: Operator }>> = {
  $eq: { count: 2, make: compared((order) => order === 0) },
  $ne: { count: 2, make: compared((order) => order !== 0) },
  $gt: { count: 2, make: compared((order) => order > 0) },
  $gte: { count: 2, make: compared((order) => order >= 0) },
  $lt: { count: 2, make: compared((order) => order < 0) },
  $lte: { count: 2, make: compared((order) => order <= 0) },
  $and: { count: Infinity, make: (all) => (scope) => all.every((one) => isTrue(one(scope))) },
  $or: { count: Infinity, make: (all) => (scope) => all.some((one) => isTrue(one(scope))) },
  $not: {
    count: 1,
    make:
      ([one]) =>
      (scope) =>
        !isTrue(one?.(scope)),
  },
  $ifNull: {
    count: Infinity,
    make: (all) => (scope) => {
      for (const one of all.slice(0, -1)) {
        const value = one(scope);
        if (value !== undefined && value !== null) return value;
      }
      return all.at(-1)?.(scope);
    },
  },
  $cond: {
    count: 3,
    make:
      ([when, yes, no]) =>
      (scope) =>
        (isTrue(when?.(scope)) ? yes : no)?.(scope),
  },
  $add: { count: Infinity, make: arithmetic('$add', (a, b) => a + b) },
  $subtract: { count: 2, make: arithmetic('$subtract', (a, b) => a - b) },
  $multiply: { count: Infinity, make: arithmetic('$multiply', (a, b) => a * b) },
  $divide: { count: 2, make: divide },
};

const KNOWN = [...Object.keys(OPERATORS), '$literal'].join(', ');

function operation(where: string, name: string, operand: unknown): Expression {
  if (name === '$literal') return () => operand;
  const operator = OPERATORS[name];
  if (operator === undefined)
    throw new OptionError(
      `${where}: the memory store does not support the operator ${show(name)}; it supports ${KNOWN}.`,
    );
  const operands = Array.isArray(operand) ? (operand as unknown[]) : [operand];
  if (Number.isFinite(operator.count) && operands.length !== operator.count)
    throw new OptionError(
      `${where}: ${name} takes ${String(operator.count)} operands, got ${String(operands.length)}.`,
    );
  return operator.make(operands.map((one) => compileExpression(where, one)));
}

export function compileExpression(where: string, given: unknown): Expression {
  if (typeof given === 'string' && given.startsWith('$$')) return variable(where, given);
  if (typeof given === 'string' && given.startsWith('$')) {
    const keys = given.slice(1).split('.');
    return ({ document }) => valueAt(document, keys);
  }
  if (Array.isArray(given)) {
    const items = given.map((item) => compileExpression(where, item));
    return (scope) => items.map((item) => item(scope) ?? null);
  }
  if (!isPlain(given)) return () => given;
  const [[name, operand] = ['', undefined], ...others] = Object.entries(given);
  if (others.length === 0 && name.startsWith('$')) return operation(where, name, operand);
  throw new OptionError(
    `${where}: an expression is one operator such as { $eq: ['$status', 'paid'] }; got ${show(given)}.`,
  );
}
