/**
 * The query parameters that requests may use. This is an allow-list: only what is named and checked here reaches the
 * mill.
 */
import { isFieldPath, type FieldValues, type Scalar } from '../../mill/tools.js';
import type { WorkKind } from '../contract.js';
import { badRequest } from './errors.js';

export const KINDS: readonly WorkKind[] = ['jobs', 'tasks', 'documents'];

export const STATUSES: Readonly<Record<WorkKind, readonly string[]>> = {
  jobs: ['pending', 'processing', 'completed', 'failed', 'cancelled'],
  tasks: ['pending', 'processing', 'processing_dirty', 'completed', 'failed'],
  documents: ['due', 'waiting', 'failed', 'parked'],
};

export type TimeField = 'createdAt' | 'updatedAt' | 'dueAt';
const TIMES: readonly TimeField[] = ['createdAt', 'updatedAt', 'dueAt'];

/** The work that a request is about. */
export interface WorkFilter {
  readonly kind: WorkKind;
  readonly name: readonly string[];
  readonly status: readonly string[];
  readonly error: string | undefined;
  readonly fields: FieldValues;
  readonly time: TimeField;
  readonly from: Date | undefined;
  readonly to: Date | undefined;
}

export interface WorkQuery extends WorkFilter {
  /** Undefined: the order that is fastest for the kind. */
  readonly sort: TimeField | undefined;
  readonly order: 1 | -1;
  readonly cursor: string | undefined;
  readonly limit: number;
}

const MOST_VALUES = 50;
const LONGEST = 500;
const LONGEST_CURSOR = 4_000;

const FILTER_KEYS = ['kind', 'name', 'status', 'error', 'field', 'time', 'from', 'to'];
const PAGE_KEYS = ['sort', 'order', 'cursor', 'limit'];

export function checkParameters(query: URLSearchParams, known: readonly string[]): void {
  for (const key of query.keys())
    if (!known.includes(key)) throw badRequest(`Unknown parameter "${key.slice(0, 50)}".`);
}

/** Returns the one value of a parameter; an empty value counts as absent. */
export function one(query: URLSearchParams, key: string, longest: number = LONGEST): string | undefined {
  const [value, ...others] = query.getAll(key).filter((text) => text !== '');
  if (others.length > 0) throw badRequest(`"${key}" may be given once.`);
  if (value !== undefined && value.length > longest) throw badRequest(`"${key}" is too long.`);
  return value;
}

function many(query: URLSearchParams, key: string): readonly string[] {
  const values = [...new Set(query.getAll(key).filter((text) => text !== ''))];
  if (values.length > MOST_VALUES || values.some((text) => text.length > LONGEST))
    throw badRequest(`"${key}" has too many values, or one that is too long.`);
  return values;
}

export function oneOf<T extends string>(
  query: URLSearchParams,
  key: string,
  known: readonly T[],
): T | undefined {
  const value = one(query, key);
  if (value === undefined) return undefined;
  if ((known as readonly string[]).includes(value)) return value as T;
  throw badRequest(`"${key}" must be one of ${known.join(', ')}.`);
}

export function limitOf(query: URLSearchParams, most = 200): number {
  const text = one(query, 'limit') ?? '50';
  const limit = Number(text);
  if (/^\d+$/u.test(text) && limit >= 1 && limit <= most) return limit;
  throw badRequest(`"limit" must be a whole number from 1 to ${String(most)}.`);
}

export const cursorOf = (query: URLSearchParams): string | undefined => one(query, 'cursor', LONGEST_CURSOR);

function dateOf(query: URLSearchParams, key: string): Date | undefined {
  const text = one(query, key);
  if (text === undefined) return undefined;
  const at = new Date(text);
  if (/^\d{4}-\d\d-\d\d/u.test(text) && !Number.isNaN(at.getTime())) return at;
  throw badRequest(`"${key}" must be a time such as 2026-11-16T08:00:00Z.`);
}

/** Reads `5`, `true`, `null` and `"5"` as JSON, and any other text as itself. */
function valueOf(text: string): Scalar {
  if (/^(?:true|false|null|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|".*")$/su.test(text)) {
    try {
      const value = JSON.parse(text) as Scalar;
      if (typeof value !== 'number' || Number.isFinite(value)) return value;
    } catch {
      // Not JSON after all, so it is text.
    }
  }
  return text;
}

function fieldsOf(query: URLSearchParams): FieldValues {
  const entries = many(query, 'field').map((text): [string, Scalar] => {
    const at = text.indexOf(':');
    const path = text.slice(0, at);
    if (at < 1 || !isFieldPath(path))
      throw badRequest('"field" must be a path and a value, such as user.id:5.');
    return [path, valueOf(text.slice(at + 1))];
  });
  const fields = new Map(entries);
  if (fields.size < entries.length) throw badRequest('"field" names a path twice.');
  return Object.fromEntries(fields);
}

export function readFilter(query: URLSearchParams, more: readonly string[] = []): WorkFilter {
  checkParameters(query, [...FILTER_KEYS, ...more]);
  const kind = oneOf(query, 'kind', KINDS) ?? 'jobs';
  const status = many(query, 'status');
  if (status.some((text) => !STATUSES[kind].includes(text)))
    throw badRequest(`"status" of ${kind} must be one of ${STATUSES[kind].join(', ')}.`);
  return {
    kind,
    status,
    name: many(query, 'name'),
    error: one(query, 'error'),
    fields: fieldsOf(query),
    time: oneOf(query, 'time', TIMES) ?? 'createdAt',
    from: dateOf(query, 'from'),
    to: dateOf(query, 'to'),
  };
}

export function readQuery(query: URLSearchParams): WorkQuery {
  const filter = readFilter(query, PAGE_KEYS);
  return {
    ...filter,
    sort: oneOf(query, 'sort', TIMES),
    order: oneOf(query, 'order', ['asc', 'desc']) === 'asc' ? 1 : -1,
    cursor: cursorOf(query),
    limit: limitOf(query),
  };
}

/** Describes a filter in words for the audit log. Values of fields are data, so they are left out. */
export function inWords({ kind, name, status, error, fields, time, from, to }: WorkFilter): string {
  const parts = [
    ...(name.length === 0 ? [] : [`name ${name.join(' or ')}`]),
    ...(status.length === 0 ? [] : [`status ${status.join(' or ')}`]),
    ...(error === undefined ? [] : [`error "${error}"`]),
    ...Object.keys(fields).map((path) => `a given ${path}`),
    ...(from === undefined ? [] : [`${time} from ${from.toISOString()}`]),
    ...(to === undefined ? [] : [`${time} to ${to.toISOString()}`]),
  ];
  return parts.length === 0 ? `all ${kind}` : `${kind} with ${parts.join(', ')}`;
}
