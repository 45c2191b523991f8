import { OptionError } from '../core/errors.js';
import { JOB_STATUSES, type JobStatus } from '../core/job.js';
import { checkBoolean, checkDate, checkKeys, checkOneOf, checkText, show } from '../core/options.js';
import type { JobFilter, TimeRange } from '../store/port.js';

/** What jobs to look at. Lists mean "any of these"; keys given together must all hold. */
export interface JobsFilter {
  readonly ids?: string | readonly string[];
  readonly name?: string | readonly string[];
  readonly status?: JobStatus | readonly JobStatus[];
  readonly uniqueKey?: string | readonly string[];
  readonly createdAt?: TimeRange;
  readonly updatedAt?: TimeRange;
  readonly nextRunAt?: TimeRange;
  /** Text contained in the failure's message. */
  readonly error?: string;
}

const KEYS = ['ids', 'name', 'status', 'uniqueKey', 'createdAt', 'updatedAt', 'nextRunAt', 'error'];

const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [value]);

function texts(where: string, key: string, value: unknown): string[] {
  return listOf(value).map((one) => checkText(where, `filter.${key}`, one));
}

function range(where: string, key: string, value: unknown): TimeRange {
  const at = `${where}: filter.${key}`;
  if (value instanceof Date || typeof value !== 'object') {
    throw new OptionError(`${at} must be { from?, to? } with dates, got ${show(value)}.`);
  }
  checkKeys(at, value, ['from', 'to']);
  const { from, to } = value as TimeRange;
  return {
    ...(from === undefined ? {} : { from: checkDate(at, 'from', from) }),
    ...(to === undefined ? {} : { to: checkDate(at, 'to', to) }),
  };
}

/** An allow-list: nothing of a filter reaches the database but what is named here, as plain values. */
export function checkFilter(where: string, filter: JobsFilter = {}): JobFilter {
  checkKeys(`${where}: filter`, filter, KEYS);
  const { ids, name, status, uniqueKey, createdAt, updatedAt, nextRunAt, error } = filter;
  return {
    ...(ids === undefined ? {} : { ids: texts(where, 'ids', ids) }),
    ...(name === undefined ? {} : { name: texts(where, 'name', name) }),
    ...(status === undefined
      ? {}
      : { status: listOf(status).map((one) => checkOneOf(where, 'filter.status', one, JOB_STATUSES)) }),
    ...(uniqueKey === undefined ? {} : { uniqueKey: texts(where, 'uniqueKey', uniqueKey) }),
    ...(createdAt === undefined ? {} : { createdAt: range(where, 'createdAt', createdAt) }),
    ...(updatedAt === undefined ? {} : { updatedAt: range(where, 'updatedAt', updatedAt) }),
    ...(nextRunAt === undefined ? {} : { nextRunAt: range(where, 'nextRunAt', nextRunAt) }),
    ...(error === undefined ? {} : { error: checkText(where, 'filter.error', error) }),
  };
}

/** A range without ends is no condition. */
const says = (condition: string | readonly string[] | TimeRange): boolean =>
  typeof condition === 'string' || Array.isArray(condition) || Object.keys(condition).length > 0;

/** For operations on many: what it is about must be said. */
export function checkExplicit(where: string, filter: JobsFilter | { readonly all: true }): JobFilter {
  if (typeof filter === 'object' && (filter as unknown) !== null && 'all' in filter) {
    checkKeys(`${where}: filter`, filter, ['all']);
    if (checkBoolean(where, 'filter.all', filter.all)) return {};
  }
  const checked = checkFilter(where, filter as JobsFilter);
  if (Object.values(checked).some(says)) return checked;
  throw new OptionError(`${where}: an empty filter would mean every job; say so with { all: true }.`);
}
