/** What the end of an attempt writes to a job. */
import type { Attempt, JobStatus, LogLine } from '../../core/records/job.js';
import type { FailureKind } from '../../core/records/work.js';
import type { Lease } from '../work.js';
import type { NewJob } from './enqueue.js';

/**
 * What the end of an attempt writes to a job; `conclude` in src/jobs decides it. The store also sets `updatedAt`, sets
 * `lockedAt` to null, and takes off `claimedBy`, `lastHeartbeat`, `heartbeatInterval` and `startedToken`.
 */
export interface Settlement {
  readonly lease: Lease;
  /** `completed`, `failed` or `cancelled`; or `pending`, for another attempt or the next run. */
  readonly status: JobStatus;
  readonly set: SettledFields;
  /** Of a recurring job: write only if `scheduleRev` is still this; otherwise return `changed`. */
  readonly ifRev?: number;
  /** The job ends, and its successor takes this key: the store releases it. Absent: `followed` must not be set. */
  readonly releases?: UniqueKey;
  /** Appended to `history`, of which the last `historyLimit` entries stay, at least one. */
  readonly entry?: Attempt;
  readonly historyLimit: number;
  /** Appended to `logs`, of which the last 100 stay. */
  readonly logs?: readonly LogLine[];
  /**
   * Retention 0: delete the job instead of writing to it. A store that knows of a watcher writes to it all the same, so
   * that its last state can be read, and leaves it to `sweep`.
   */
  readonly remove?: boolean;
  /**
   * The handler was not called. If the claim counted a start of the job's key (`KeyRule.rate`), it counts no more: by
   * the lease's `lockedAt`, in the same write or, if that is lost, not at all. A repeat gives nothing back again.
   */
  readonly unstarted?: true;
  /**
   * A job to store if and only if this settlement is written, and in the same write: none → `pending`. It has an id that
   * follows from the lease, so that a repeat of the call stores it once. Wakes instances.
   */
  readonly letter?: NewJob & { readonly id: string };
  /**
   * `holder`: leave the token on the job, so that a repeated settlement recognises itself. `reclaimer`: take it off,
   * so that a late settlement of the dead holder is `lost`.
   */
  readonly by: 'holder' | 'reclaimer';
}

/** A unique key, which counts within the name. */
export interface UniqueKey {
  readonly name: string;
  readonly uniqueKey: string;
}

/**
 * An absent field stays as it is. Null takes a field off, except `result` and `progress`, of which null is a value.
 * One batch may share one `finishedAt` and `expiresAt`.
 */
export interface SettledFields {
  readonly nextRunAt?: Date;
  readonly scheduledFor?: Date;
  readonly failCount?: number;
  readonly failReason?: string | null;
  readonly failKind?: FailureKind | null;
  readonly firstFailedAt?: Date | null;
  readonly result?: unknown;
  readonly progress?: unknown;
  readonly finishedAt?: Date | null;
  readonly expiresAt?: Date | null;
  readonly cancelRequestedAt?: null;
  /** The job has started. */
  readonly startBy?: null;
  readonly debouncedAt?: null;
}
