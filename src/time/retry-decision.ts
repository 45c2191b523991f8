/** Whether and when work that failed runs again. */
import { FatalError } from '../core/errors.js';
import { toMs } from './duration.js';
import type { RetryRule } from './retry.js';

export interface FailureFacts {
  /** Failures of this sequence, including the present one. */
  readonly failures: number;
  readonly firstFailedAt: Date;
  readonly now: number;
  readonly error: unknown;
  readonly random?: () => number;
}

/** When to retry, or null if the attempts are used up, `maxDuration` has passed or the error is fatal. */
export function decideRetry(rule: RetryRule, facts: FailureFacts): Date | null {
  const { failures, firstFailedAt, now, error, random = Math.random } = facts;
  if (error instanceof FatalError) return null;
  if (failures >= rule.maxAttempts) return null;
  if (now - firstFailedAt.getTime() > rule.maxDurationMs) return null;
  return new Date(retryAfterOf(error, now) ?? rule.retryAt(failures, now, random));
}

/** The retry time from the error's own `retryAfter` (a duration or a Date); null if it is absent or invalid. */
function retryAfterOf(error: unknown, now: number): number | null {
  if (typeof error !== 'object' || error === null || !('retryAfter' in error)) return null;
  const { retryAfter } = error;
  if (retryAfter instanceof Date) return Number.isNaN(retryAfter.getTime()) ? null : retryAfter.getTime();
  try {
    return now + toMs('error', 'retryAfter', retryAfter);
  } catch {
    return null;
  }
}
