/** Looking at jobs: filters, pages, counts and failures. Nothing here changes a job. */
import type { FieldValues } from '../../core/fields.js';
import type { FailureLine } from '../../core/records/failure-groups.js';
import type { JobRecord, JobStatus } from '../../core/records/job.js';
import type { TimeRange } from '../work.js';

/** Which jobs: all parts that are given must match; of a list, one of its values. */
export interface JobFilter {
  readonly ids?: readonly string[];
  readonly name?: readonly string[];
  readonly status?: readonly JobStatus[];
  readonly uniqueKey?: readonly string[];
  readonly createdAt?: TimeRange;
  readonly updatedAt?: TimeRange;
  readonly nextRunAt?: TimeRange;
  /** Text contained in `failReason`, in upper or lower case. */
  readonly error?: string;
  /** Parts of the payload, by dot path, and the values that they have. No text in it is ever an operator. */
  readonly data?: FieldValues;
}

/** One page of a list, in the order of `field`, ties by id. */
export interface Page {
  readonly field: 'createdAt' | 'updatedAt' | 'nextRunAt';
  readonly direction: 1 | -1;
  readonly limit: number;
  /** Start after this job, in the given direction. `key` is what `cursorKey` returned for it. */
  readonly after?: { readonly at: Date; readonly key: string };
}

export interface Found {
  readonly jobs: readonly JobRecord[];
  /** There is a next page. */
  readonly more: boolean;
  /** The store's time limit was reached: there may be more than was found, and `jobs` may be empty. */
  readonly partial: boolean;
}

export interface Ends {
  /** Completed, failed or cancelled, as whole records. */
  readonly ended: readonly JobRecord[];
  /** Ids alone: the caller polls for a job's end, and its payload may be large. */
  readonly live: readonly string[];
}

export type StatusCounts = Readonly<Record<JobStatus, number>>;

export interface NameCounts {
  readonly name: string;
  readonly counts: StatusCounts;
  /** Statuses of which there are more than `counts` says. */
  readonly capped: readonly JobStatus[];
}

/** What lists, counts and waiting callers ask of a store. */
export interface FindStore {
  /** Returns the job with this id, in any state, or undefined if there is none. Repeat: safe. */
  get(id: string): Promise<JobRecord | undefined>;
  /**
   * Returns which of these jobs have ended and which are live, as of one moment; an id in neither list does not exist.
   * Repeat: safe.
   * Caller: `jobs.result()` and `cancel({ wait })`, which poll.
   */
  ends(ids: readonly string[]): Promise<Ends>;
  /**
   * Returns one page of the jobs that match. It ends after a time limit of the store's own, and says so in `partial`.
   * Repeat: safe.
   */
  find(filter: JobFilter, page: Page): Promise<Found>;
  /** Returns the text that stands for a record in `Page.after`. Only this store reads it. */
  cursorKey(record: JobRecord): string;
  /**
   * Returns how many jobs match, `most` at the highest. Without `most` it counts all, however long that takes.
   * Repeat: safe.
   * Errors: with `most`, a `TidemillError` with the code `TIME_LIMIT` if the store's time limit is reached.
   */
  count(filter: JobFilter, most?: number): Promise<number>;
  /**
   * Returns counts by name and status, and about how many jobs there are in all. Counting stops at a limit that
   * follows from `cap`: a store may share `cap` among the names, but counts at least 1,000 of each, or `cap` if that
   * is less. Repeat: safe.
   */
  stats(cap: number): Promise<{ readonly names: readonly NameCounts[]; readonly total: number }>;
  /**
   * Returns what the newest `limit` failed jobs say, of one name or of all. Of all names the newest are those updated
   * last; of one name a store may go by `createdAt`, if that is what its index has in order. Repeat: safe.
   */
  failures(limit: number, name?: string): Promise<readonly FailureLine[]>;
  /**
   * Yields the jobs that match, each once, in lists of up to `batch`; it never reads a whole collection at once.
   * Payload, result, progress, logs and history may be missing. The caller changes each list before it asks for more.
   * Caller: `cancelMany`, `retryMany` and `removeMany`, which pass each list to the method of the same name below.
   */
  each(filter: JobFilter, batch: number): AsyncIterable<readonly JobRecord[]>;
}
