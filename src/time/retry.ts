/**
 * A retry policy: its options, their check, and the delay before each retry. The SQL function `check_retry_policy`
 * (`policyFunction` in src/sql/schema/migrations/0012-enqueue.ts) checks the same options for jobs that are enqueued
 * by SQL: change both. Once 0.1.0 is released that step is frozen, and a change needs a new step.
 */
import { OptionError } from '../core/errors.js';
import { checkInteger, checkKeys, checkOneOf, show } from '../core/options.js';
import { parseCron } from './cron.js';
import { toMs, type Duration } from './duration.js';

interface RetryLimits {
  /** Attempts in total, with the first; -1 = unlimited. Default: 10 (jobs), 5 (tasks), unlimited with `maxDuration`. */
  readonly maxAttempts?: number;
  /** Stop retrying once this much time has passed since the first failure of the sequence. Default: no limit. */
  readonly maxDuration?: Duration;
  /** The random share of each delay, from 0 to 1, by which it is shortened; `true` = 0.5. Default: 0. */
  readonly jitter?: number | boolean;
}

/** Limits without a `type`, such as `{ maxAttempts: 3 }`, keep the default delays. */
export type RetryPolicy = RetryLimits &
  (
    | { readonly type?: never; readonly maxAttempts: number }
    | { readonly type?: never; readonly maxDuration: Duration }
    | {
        readonly type: 'fixed';
        /** Delay before every retry. */
        readonly interval: Duration;
      }
    | {
        readonly type: 'linear';
        /** Delay before the first retry; before the n-th, n times as long. */
        readonly interval: Duration;
      }
    | {
        readonly type: 'exponential';
        /** Delay before the first retry. Default: '2s' (jobs and document schedules), '10s' (reactive tasks). */
        readonly min?: Duration;
        /** Longest delay. Default: '1d'. */
        readonly max?: Duration;
        /** Growth of the delay per failure. Default: 2. */
        readonly factor?: number;
      }
    | {
        readonly type: 'series';
        /** Delay before each retry in turn; the last one repeats. */
        readonly intervals: readonly Duration[];
      }
    | {
        readonly type: 'cron';
        /** Cron text: the retry is at its next time. */
        readonly expression: string;
        /** IANA time zone of the expression. Default: 'UTC'. */
        readonly timezone?: string;
      }
  );

/** What applies if a policy leaves it out. */
export interface RetryDefaults {
  readonly maxAttempts: number;
  /** Delay before the first retry, of an exponential policy and of one without a type. */
  readonly min: Duration;
}

/** Jobs without a policy: 2 s, 4 s, 8 s … up to a day; ten attempts in all. */
const JOB_RETRY: RetryDefaults = { maxAttempts: 10, min: '2s' };
/** Reactive tasks without a policy: 10 s, 20 s, 40 s … up to a day; five attempts in all. */
export const TASK_RETRY: RetryDefaults = { maxAttempts: 5, min: '10s' };

/** A validated policy. */
export interface RetryRule {
  readonly maxAttempts: number;
  readonly maxDurationMs: number;
  /** When to retry after the n-th failure (n from 1). */
  readonly retryAt: (failures: number, now: number, random: () => number) => number;
}

type Typed = Extract<RetryPolicy, { type: string }>;

const LIMITS = ['maxAttempts', 'maxDuration', 'jitter'];
const KEYS: Readonly<Record<Typed['type'], readonly string[]>> = {
  fixed: ['interval'],
  linear: ['interval'],
  exponential: ['min', 'max', 'factor'],
  series: ['intervals'],
  cron: ['expression', 'timezone'],
};
const TYPES = Object.keys(KEYS) as Typed['type'][];
/** Options that mean something with a certain type only. */
const SHAPES = Object.values(KEYS).flat();

/** Validates a policy and converts it to a rule. Throws an `OptionError` that names the option if it is invalid. */
export function retryRule(
  where: string,
  given?: RetryPolicy,
  defaults: RetryDefaults = JOB_RETRY,
): RetryRule {
  const at = `${where}: retryPolicy`;
  const policy = typed(at, given);
  if ('resetRetriesOnDataChange' in policy) {
    throw new OptionError(
      `${at}: resetRetriesOnDataChange is for reactive tasks; a job has no data to watch.`,
    );
  }
  checkKeys(at, policy, ['type', ...LIMITS, ...KEYS[policy.type]]);
  const delay = delayOf(at, policy, defaults);
  const jitter = jitterOf(at, policy.jitter);
  return {
    maxAttempts: maxAttemptsOf(at, policy, defaults.maxAttempts),
    maxDurationMs:
      policy.maxDuration === undefined ? Infinity : toMs(at, 'maxDuration', policy.maxDuration, 1),
    retryAt: (failures, now, random) => now + Math.round(delay(failures, now) * (1 - jitter * random())),
  };
}

/** Checks the type. Limits alone, and no policy at all, are the exponential one of the defaults. */
function typed(at: string, policy: RetryPolicy | undefined): Typed {
  if (policy === undefined) return { type: 'exponential' };
  if (typeof policy !== 'object' || (policy as unknown) === null) {
    throw new OptionError(
      `${at} must be an object such as { type: 'fixed', interval: '10s' } or { maxAttempts: 3 }, got ${show(policy)}.`,
    );
  }
  const keys = Object.keys(policy);
  const needsType = keys.length === 0 || keys.some((key) => key === 'type' || SHAPES.includes(key));
  if (needsType) return { ...policy, type: checkOneOf(at, 'type', policy.type, TYPES) } as Typed;
  checkKeys(at, policy, ['type', ...LIMITS]);
  return { ...policy, type: 'exponential' };
}

function maxAttemptsOf(at: string, policy: RetryPolicy, otherwise: number): number {
  const { maxAttempts, maxDuration } = policy;
  if (maxAttempts === undefined) return maxDuration === undefined ? otherwise : Infinity;
  if (maxAttempts === -1) return Infinity;
  return checkInteger(at, 'maxAttempts (or -1 for unlimited)', maxAttempts, 1, Number.MAX_SAFE_INTEGER);
}

function jitterOf(at: string, jitter: unknown): number {
  if (jitter === undefined || jitter === false) return 0;
  if (jitter === true) return 0.5;
  if (typeof jitter === 'number' && jitter >= 0 && jitter <= 1) return jitter;
  throw new OptionError(`${at}: jitter must be true, false or a number from 0 to 1, got ${show(jitter)}.`);
}

/** Milliseconds to wait after the n-th failure. */
function delayOf(
  at: string,
  policy: Typed,
  defaults: RetryDefaults,
): (failures: number, now: number) => number {
  switch (policy.type) {
    case 'fixed': {
      const interval = toMs(at, 'interval', policy.interval);
      return () => interval;
    }
    case 'linear': {
      const interval = toMs(at, 'interval', policy.interval);
      return (failures) => interval * failures;
    }
    case 'exponential':
      return exponential(at, policy, defaults.min);
    case 'series':
      return series(at, policy.intervals);
    case 'cron': {
      const cron = parseCron(at, policy.expression, policy.timezone);
      return (_failures, now) => (cron.next(new Date(now))?.getTime() ?? now) - now;
    }
  }
}

function exponential(
  at: string,
  policy: Typed & { type: 'exponential' },
  first: Duration,
): (failures: number) => number {
  const { min: least = first, max: most = '1d', factor = 2 } = policy;
  const min = toMs(at, 'min', least);
  const max = toMs(at, 'max', most);
  if (typeof factor !== 'number' || !(factor >= 1) || !Number.isFinite(factor)) {
    throw new OptionError(`${at}: factor must be a number of at least 1, got ${show(factor)}.`);
  }
  if (max < min)
    throw new OptionError(`${at}: max (${show(most)}) must not be less than min (${show(least)}).`);
  // The power may overflow to Infinity, and 0 * Infinity is NaN.
  return (failures) => Math.min(max, min * Math.min(Number.MAX_VALUE, factor ** (failures - 1)));
}

function series(at: string, intervals: readonly Duration[]): (failures: number) => number {
  if (!Array.isArray(intervals) || intervals.length === 0) {
    throw new OptionError(`${at}: intervals must be a list such as ['1m', '5m'], got ${show(intervals)}.`);
  }
  const delays = intervals.map((interval: Duration, index) =>
    toMs(at, `intervals[${String(index)}]`, interval),
  );
  return (failures) => delays[Math.min(failures, delays.length) - 1] ?? 0;
}
