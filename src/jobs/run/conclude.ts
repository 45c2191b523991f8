import { entryOf, textOf } from '../../core/records/history.js';
import {
  EXPIRED,
  failedRunId,
  NEVER,
  type Attempt,
  type JobRecord,
  type JobStatus,
} from '../../core/records/job.js';
import { isUnstarted, type Finished, type Outcome } from '../../core/records/outcome.js';
import type { FailureKind } from '../../core/records/work.js';
import type { Conclusion, Extra } from '../../engine/work-runner.js';
import {
  leaseOf,
  type FailedRun,
  type RetentionMs,
  type SettledFields,
  type Settlement,
} from '../../store/port.js';
import { runAfter } from '../../time/missed.js';
import { decideRetry } from '../../time/retry-decision.js';
import type { RetryRule } from '../../time/retry.js';
import { recurrenceOf } from '../recurrence.js';

export interface ConcludeOptions {
  readonly instanceId: string;
  readonly retry: RetryRule;
  readonly retention: RetentionMs;
  readonly historyLimit: number;
  /** Makes the dead letter of a job that fails for good. Absent: none is made. */
  readonly letter?: (failed: Failed) => Settlement['letter'];
  /** Called if a schedule with `missed: 'all'` has missed more runs than it catches up on. */
  readonly dropped?: () => void;
}

/** A job, or one run of a schedule, that has failed for good. */
export interface Failed {
  readonly job: JobRecord;
  /** The id under which it is kept: that of the job, or of the failed copy of the run. */
  readonly id: string;
  readonly error: Error;
  readonly finishedAt: Date;
  /** Its attempts that are kept, this one included. */
  readonly history: readonly Attempt[];
}

export type JobConclusion = Conclusion<Settlement>;

type Failure = Extract<Outcome, { error: Error }>;

/**
 * Decides what the end of an attempt writes to its job. Pure, so it can be called again if the job has changed
 * meanwhile. docs/architecture.md has a table of all cases.
 */
export function conclude(job: JobRecord, finished: Finished, options: ConcludeOptions): JobConclusion {
  const { outcome } = finished;
  switch (outcome.kind) {
    case 'returned':
    case 'recorded':
      return finish(job, finished, options, 'completed', { ...kept(outcome.result) });
    case 'skipped':
      return finish(job, finished, options, 'completed', {});
    case 'expired':
      return ended(job, finished, options, 'cancelled', { failReason: EXPIRED, cancelRequestedAt: null });
    case 'cancelled':
      return ended(job, finished, options, 'cancelled', { cancelRequestedAt: null });
    case 'deferred':
      return handBack(job, finished, options, { nextRunAt: outcome.runAt });
    case 'released':
      return handBack(job, finished, options, {});
    case 'threw':
    case 'timedOut':
    case 'crashed':
      return failed(job, finished, outcome, options);
  }
}

const kept = (result: unknown): SettledFields => (result === undefined ? {} : { result });

/** Ends a one-off job. A recurring one moves on to its next run, unless it has none left or a cancel was requested. */
function finish(
  job: JobRecord,
  finished: Finished,
  options: ConcludeOptions,
  status: 'completed',
  set: SettledFields,
): JobConclusion {
  if (job.repeatInterval === undefined) return ended(job, finished, options, status, set);
  const recovered = { failCount: 0, failReason: null, failKind: null, firstFailedAt: null } as const;
  return goOn(job, finished, options, { ...set, ...recovered });
}

function goOn(
  job: JobRecord,
  finished: Finished,
  options: ConcludeOptions,
  set: SettledFields,
): JobConclusion {
  if (job.cancelRequestedAt !== undefined)
    return ended(job, finished, options, 'cancelled', { ...set, cancelRequestedAt: null });
  const recurrence = recurrenceOf(job);
  // A schedule with unreadable cron text must neither run in a loop nor disappear: it waits for a new schedule() call.
  if (recurrence === null) {
    const failReason = `The cron text ${JSON.stringify(job.repeatInterval)} cannot be read; call schedule() again.`;
    return back(job, finished, options, { ...set, failReason, nextRunAt: NEVER });
  }
  const slot = job.scheduledFor ?? job.nextRunAt;
  // `lockedAt` is the start of this attempt only; a retried run began before its first attempt failed.
  const begunAt = job.firstFailedAt ?? job.lockedAt ?? slot;
  const { at, dropped } = runAfter(recurrence, slot, new Date(finished.finishedAt), begunAt);
  if (dropped) options.dropped?.();
  if (at === null) return ended(job, finished, options, 'completed', set);
  const next = job.paused === true ? NEVER : at;
  return back(job, finished, options, { ...set, nextRunAt: next, scheduledFor: next });
}

function failed(
  job: JobRecord,
  finished: Finished,
  failure: Failure,
  options: ConcludeOptions,
): JobConclusion {
  if (job.cancelRequestedAt !== undefined)
    return ended(job, finished, options, 'cancelled', { cancelRequestedAt: null });
  const now = finished.finishedAt;
  const failCount = job.failCount + 1;
  const firstFailedAt = job.firstFailedAt ?? new Date(now);
  const facts = { failures: failCount, firstFailedAt, now, error: failure.error };
  // A claim that crashed before its start was marked may never have run, so it runs even if no attempt is left.
  const unseen =
    failure.kind === 'crashed' && job.leaseToken !== undefined && job.startedToken !== job.leaseToken;
  const retryAt = decideRetry(options.retry, facts) ?? (unseen ? new Date(now) : null);
  const set = {
    failCount,
    firstFailedAt,
    failReason: textOf(failure.error.message),
    failKind: kindOf(failure),
  };
  if (retryAt !== null) {
    // No backoff after a crash: the job has already waited for the lease of the dead instance to end.
    const nextRunAt = failure.kind === 'crashed' ? new Date(now) : retryAt;
    return { ...back(job, finished, options, { ...set, nextRunAt }), retryAt: nextRunAt };
  }
  if (job.repeatInterval === undefined)
    return withLetter(ended(job, finished, options, 'failed', set), job, finished, failure, options);
  const next = goOn(job, finished, options, {
    failCount: 0,
    firstFailedAt: null,
    failKind: null,
    failReason: set.failReason,
  });
  const recorded = { ...next, failedRun: failedRun(job, finished, options, { ...set, failCount }) };
  return withLetter(recorded, job, finished, failure, options);
}

/** The letter is part of the settlement, so that it exists if and only if the failure is recorded. */
function withLetter(
  conclusion: JobConclusion,
  job: JobRecord,
  finished: Finished,
  { error }: Failure,
  options: ConcludeOptions,
): JobConclusion {
  const { entry } = conclusion.settlement;
  const { failedRun: run } = conclusion;
  const letter = options.letter?.({
    job,
    id: run === undefined ? job.id : failedRunId(job.id, run.scheduledFor),
    error,
    finishedAt: new Date(finished.finishedAt),
    history: [...(job.history ?? []), ...(entry === undefined ? [] : [entry])].slice(
      -Math.max(1, options.historyLimit),
    ),
  });
  return letter === undefined
    ? conclusion
    : { ...conclusion, settlement: { ...conclusion.settlement, letter } };
}

function kindOf(failure: Failure): FailureKind {
  if (failure.kind === 'timedOut') return 'timeout';
  return failure.kind === 'crashed' ? 'crashed' : 'error';
}

function failedRun(
  job: JobRecord,
  finished: Finished,
  options: ConcludeOptions,
  set: { failCount: number; failReason: string; failKind: FailureKind },
): FailedRun {
  const { failCount, failReason, failKind } = set;
  const entry = entryOf(job, job.failCount + 1, finished, options);
  return {
    failCount,
    failReason,
    failKind,
    scheduledFor: job.scheduledFor ?? job.nextRunAt,
    finishedAt: new Date(finished.finishedAt),
    expiresAt: new Date(finished.finishedAt + options.retention.failed),
    historyLimit: options.historyLimit,
    ...(entry === undefined ? {} : { entry }),
  };
}

/** Returns the job to pending without counting a failure, or ends it if a cancel was requested. */
function handBack(
  job: JobRecord,
  finished: Finished,
  options: ConcludeOptions,
  set: SettledFields,
): JobConclusion {
  if (job.cancelRequestedAt === undefined) return back(job, finished, options, set);
  return ended(job, finished, options, 'cancelled', { cancelRequestedAt: null });
}

function back(
  job: JobRecord,
  finished: Finished,
  options: ConcludeOptions,
  set: SettledFields,
): JobConclusion {
  return { settlement: settlement(job, finished, options, 'pending', { ...set, ...started(job, finished) }) };
}

/** A job that has started once expires no more, and the next `debounce` begins anew. */
function started(job: JobRecord, { outcome, startedAt }: Finished): SettledFields {
  if (outcome.kind === 'released' && startedAt === undefined) return {};
  return {
    ...(job.startBy === undefined ? {} : { startBy: null }),
    ...(job.debouncedAt === undefined ? {} : { debouncedAt: null }),
  };
}

/** Ends the job. It is kept for its retention; a retention of 0 deletes it. */
function ended(
  job: JobRecord,
  finished: Finished,
  options: ConcludeOptions,
  status: 'completed' | 'failed' | 'cancelled',
  set: SettledFields,
): JobConclusion {
  const keepMs = options.retention[status];
  const times = {
    finishedAt: new Date(finished.finishedAt),
    expiresAt: new Date(finished.finishedAt + keepMs),
  };
  const settled = {
    ...settlement(job, finished, options, status, { ...set, ...times }),
    ...releasing(job),
  };
  return { settlement: keepMs === 0 ? { ...settled, remove: true } : settled };
}

const releasing = ({ name, uniqueKey, followed }: JobRecord): Pick<Settlement, 'releases'> =>
  followed === true && uniqueKey !== undefined ? { releases: { name, uniqueKey } } : {};

function settlement(
  job: JobRecord,
  finished: Finished,
  options: ConcludeOptions,
  status: JobStatus,
  set: SettledFields,
): Settlement {
  const entry = entryOf(job, job.failCount + 1, finished, options);
  return {
    lease: leaseOf(job),
    status,
    set,
    historyLimit: options.historyLimit,
    by: 'holder',
    ...(job.limitKey !== undefined && isUnstarted(finished) ? { unstarted: true as const } : {}),
    ...(job.scheduleRev === undefined ? {} : { ifRev: job.scheduleRev }),
    ...(entry === undefined ? {} : { entry }),
  };
}

/** Adds progress and log lines that are not written yet to the settlement. */
export function withExtra(conclusion: JobConclusion, { progress, logs }: Extra): JobConclusion {
  const { settlement } = conclusion;
  const set = progress === undefined ? settlement.set : { progress: progress.value, ...settlement.set };
  return { ...conclusion, settlement: { ...settlement, set, ...(logs === undefined ? {} : { logs }) } };
}

/**
 * For an outcome that the database refuses as too large: settles the status only. Drops the history entry and log
 * lines, and clears the progress and result that the job already has.
 */
export function bare(conclusion: JobConclusion): JobConclusion {
  const { entry, logs, ...settlement } = conclusion.settlement;
  return {
    ...conclusion,
    settlement: { ...settlement, set: { ...settlement.set, progress: null, result: null } },
  };
}
