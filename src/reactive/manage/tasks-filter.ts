import { OptionError } from '../../core/errors.js';
import { checkFieldValues, type FieldValues } from '../../core/fields.js';
import {
  checkBoolean,
  checkKeys,
  checkOneOf,
  checkRange,
  checkText,
  eitherName,
  show,
} from '../../core/options.js';
import { isSqlFragment } from '../../core/text/sql-fragment.js';
import { TASK_STATUSES, type TaskStatus } from '../../core/records/task.js';
import type { TimeRange } from '../../store/port.js';
import type { TaskFilter } from '../../store/reactive/reactive.js';

/** Selects tasks. A list matches any of its values; a task must match every key that is given. */
export interface TasksFilter {
  /** Names of tasks. */
  readonly task?: string | readonly string[];
  /** The status of the task. */
  readonly status?: TaskStatus | readonly TaskStatus[];
  /** Text that the last error's message contains, ignoring case, or a regular expression that it matches. */
  readonly error?: string | RegExp;
  /** The same as `error`. */
  readonly errorMessage?: string | RegExp;
  /** Whether the last attempt failed. */
  readonly hasError?: boolean;
  /** A query on the source documents; on SQL, comparisons or sql`…`. */
  readonly sourceDocFilter?: object;
  /** `{ task, id }` with the id of the document; one or a list. */
  readonly _id?: unknown;
  /** When the task is due. */
  readonly runAt?: TimeRange;
  /** The same as `runAt`. */
  readonly scheduledAt?: TimeRange;
  /** When the task was first planned. */
  readonly createdAt?: TimeRange;
  /** When the task last changed. */
  readonly updatedAt?: TimeRange;
  /** Values of `FoundTask.id` from an earlier result. */
  readonly id?: string | readonly string[];
  /**
   * Fields of the source documents and the values they must have, such as `{ 'customer.id': 5 }`; of a list, one
   * matching item is enough. Replaces `sourceDocFilter`; they cannot be combined.
   */
  readonly source?: FieldValues;
}

const FILTER_KEYS = [
  'task',
  'status',
  'error',
  'errorMessage',
  'hasError',
  'sourceDocFilter',
  '_id',
  'id',
  'source',
  'runAt',
  'scheduledAt',
  'createdAt',
  'updatedAt',
];

function listOf<T>(value: T | readonly T[]): readonly T[] {
  return Array.isArray(value) ? (value as readonly T[]) : [value as T];
}

function ranges(
  where: string,
  filter: TasksFilter,
): Pick<TaskFilter, 'scheduledAt' | 'createdAt' | 'updatedAt'> {
  const { createdAt, updatedAt } = filter;
  const runAt = eitherName(where, filter, 'runAt', 'scheduledAt');
  return {
    ...(runAt === undefined ? {} : { scheduledAt: checkRange(`${where}: runAt`, runAt) }),
    ...(createdAt === undefined ? {} : { createdAt: checkRange(`${where}: createdAt`, createdAt) }),
    ...(updatedAt === undefined ? {} : { updatedAt: checkRange(`${where}: updatedAt`, updatedAt) }),
  };
}

export function toTaskFilter(where: string, filter: TasksFilter = {}): TaskFilter {
  checkKeys(where, filter, FILTER_KEYS);
  const { task, status, hasError, sourceDocFilter, _id, id, source } = filter;
  const error = eitherName(where, filter, 'error', 'errorMessage');
  if (error !== undefined && !(error instanceof RegExp))
    checkText(where, filter.error === undefined ? 'errorMessage' : 'error', error);
  if (
    sourceDocFilter !== undefined &&
    (typeof sourceDocFilter !== 'object' ||
      (sourceDocFilter as unknown) === null ||
      Array.isArray(sourceDocFilter))
  )
    throw new OptionError(
      `${where}: sourceDocFilter must be a query on the source documents, got ${show(sourceDocFilter)}.`,
    );
  if (source !== undefined && sourceDocFilter !== undefined)
    throw new OptionError(`${where}: pass source or sourceDocFilter, not both.`);
  return {
    ...(task === undefined ? {} : { task: listOf(task).map((name) => checkText(where, 'task', name)) }),
    ...(status === undefined
      ? {}
      : { status: listOf(status).map((one) => checkOneOf(where, 'status', one, TASK_STATUSES)) }),
    ...(error === undefined ? {} : { errorMessage: error }),
    ...(hasError === undefined ? {} : { hasError: checkBoolean(where, 'hasError', hasError) }),
    ...(sourceDocFilter === undefined ? {} : { sourceDocFilter }),
    ...(_id === undefined ? {} : { _id: listOf(_id) }),
    ...(id === undefined ? {} : { keys: listOf(id).map((text) => checkText(where, 'id', text)) }),
    ...ranges(where, filter),
    ...(source === undefined ? {} : { source: checkFieldValues(where, 'source', source) }),
  };
}

/**
 * Converts the filter of a bulk operation. Throws if it is empty: to match every task, the caller must pass `{ all:
 * true }`.
 */
export function explicit(where: string, filter: TasksFilter | { readonly all: true }): TaskFilter {
  if (typeof filter === 'object' && (filter as unknown) !== null && 'all' in filter) {
    checkKeys(`${where}: filter`, filter, ['all']);
    if (checkBoolean(where, 'filter.all', filter.all)) return {};
  }
  const wanted = toTaskFilter(where, filter as TasksFilter);
  const { sourceDocFilter, source, ...rest } = wanted;
  const says =
    isSqlFragment(sourceDocFilter) ||
    Object.keys(rest).length > 0 ||
    Object.keys({ ...(sourceDocFilter ?? {}), ...source }).length > 0;
  if (says) return wanted;
  throw new OptionError(
    `${where}: an empty filter would match every task; to select all of them, pass { all: true }.`,
  );
}
