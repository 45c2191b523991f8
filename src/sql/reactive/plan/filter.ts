/** Checks filters and projections: what can be said about one without knowing its table. */
import { OptionError } from '../../../core/errors.js';
import { show, suggestion } from '../../../core/options.js';
import { isSqlFragment } from '../../../core/text/sql-fragment.js';
import { refusesText } from '../../connection/values.js';

const COMPARISONS = ['$eq', '$ne', '$gt', '$gte', '$lt', '$lte', '$in', '$nin', '$exists', '$not'] as const;
const LISTS = ['$and', '$or', '$nor'] as const;

export const SQL_INSTEAD =
  'Write it in SQL, with the tag of tidemill/postgres or tidemill/embedded: sql`total > ${100}`.';

export const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' &&
  value !== null &&
  [Object.prototype, null].includes(Object.getPrototypeOf(value) as object | null);

/** An object whose keys begin with `$` is a comparison; any other is a value. */
export const isComparison = (value: unknown): value is Record<string, unknown> =>
  isPlain(value) && Object.keys(value).some((key) => key.startsWith('$'));

/** SQL in a plain object, which may have come from untrusted JSON. */
const isPlainSql = (filter: Readonly<Record<string, unknown>>): boolean =>
  typeof filter['sql'] === 'string' && Array.isArray(filter['values']);

export function checkFilter(where: string, filter: unknown): void {
  if (filter === undefined || isSqlFragment(filter)) return;
  if (!isPlain(filter))
    throw new OptionError(
      `${where}: filter must be comparisons such as { status: 'paid' }, or sql\`…\`; got ${show(filter)}.`,
    );
  if (isPlainSql(filter))
    throw new OptionError(`${where}: filter must not be a plain object { sql, values }. ${SQL_INSTEAD}`);
  checkQuery(where, filter);
}

function checkQuery(where: string, query: unknown): void {
  if (isSqlFragment(query))
    throw new OptionError(
      `${where}: filter: sql\`…\` cannot stand among comparisons; write all of it in SQL, or put it into another sql\`…\`.`,
    );
  if (!isPlain(query))
    throw new OptionError(`${where}: filter: a part of it must be an object, got ${show(query)}.`);
  for (const [field, value] of Object.entries(query)) {
    if (!field.startsWith('$')) checkField(where, field, value);
    else if ((LISTS as readonly string[]).includes(field)) checkList(where, field, value);
    else
      throw new OptionError(
        `${where}: filter must not use ${field} here.${suggestion(field, LISTS)} ${SQL_INSTEAD}`,
      );
  }
}

function checkList(where: string, operator: string, parts: unknown): void {
  if (!Array.isArray(parts) || parts.length === 0)
    throw new OptionError(`${where}: filter: ${operator} needs a list of conditions, got ${show(parts)}.`);
  for (const part of parts) checkQuery(where, part);
}

function checkField(where: string, field: string, value: unknown): void {
  if (!isComparison(value)) {
    checkValue(where, field, value);
    return;
  }
  for (const [operator, operand] of Object.entries(value)) {
    if (!(COMPARISONS as readonly string[]).includes(operator))
      throw new OptionError(
        `${where}: filter: "${field}" uses ${operator}, which has no translation.${suggestion(operator, COMPARISONS)} ${SQL_INSTEAD}`,
      );
    if (operator === '$not') {
      if (!isComparison(operand))
        throw new OptionError(
          `${where}: filter: $not of "${field}" needs a comparison such as { $gt: 5 }, got ${show(operand)}.`,
        );
      checkField(where, field, operand);
    } else if (operator === '$exists') {
      if (typeof operand !== 'boolean')
        throw new OptionError(`${where}: filter: $exists of "${field}" must be true or false.`);
    } else if (operator === '$in' || operator === '$nin') {
      if (!Array.isArray(operand))
        throw new OptionError(
          `${where}: filter: ${operator} of "${field}" needs a list, got ${show(operand)}.`,
        );
      for (const item of operand) checkValue(where, field, item);
    } else checkValue(where, field, operand);
  }
}

/** Accepts what JSON can hold, and dates. */
function checkValue(where: string, field: string, value: unknown): void {
  const refuse = (why: string): OptionError => new OptionError(`${where}: filter: "${field}" ${why}`);
  if (typeof value === 'string') {
    const fault = refusesText(value);
    if (fault !== null) throw refuse(`${fault}.`);
    if (value.startsWith('$$'))
      throw refuse(`compares with the string ${show(value)}, which is not a variable here. ${SQL_INSTEAD}`);
  } else if (Array.isArray(value)) for (const item of value) checkValue(where, field, item);
  else if (isPlain(value)) for (const item of Object.values(value)) checkValue(where, field, item);
  else if (value instanceof Date ? Number.isNaN(value.getTime()) : !isScalar(value))
    throw refuse(`is compared with ${show(value)}, which no column can hold. ${SQL_INSTEAD}`);
}

const isScalar = (value: unknown): boolean =>
  value === null ||
  typeof value === 'boolean' ||
  typeof value === 'bigint' ||
  (typeof value === 'number' && Number.isFinite(value));

const FIX = "name columns or paths into JSON, such as { status: 1, 'address.city': 1 }";

export function checkProjection(where: string, option: string, projection: unknown): void {
  if (projection === undefined) return;
  if (!isPlain(projection) || Object.keys(projection).length === 0)
    throw new OptionError(`${where}: ${option} must ${FIX}; got ${show(projection)}.`);
  for (const [field, value] of Object.entries(projection)) {
    if (value === 1 || value === true) continue;
    const what = value === 0 || value === false ? 'exclude' : 'compute';
    throw new OptionError(`${where}: ${option} must not ${what} "${field}"; ${FIX}.`);
  }
}
