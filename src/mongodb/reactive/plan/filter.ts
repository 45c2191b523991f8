import type { Document } from 'mongodb';
import { OptionError } from '../../../core/errors.js';
import { show } from '../../../core/options.js';
import type { TaskPlan } from '../../../store/reactive.js';

/** Operators that a query may have at its top; `$and` and `$or` are in both languages. */
const QUERY_TOP = new Set(['$and', '$or', '$nor', '$expr', '$comment', '$jsonSchema']);
/** Operators that need an index or a script of their own, and mean nothing to a planner. */
const REFUSED = new Set(['$where', '$near', '$nearSphere', '$text', '$geoNear']);

function isObject(value: unknown): value is Document {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

/** The keys and values of whatever the driver sends as a document. */
function entriesOf(value: unknown): readonly (readonly [string, unknown])[] {
  if (value instanceof Map) return [...value].map(([key, item]) => [String(key), item]);
  return isObject(value) ? Object.entries(value) : [];
}

/** An operator that no query has at its top, there or in an operand, makes it an expression. */
function isExpression(filter: unknown): boolean {
  if (typeof filter === 'string') return filter.startsWith('$');
  if (!isObject(filter)) return false;
  return Object.entries(filter).some(([key, value]) => {
    if (!key.startsWith('$')) return false;
    if (!QUERY_TOP.has(key)) return true;
    return (key === '$and' || key === '$or') && Array.isArray(value) && value.some(isExpression);
  });
}

/** The filter as a stage's query: a query is handed over as it is, never rewritten. */
export function queryOf({ filter }: TaskPlan): Document {
  if (filter === undefined) return {};
  return isExpression(filter) ? { $expr: filter } : (filter as Document);
}

function refuseOperators(where: string, value: unknown): void {
  if (Array.isArray(value)) for (const item of value) refuseOperators(where, item);
  for (const [key, item] of entriesOf(value)) {
    if (REFUSED.has(key))
      throw new OptionError(`${where}: filter must not use ${key}: it cannot be planned by.`);
    refuseOperators(where, item);
  }
}

/** In a query `'$$NOW'` is a text like any other, and would never match. */
function refuseVariables(where: string, value: unknown): void {
  if (typeof value === 'string' && value.startsWith('$$')) {
    throw new OptionError(
      `${where}: filter compares with the text ${show(value)}; in a query that is no variable. ` +
        "Use { $expr: … }, such as { $expr: { $lte: ['$dueAt', '$$NOW'] } }.",
    );
  }
  if (Array.isArray(value)) for (const item of value) refuseVariables(where, item);
  for (const [key, item] of entriesOf(value)) if (key !== '$expr') refuseVariables(where, item);
}

/** Inside an expression a query is an object like any other, and counts as true. */
function refuseMixture(where: string, filter: unknown): void {
  if (!isObject(filter)) return;
  for (const [key, value] of Object.entries(filter)) {
    if (key !== '$and' && key !== '$or') continue;
    for (const operand of Array.isArray(value) ? (value as unknown[]) : []) {
      const field = isObject(operand)
        ? Object.keys(operand).find((name) => !name.startsWith('$'))
        : undefined;
      if (field !== undefined) {
        throw new OptionError(
          `${where}: filter mixes a query on "${field}" with an expression. ` +
            `Put the expression into { $expr: … }, or write the query as one: { $eq: ['$${field}', …] }.`,
        );
      }
      refuseMixture(where, operand);
    }
  }
}

/** What the driver would leave out or change in silence, and so plan by something else. */
function refuseUnsendable(where: string, path: string, value: unknown): void {
  if (value === undefined || typeof value === 'function' || typeof value === 'symbol')
    throw new OptionError(`${where}: ${path} must be a value that MongoDB can hold, got ${show(value)}.`);
  if (Array.isArray(value))
    for (const [index, item] of value.entries()) refuseUnsendable(where, `${path}.${index}`, item);
  else for (const [key, item] of entriesOf(value)) refuseUnsendable(where, `${path}.${key}`, item);
}

export function checkFilter(where: string, filter: unknown): void {
  if (filter === undefined) return;
  if (!isObject(filter) && !isExpression(filter)) {
    throw new OptionError(
      `${where}: filter must be a query such as { status: 'paid' }, or an expression such as ` +
        `{ $eq: ['$status', 'paid'] }; got ${show(filter)}.`,
    );
  }
  refuseUnsendable(where, 'filter', filter);
  refuseOperators(where, filter);
  if (isExpression(filter)) refuseMixture(where, filter);
  else refuseVariables(where, filter);
}

/** Operators that run JavaScript on the server. */
const SCRIPTS = new Set(['$where', '$function', '$accumulator']);

function refuseScripts(where: string, option: string, value: unknown): void {
  if (Array.isArray(value)) for (const item of value) refuseScripts(where, option, item);
  for (const [key, item] of entriesOf(value)) {
    if (SCRIPTS.has(key))
      throw new OptionError(
        `${where}: ${option} cannot use ${key}, which runs JavaScript on the server. Use query operators or $expr.`,
      );
    refuseScripts(where, option, item);
  }
}

/** A query on the documents of tasks. One that says less than was meant would reset more than was meant. */
export function checkSourceFilter(where: string, query: unknown): void {
  if (query === undefined) return;
  const option = 'sourceDocFilter';
  if (!isObject(query))
    throw new OptionError(`${where}: ${option} must be a query such as { vip: true }, got ${show(query)}.`);
  refuseUnsendable(where, option, query);
  refuseScripts(where, option, query);
}

export function checkProjection(where: string, projection: unknown): void {
  if (projection === undefined) return;
  const fix = 'name what is watched, such as { status: 1 }, or compute it';
  if (!isObject(projection) || Object.keys(projection).length === 0)
    throw new OptionError(`${where}: watchProjection must ${fix}; got ${show(projection)}.`);
  refuseUnsendable(where, 'watchProjection', projection);
  // Alone it would be an exclusion to MongoDB, and watch nothing at all here.
  if (Object.keys(projection).join() === '_id' && (projection['_id'] === 0 || projection['_id'] === false))
    throw new OptionError(`${where}: watchProjection must not only exclude "_id"; ${fix}.`);
  for (const [field, value] of Object.entries(projection)) {
    if ((value === 0 || value === false) && field !== '_id')
      throw new OptionError(`${where}: watchProjection must not exclude "${field}"; ${fix}.`);
  }
}
