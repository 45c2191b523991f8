import { OptionError } from '../../core/errors.js';
import { checkFieldValues, type FieldValues } from '../../core/fields.js';
import { JOB_STATUSES, type JobStatus } from '../../core/records/job.js';
import {
  checkBoolean,
  checkKeys,
  checkOneOf,
  checkRange,
  checkText,
  eitherName,
} from '../../core/options.js';
import type { JobFilter, TimeRange } from '../../store/port.js';

/** Selects jobs. A list matches any of its values; a job must match every key that is given. */
export interface JobsFilter {
  /** Ids of jobs. */
  readonly ids?: string | readonly string[];
  /** Names of jobs. */
  readonly name?: string | readonly string[];
  /** The status of the job. */
  readonly status?: JobStatus | readonly JobStatus[];
  /** The unique key of the job. */
  readonly uniqueKey?: string | readonly string[];
  /** When the job was enqueued. */
  readonly createdAt?: TimeRange;
  /** When the job last changed. */
  readonly updatedAt?: TimeRange;
  /** When the job is due. */
  readonly runAt?: TimeRange;
  /** The same as `runAt`. */
  readonly nextRunAt?: TimeRange;
  /** Text that the failure message contains, ignoring case. */
  readonly error?: string;
  /**
   * Paths of the payload and the value of each, such as `{ 'user.id': 5 }`. A list matches if one of its items does. No
   * index serves this: if there are many jobs, also give a name and a status.
   */
  readonly data?: FieldValues;
}

const KEYS = [
  'ids',
  'name',
  'status',
  'uniqueKey',
  'createdAt',
  'updatedAt',
  'runAt',
  'nextRunAt',
  'error',
  'data',
];

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [value]);

function texts(where: string, key: string, value: unknown): string[] {
  return listOf(value).map((one) => checkText(where, `filter.${key}`, one));
}

/** An allow-list: only the keys named here reach the database, and only as plain values. */
export function checkFilter(where: string, filter: JobsFilter = {}): JobFilter {
  checkKeys(`${where}: filter`, filter, KEYS);
  const { ids, name, status, uniqueKey, createdAt, updatedAt, error, data } = filter;
  const runAt = eitherName(`${where}: filter`, filter, 'runAt', 'nextRunAt');
  return {
    ...(ids === undefined ? {} : { ids: texts(where, 'ids', ids) }),
    ...(name === undefined ? {} : { name: texts(where, 'name', name) }),
    ...(status === undefined
      ? {}
      : { status: listOf(status).map((one) => checkOneOf(where, 'filter.status', one, JOB_STATUSES)) }),
    ...(uniqueKey === undefined ? {} : { uniqueKey: texts(where, 'uniqueKey', uniqueKey) }),
    ...(createdAt === undefined ? {} : { createdAt: checkRange(`${where}: filter.createdAt`, createdAt) }),
    ...(updatedAt === undefined ? {} : { updatedAt: checkRange(`${where}: filter.updatedAt`, updatedAt) }),
    ...(runAt === undefined ? {} : { nextRunAt: checkRange(`${where}: filter.runAt`, runAt) }),
    ...(error === undefined ? {} : { error: checkText(where, 'filter.error', error) }),
    ...(data === undefined ? {} : { data: checkFieldValues(where, 'filter.data', data) }),
  };
}

/** False for a range without bounds and for an empty set of paths: neither restricts anything. */
const says = (condition: string | readonly string[] | TimeRange | FieldValues): boolean =>
  typeof condition === 'string' || Array.isArray(condition) || Object.keys(condition).length > 0;

/** For operations on many jobs: an empty filter is rejected, so that selecting every job takes `{ all: true }`. */
export function checkExplicit(where: string, filter: JobsFilter | { readonly all: true }): JobFilter {
  if (typeof filter === 'object' && (filter as unknown) !== null && 'all' in filter) {
    checkKeys(`${where}: filter`, filter, ['all']);
    if (checkBoolean(where, 'filter.all', filter.all)) return {};
  }
  const checked = checkFilter(where, filter as JobsFilter);
  if (Object.values(checked).some(says)) return checked;
  throw new OptionError(
    `${where}: an empty filter would match every job; to select all of them, pass { all: true }.`,
  );
}
