/**
 * MongoDB queries, evaluated in memory. What is supported means exactly what it means in MongoDB; anything else is
 * rejected when the query is compiled.
 */
import { OptionError } from '../../../core/errors.js';
import { show } from '../../../core/options.js';
import { compileExpression, type Scope } from './expression.js';
import { compareValues, isEqual, isPlain, isTrue, rankOf, type Plain } from './values.js';

export type Query = (scope: Scope) => boolean;
/** A condition on the values at one path. There may be several, since a path leads into the items of arrays. */
type Condition = (terminals: readonly Terminal[], now: Date) => boolean;

const INDEX = /^\d+$/u;

/** A value at the end of a path. */
interface Terminal {
  /** Undefined if there is none. */
  readonly value: unknown;
  /** Found by an array index: it is compared as a whole, even if it is an array itself. */
  readonly isItem: boolean;
}

/** Yields the values at a path, including those in objects inside arrays. */
function* terminalsAt(value: unknown, keys: readonly string[], isItem = false): Generator<Terminal> {
  const [key, ...rest] = keys;
  if (key === undefined) yield { value, isItem };
  else if (Array.isArray(value)) {
    for (const item of value) if (isPlain(item)) yield* terminalsAt(item, keys);
    const item: unknown = INDEX.test(key) ? value[Number(key)] : undefined;
    // A path through an index into a scalar yields nothing, not even a missing value.
    if (item !== undefined && (rest.length === 0 || isPlain(item) || Array.isArray(item)))
      yield* terminalsAt(item, rest, true);
  } else if (isPlain(value) && Object.hasOwn(value, key)) yield* terminalsAt(value[key], rest);
  else yield { value: undefined, isItem: false };
}

/** An array matches if one of its items does, or as a whole. */
const some =
  (test: (value: unknown) => boolean): Condition =>
  (terminals) =>
    terminals.some(
      ({ value, isItem }) => test(value) || (!isItem && Array.isArray(value) && value.some(test)),
    );

const not =
  (condition: Condition): Condition =>
  (terminals, now) =>
    !condition(terminals, now);

/** Null also equals a missing value. */
const equals = (wanted: unknown): ((value: unknown) => boolean) =>
  wanted === null ? (value) => value === null || value === undefined : (value) => isEqual(value, wanted);

/** Only values of the same type are compared. */
function ordered(wanted: unknown, holds: (order: number) => boolean): Condition {
  const nullish = (value: unknown): unknown => (wanted === null ? (value ?? null) : value);
  return some((value) => {
    const given = nullish(value);
    if (rankOf(given) !== rankOf(wanted)) return false;
    if (Number.isNaN(wanted) || Number.isNaN(given))
      return Number.isNaN(wanted) === Number.isNaN(given) && holds(0);
    return holds(compareValues(given, wanted));
  });
}

type Compile = (where: string, operand: unknown) => Condition;

const listOf = (where: string, operator: string, operand: unknown): readonly unknown[] => {
  if (Array.isArray(operand)) return operand.map((item) => checkOperand(where, item));
  throw new OptionError(`${where}: ${operator} takes a list, got ${show(operand)}.`);
};

const oneOf: Compile = (where, operand) => {
  const tests = listOf(where, '$in', operand).map(equals);
  return some((value) => tests.some((test) => test(value)));
};

function size(where: string, operand: unknown): Condition {
  if (typeof operand !== 'number' || !Number.isInteger(operand) || operand < 0)
    throw new OptionError(`${where}: $size takes a whole number, got ${show(operand)}.`);
  return (terminals) => terminals.some(({ value }) => Array.isArray(value) && value.length === operand);
}

/** `$elemMatch`: conditions on the item itself, or a query on items that are objects. */
function elemMatch(where: string, operand: unknown): Condition {
  if (!isPlain(operand))
    throw new OptionError(`${where}: $elemMatch takes a query or conditions, got ${show(operand)}.`);
  const [first = ''] = Object.keys(operand);
  const anyItem =
    (test: (item: unknown, now: Date) => boolean): Condition =>
    (terminals, now) =>
      terminals.some(({ value }) => Array.isArray(value) && value.some((item) => test(item, now)));
  if (Object.hasOwn(CONDITIONS, first)) {
    const condition = conditions(where, operand);
    return anyItem((item, now) => condition([{ value: item, isItem: true }], now));
  }
  const query = compileQuery(where, operand);
  // An item that is an array is queried as an object whose keys are its indexes.
  return anyItem((item, now) => {
    const document = Array.isArray(item) ? Object.fromEntries(item.entries()) : item;
    return isPlain(document) && query({ document, now });
  });
}

const CONDITIONS: Readonly<Record<string, Compile>> = {
  $eq: (where, operand) => some(equals(checkOperand(where, operand))),
  $ne: (where, operand) => not(some(equals(checkOperand(where, operand)))),
  $gt: (where, operand) => ordered(checkOperand(where, operand), (order) => order > 0),
  $gte: (where, operand) => ordered(checkOperand(where, operand), (order) => order >= 0),
  $lt: (where, operand) => ordered(checkOperand(where, operand), (order) => order < 0),
  $lte: (where, operand) => ordered(checkOperand(where, operand), (order) => order <= 0),
  $in: oneOf,
  $nin: (where, operand) => not(oneOf(where, operand)),
  $exists: (_where, operand) => (terminals) =>
    terminals.some(({ value }) => value !== undefined) === isTrue(operand),
  $not: (where, operand) => {
    if (isPlain(operand) && isConditions(operand)) return not(conditions(where, operand));
    throw new OptionError(`${where}: $not takes conditions such as { $gt: 5 }, got ${show(operand)}.`);
  },
  $size: size,
  $elemMatch: elemMatch,
};

/** Returns an operand if it means the same here as in MongoDB; throws otherwise. */
function checkOperand(where: string, value: unknown): unknown {
  const isValue =
    value === null ||
    ['string', 'number', 'boolean', 'bigint'].includes(typeof value) ||
    value instanceof Date ||
    Array.isArray(value) ||
    (isPlain(value) && [Object.prototype, null].includes(Object.getPrototypeOf(value) as object | null));
  if (isValue) return value;
  throw new OptionError(
    `${where}: the memory store compares with JSON values and Dates only, got ${show(value)}.`,
  );
}

const isConditions = (value: Plain): boolean => Object.keys(value)[0]?.startsWith('$') === true;

function conditions(where: string, given: Plain): Condition {
  const all = Object.entries(given).map(([name, operand]) => {
    const compile = CONDITIONS[name];
    if (compile !== undefined) return compile(where, operand);
    throw new OptionError(
      `${where}: the memory store does not support the condition ${show(name)}; it supports ${Object.keys(CONDITIONS).join(', ')}.`,
    );
  });
  return (terminals, now) => all.every((condition) => condition(terminals, now));
}

function field(where: string, path: string, given: unknown): Query {
  const condition =
    isPlain(given) && isConditions(given)
      ? conditions(where, given)
      : some(equals(checkOperand(where, given)));
  const keys = path.split('.');
  return ({ document, now }) => condition([...terminalsAt(document, keys)], now);
}

function branches(where: string, name: string, operand: unknown): readonly Query[] {
  if (Array.isArray(operand) && operand.length > 0)
    return (operand as unknown[]).map((one) => compileQuery(where, one));
  throw new OptionError(`${where}: ${name} takes a list of queries, got ${show(operand)}.`);
}

function part(where: string, name: string, operand: unknown): Query {
  if (!name.startsWith('$')) return field(where, name, operand);
  if (name === '$comment') return () => true;
  if (name === '$expr') {
    const expression = compileExpression(where, operand);
    return (scope) => isTrue(expression(scope));
  }
  if (!['$and', '$or', '$nor'].includes(name))
    throw new OptionError(
      `${where}: the memory store does not support ${show(name)} at the top of a query; it supports $and, $or, $nor and $expr.`,
    );
  const all = branches(where, name, operand);
  if (name === '$and') return (scope) => all.every((one) => one(scope));
  return (scope) => all.some((one) => one(scope)) === (name === '$or');
}

/** Compiles a query to a function; throws an OptionError for what cannot be evaluated in memory. */
export function compileQuery(where: string, query: unknown): Query {
  if (!isPlain(query))
    throw new OptionError(`${where}: a query is an object such as { status: 'paid' }, got ${show(query)}.`);
  const all = Object.entries(query).map(([name, operand]) => part(where, name, operand));
  return (scope) => all.every((one) => one(scope));
}

const QUERY_TOP: ReadonlySet<string> = new Set(['$and', '$or', '$nor', '$expr', '$comment']);

const isExpression = (filter: unknown): boolean =>
  typeof filter === 'string' ||
  (isPlain(filter) && Object.keys(filter).some((key) => key.startsWith('$') && !QUERY_TOP.has(key)));

/** Compiles the filter of a task: a query or an aggregation expression. */
export function compileFilter(where: string, filter: unknown): Query {
  if (filter === undefined) return () => true;
  return compileQuery(where, isExpression(filter) ? { $expr: filter } : filter);
}
