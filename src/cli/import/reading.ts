import type { RetryPolicy } from '../../index.js';
import type { Past } from '../../mill/tools.js';

/** A job as it is to be stored. Its id follows from the source's, so that importing it again finds it. */
export interface ImportedJob {
  readonly id: string;
  readonly name: string;
  readonly data: unknown;
  readonly runAt: Date;
  readonly createdAt?: Date | undefined;
  readonly priority?: number | undefined;
  readonly uniqueKey?: string | undefined;
  /** By which limits per key count it. */
  readonly key?: string | undefined;
  readonly retryPolicy?: RetryPolicy | undefined;
  readonly timeoutMs?: number | undefined;
  /** Its failures so far. With `failed`, none of its attempts is left. */
  readonly past?: (Past & { readonly failed: boolean }) | undefined;
}

export interface ImportedSchedule {
  readonly name: string;
  /** Default: the name. */
  readonly uniqueKey?: string | undefined;
  /** Cron text or `@every …`. */
  readonly times: string;
  readonly timezone: string;
  readonly data: unknown;
  readonly startAt?: Date | undefined;
  readonly repeatUntil?: Date | undefined;
  readonly priority?: number | undefined;
  readonly retryPolicy?: RetryPolicy | undefined;
  readonly timeoutMs?: number | undefined;
  readonly paused?: boolean | undefined;
  /** A run that the schedule does not make: it becomes a job. */
  readonly separateRun?: SeparateRun | undefined;
}

/** A run of a recurring job that was due and has not started, or whose time is none of the schedule's. */
export interface SeparateRun {
  readonly id: string;
  readonly runAt: Date;
  /** True for a retry, or a run that was moved by hand: no schedule here has that run, whenever it was created. */
  readonly isOwnTime?: boolean;
  readonly past?: ImportedJob['past'];
}

/** Said of a recurring job with a `separateRun` at a time of its own. */
export const OWN_TIME =
  'its next run is at none of its times: a retry, or moved by hand. It becomes a job beside the schedule';

/** Said of a recurring job whose key the code of its user does not know. */
export const OWN_KEY =
  'it has a key of its own here: if your code calls mill.schedule for it, remove one of the two schedules';

/** What one record of the source becomes here. */
export type Reading = {
  /** Names the record in the source. */
  readonly key: string;
  /** The name of its work, for `--name`. */
  readonly name: string;
  /** What differs here from there, in words that many records share. */
  readonly differs?: readonly string[];
  /** The record as it was read, for `remove`. */
  readonly record: unknown;
} & (
  | { readonly kind: 'job'; readonly job: ImportedJob }
  | { readonly kind: 'schedule'; readonly schedule: ImportedSchedule }
  | { readonly kind: 'left'; readonly reason: string; readonly detail?: string }
  /** Needs no copy: the mill works on it where it is. */
  | { readonly kind: 'served' }
);

export interface Source extends AsyncDisposable {
  /** Where the records are, without credentials: a database and a collection or schema. */
  readonly place: string;
  /** What becomes of what, for people: one pair per kind of value. */
  readonly mapping: readonly (readonly [there: string, here: string])[];
  /** How many records there are, by state. */
  count(): Promise<readonly Count[]>;
  /** All records that are not finished, in a fixed order. */
  read(now: Date): AsyncIterable<readonly Reading[]>;
  /** Differs if a record has changed since it was read. */
  version(record: unknown): string;
  /** Removes records that are stored here by now, each only if it is still as it was read. Returns which it removed. */
  remove(records: readonly unknown[]): Promise<readonly boolean[]>;
}

export interface Count {
  readonly state: string;
  readonly count: number;
  /** `read` passes over them. */
  readonly finished?: boolean;
}

export interface SourceOptions {
  readonly url: string;
  readonly collection?: string | undefined;
  readonly schema?: string | undefined;
  /** The zone of schedules that name none. */
  readonly timezone: string;
  readonly lockLifetimeMs?: number | undefined;
  readonly includeRunning: boolean;
  readonly includeLost: boolean;
}

const MOST_PRIORITY = 10;
const PRIORITY_CUT = 'its priority is beyond -10 to 10, and becomes the nearest of these';

/** A priority of another library, higher first, as one of ours. */
export function priorityOf(value: number): {
  readonly priority: number;
  readonly differs: readonly string[];
} {
  const priority = Math.max(-MOST_PRIORITY, Math.min(MOST_PRIORITY, Math.round(value)));
  return { priority, differs: priority === value ? [] : [PRIORITY_CUT] };
}

export const BATCH = 500;

/** Gathers single items into lists. */
export async function* batches<T, R>(
  items: AsyncIterable<T>,
  map: (item: T) => R,
): AsyncGenerator<readonly R[]> {
  let batch: R[] = [];
  for await (const item of items) {
    batch.push(map(item));
    if (batch.length < BATCH) continue;
    yield batch;
    batch = [];
  }
  if (batch.length > 0) yield batch;
}

/** How long a failed job is kept: as by default for jobs that fail here. */
const KEPT_MS = 30 * 86_400_000;

/** What a failed job of another library has behind it. */
export function failedPast(facts: {
  readonly failReason: string;
  readonly attempt: number;
  readonly failedAt: Date;
  readonly startedAt?: Date | undefined;
  readonly stack?: string | undefined;
}): Past {
  const { failReason, attempt, failedAt, startedAt = failedAt, stack } = facts;
  const error = { name: 'Error', message: failReason, ...(stack === undefined ? {} : { stack }) };
  const durationMs = Math.max(0, failedAt.getTime() - startedAt.getTime());
  const times = { startedAt, finishedAt: failedAt, durationMs };
  return {
    failCount: attempt,
    failReason,
    failKind: 'error',
    firstFailedAt: failedAt,
    finishedAt: failedAt,
    expiresAt: new Date(Date.now() + KEPT_MS),
    history: [{ attempt, status: 'failed', ...times, instanceId: 'imported', error }],
  };
}
