import type { Document } from 'mongodb';
import { OptionError } from '../../../core/errors.js';
import { show } from '../../../core/options.js';
import type { TaskPlan } from '../../../store/reactive/reactive.js';

/** Operators that a query may have at its top level. Expressions, too, have `$and` and `$or`. */
const QUERY_TOP = new Set(['$and', '$or', '$nor', '$expr', '$comment', '$jsonSchema']);
/** Operators that need an index or a script of their own, and cannot be evaluated by a planner. */
const REFUSED = new Set(['$where', '$near', '$nearSphere', '$text', '$geoNear']);

function isObject(value: unknown): value is Document {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === Object.prototype || prototype === null;
}

/** Returns the keys and values of anything that the driver sends as a document. */
function entriesOf(value: unknown): readonly (readonly [string, unknown])[] {
  if (value instanceof Map) return [...value].map(([key, item]) => [String(key), item]);
  return isObject(value) ? Object.entries(value) : [];
}

/** An expression has an operator that no query has at its top level, there or in an operand of `$and` or `$or`. */
function isExpression(filter: unknown): boolean {
  if (typeof filter === 'string') return filter.startsWith('$');
  if (!isObject(filter)) return false;
  return Object.entries(filter).some(([key, value]) => {
    if (!key.startsWith('$')) return false;
    if (!QUERY_TOP.has(key)) return true;
    return (key === '$and' || key === '$or') && Array.isArray(value) && value.some(isExpression);
  });
}

/** Returns the filter as the query of a `$match` stage. A query is passed on as it is, never rewritten. */
export function queryOf({ filter }: TaskPlan): Document {
  if (filter === undefined) return {};
  return isExpression(filter) ? { $expr: filter } : (filter as Document);
}

function refuseOperators(where: string, value: unknown): void {
  if (Array.isArray(value)) for (const item of value) refuseOperators(where, item);
  for (const [key, item] of entriesOf(value)) {
    if (REFUSED.has(key)) throw new OptionError(`${where}: filter cannot use ${key} in a reactive task.`);
    refuseOperators(where, item);
  }
}

/** In a query, `'$$NOW'` is an ordinary string and would never match. */
function refuseVariables(where: string, value: unknown): void {
  if (typeof value === 'string' && value.startsWith('$$')) {
    throw new OptionError(
      `${where}: filter compares with the string ${show(value)}, which is not a variable in a query. ` +
        "Use { $expr: … }, such as { $expr: { $lte: ['$dueAt', '$$NOW'] } }.",
    );
  }
  if (Array.isArray(value)) for (const item of value) refuseVariables(where, item);
  for (const [key, item] of entriesOf(value)) if (key !== '$expr') refuseVariables(where, item);
}

/** Inside an expression, a query is an ordinary object and counts as true. */
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

/** Refuses values that the driver would silently omit or change, so that the plan would differ from the definition. */
function refuseUnsendable(where: string, path: string, value: unknown): void {
  if (value === undefined || typeof value === 'function' || typeof value === 'symbol')
    throw new OptionError(`${where}: ${path} must be a value that MongoDB can store, got ${show(value)}.`);
  if (Array.isArray(value))
    for (const [index, item] of value.entries()) refuseUnsendable(where, `${path}.${index}`, item);
  else for (const [key, item] of entriesOf(value)) refuseUnsendable(where, `${path}.${key}`, item);
}

function checkFilter(where: string, filter: unknown): void {
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

/** Checks a query on the documents of tasks. A query that loses a condition would reset more tasks than intended. */
export function checkSourceFilter(where: string, query: unknown): void {
  if (query === undefined) return;
  const option = 'sourceDocFilter';
  if (!isObject(query))
    throw new OptionError(`${where}: ${option} must be a query such as { vip: true }, got ${show(query)}.`);
  refuseUnsendable(where, option, query);
  refuseScripts(where, option, query);
}

function checkProjection(where: string, projection: unknown): void {
  if (projection === undefined) return;
  const fix = 'name what is watched, such as { status: 1 }, or compute it';
  if (!isObject(projection) || Object.keys(projection).length === 0)
    throw new OptionError(`${where}: watchProjection must ${fix}; got ${show(projection)}.`);
  refuseUnsendable(where, 'watchProjection', projection);
  // Alone, it is an exclusion to MongoDB, and here it would watch nothing at all.
  if (Object.keys(projection).join() === '_id' && (projection['_id'] === 0 || projection['_id'] === false))
    throw new OptionError(`${where}: watchProjection must not only exclude "_id"; ${fix}.`);
  for (const [field, value] of Object.entries(projection)) {
    if ((value === 0 || value === false) && field !== '_id')
      throw new OptionError(`${where}: watchProjection must not exclude "${field}"; ${fix}.`);
  }
}

/** Checks what the definition of a task tells by itself. */
export function checkPlan(where: string, plan: TaskPlan): TaskPlan {
  checkFilter(where, plan.filter);
  checkProjection(where, plan.watchProjection);
  return plan;
}
