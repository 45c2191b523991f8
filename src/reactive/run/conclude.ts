import { entryOf, textOf } from '../../core/records/history.js';
import { isUnstarted, type Finished, type Outcome } from '../../core/records/outcome.js';
import type { TaskRecord } from '../../core/records/task.js';
import type { FailureKind } from '../../core/records/work.js';
import type { Conclusion } from '../../engine/work-runner.js';
import { leaseOf } from '../../store/port.js';
import type { TaskSettlement } from '../../store/reactive/reactive.js';
import { decideRetry } from '../../time/retry-decision.js';
import type { RetryRule } from '../../time/retry.js';

export interface ConcludeOptions {
  readonly instanceId: string;
  readonly retry: RetryRule;
  readonly historyLimit: number;
  readonly resetRetries: boolean;
}

type Failure = Extract<Outcome, { error: Error }>;
type Decided = Pick<TaskSettlement, 'status'> &
  Partial<Pick<TaskSettlement, 'scheduledAt' | 'takeBack' | 'deferred' | 'skipped' | 'failure' | 'success'>>;

/** Decides what the end of an attempt writes to its task. Pure; the store accounts for changes that came meanwhile. */
export function concludeTask(
  task: TaskRecord,
  finished: Finished,
  options: ConcludeOptions,
): Conclusion<TaskSettlement> {
  const { outcome, finishedAt, startedAt = finishedAt } = finished;
  switch (outcome.kind) {
    case 'returned':
    case 'recorded': {
      const success = { at: new Date(finishedAt), durationMs: Math.max(0, finishedAt - startedAt) };
      return settled(task, finished, options, { status: 'completed', success });
    }
    case 'skipped':
      return settled(task, finished, options, { status: 'completed', skipped: true });
    case 'deferred':
      return settled(task, finished, options, {
        status: 'pending',
        scheduledAt: outcome.runAt,
        takeBack: true,
        deferred: true,
      });
    case 'cancelled':
    case 'expired':
    case 'released':
      return settled(task, finished, options, { status: 'pending', takeBack: true });
    case 'threw':
    case 'timedOut':
    case 'crashed':
      return failed(task, finished, outcome, options);
  }
}

const KINDS: Readonly<Record<Failure['kind'], FailureKind>> = {
  threw: 'error',
  timedOut: 'timeout',
  crashed: 'crashed',
};

function failed(
  task: TaskRecord,
  finished: Finished,
  outcome: Failure,
  options: ConcludeOptions,
): Conclusion<TaskSettlement> {
  const now = finished.finishedAt;
  const firstErrorAt = task.firstErrorAt ?? new Date(now);
  const facts = { failures: task.attempts, firstFailedAt: firstErrorAt, now, error: outcome.error };
  // A task that was claimed and never marked as started may not have run, so it gets its run even if no attempt is
  // left.
  const unseen =
    outcome.kind === 'crashed' && task.leaseToken !== undefined && task.startedToken !== task.leaseToken;
  const retryAt = decideRetry(options.retry, facts) ?? (unseen ? new Date(now) : null);
  const failure = { message: textOf(outcome.error.message), kind: KINDS[outcome.kind], firstErrorAt };
  if (retryAt === null) return settled(task, finished, options, { status: 'failed', failure });
  // No backoff after a crash: the task has already waited for the lease of its instance to end.
  const scheduledAt = outcome.kind === 'crashed' ? new Date(now) : retryAt;
  return {
    ...settled(task, finished, options, { status: 'pending', scheduledAt, failure }),
    retryAt: scheduledAt,
  };
}

function settled(
  task: TaskRecord,
  finished: Finished,
  { instanceId, historyLimit, resetRetries }: ConcludeOptions,
  decided: Decided,
): Conclusion<TaskSettlement> {
  const entry = entryOf(task, task.attempts, finished, { instanceId, historyLimit });
  return {
    settlement: {
      lease: leaseOf(task),
      name: task.name,
      takeBack: false,
      deferred: false,
      skipped: false,
      resetRetries,
      historyLimit,
      by: 'holder',
      ...(task.limitKey !== undefined && isUnstarted(finished) ? { unstarted: true as const } : {}),
      ...decided,
      ...(entry === undefined ? {} : { entry }),
    },
  };
}
