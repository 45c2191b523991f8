/** Filters, cursors and statistics of Monque, in terms of `mill.jobs`. */
import type { FindOptions, JobsFilter, Selection } from '../../index.js';
import { InvalidCursorError } from './errors.js';
import type { JobStatus, PersistedJob } from './job.js';

export const CursorDirection = { FORWARD: 'forward', BACKWARD: 'backward' } as const;
export type CursorDirection = (typeof CursorDirection)[keyof typeof CursorDirection];

export const JobCursorSortField = {
  IDENTIFIER: 'identifier',
  CREATED_AT: 'createdAt',
  UPDATED_AT: 'updatedAt',
  NEXT_RUN_AT: 'nextRunAt',
} as const;
export type JobCursorSortField = (typeof JobCursorSortField)[keyof typeof JobCursorSortField];

export const JobCursorSortDirection = { ASC: 'asc', DESC: 'desc' } as const;
export type JobCursorSortDirection = (typeof JobCursorSortDirection)[keyof typeof JobCursorSortDirection];

export interface GetJobsFilter {
  readonly name?: string;
  readonly status?: JobStatus | readonly JobStatus[];
  /** Default: 100. */
  readonly limit?: number;
  /** Default: 0. */
  readonly skip?: number;
}

export interface JobSelector {
  readonly name?: string;
  readonly status?: JobStatus | readonly JobStatus[];
  /** Created before. */
  readonly olderThan?: Date;
  /** Created after. */
  readonly newerThan?: Date;
}

export interface JobCursorFilter {
  readonly name?: string;
  readonly status?: JobStatus | readonly JobStatus[];
  readonly statuses?: readonly JobStatus[];
  readonly createdAtFrom?: Date;
  readonly createdAtTo?: Date;
  readonly updatedAtFrom?: Date;
  readonly updatedAtTo?: Date;
  readonly nextRunAtFrom?: Date;
  readonly nextRunAtTo?: Date;
}

export interface JobCursorSort {
  readonly by: JobCursorSortField;
  readonly direction?: JobCursorSortDirection;
}

export interface CursorOptions {
  readonly cursor?: string;
  /** Default: 50. */
  readonly limit?: number;
  /** Default: 'forward'. */
  readonly direction?: CursorDirection;
  readonly filter?: JobCursorFilter;
  /** Default: by identifier, ascending. */
  readonly sort?: JobCursorSort;
}

export interface CursorPage<T = unknown> {
  readonly jobs: readonly PersistedJob<T>[];
  readonly cursor: string | null;
  readonly hasNextPage: boolean;
  readonly hasPreviousPage: boolean;
}

export interface BulkOperationResult {
  readonly count: number;
  readonly errors: readonly { readonly jobId: string; readonly error: string }[];
}

type Counts = Readonly<Record<JobStatus, number>>;

export interface QueueStats extends Counts {
  readonly total: number;
}

/** The worker of a name in this process. */
export interface QueueViewWorkerSummary {
  readonly concurrency: number;
  readonly active: number;
}

export interface QueueViewSummary extends QueueStats {
  readonly name: string;
  readonly worker?: QueueViewWorkerSummary;
}

type Times = 'createdAt' | 'updatedAt' | 'nextRunAt';

/** The condition on a time, if there is one. */
function between(field: Times, from: Date | undefined, to: Date | undefined): JobsFilter {
  if (from === undefined && to === undefined) return {};
  return { [field]: { ...(from === undefined ? {} : { from }), ...(to === undefined ? {} : { to }) } };
}

export function filterOf({ name, status, statuses, ...times }: JobCursorFilter = {}): JobsFilter {
  const wanted = statuses ?? status;
  return {
    ...(name === undefined ? {} : { name }),
    ...(wanted === undefined ? {} : { status: wanted }),
    ...between('createdAt', times.createdAtFrom, times.createdAtTo),
    ...between('updatedAt', times.updatedAtFrom, times.updatedAtTo),
    ...between('nextRunAt', times.nextRunAtFrom, times.nextRunAtTo),
  };
}

const MS = 1;

/** `only`: the statuses that the action applies to. Undefined if none of them is selected. */
export function selectionOf(
  { name, status = [], olderThan, newerThan }: JobSelector,
  only: readonly JobStatus[],
): Selection | undefined {
  const given = [status].flat();
  const wanted = only.filter((one) => given.length === 0 || given.includes(one));
  if (wanted.length === 0) return undefined;
  const before = olderThan && new Date(olderThan.getTime() - MS);
  const after = newerThan && new Date(newerThan.getTime() + MS);
  return {
    ...(name === undefined ? {} : { name }),
    status: wanted,
    ...between('createdAt', after, before),
  };
}

export function sortOf(
  { by, direction = 'asc' }: JobCursorSort = { by: 'identifier' },
): NonNullable<FindOptions['sort']> {
  // ObjectIds are in the order of their making.
  return { [by === 'identifier' ? 'createdAt' : by]: direction === 'asc' ? 1 : -1 };
}

/** Monque's cursor leads both ways, as the direction of the next call says. */
interface BothWays {
  readonly next: string | null;
  readonly previous: string | null;
}

export const writeCursor = (ways: BothWays): string =>
  Buffer.from(JSON.stringify([ways.next, ways.previous])).toString('base64url');

const isWay = (way: unknown): way is string | null => way === null || typeof way === 'string';

/** The cursor of `mill.jobs.find`; null if there is no page in that direction. */
export function readCursor(cursor: string, direction: CursorDirection): string | null {
  try {
    const [next, previous] = JSON.parse(Buffer.from(cursor, 'base64url').toString()) as unknown[];
    if (isWay(next) && isWay(previous)) return direction === 'forward' ? next : previous;
  } catch {
    // Refused below.
  }
  throw new InvalidCursorError('cursor must be the `cursor` of an earlier page.');
}
