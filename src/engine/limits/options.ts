import { OptionError } from '../../core/errors.js';
import { checkInteger, checkKeys, checkName, checkOneOf, show } from '../../core/options.js';
import type { BreakerRule, KeyRule, RateLimit, ScopeLimits } from '../../store/port.js';
import { toMs, type Duration } from '../../time/duration.js';

/** At most `limit` starts in any window of `per`, in the whole cluster. A start is a claim; retries count. */
export interface RateOptions {
  /** How many may start in any window of `per`. */
  readonly limit: number;
  /** The length of the window. */
  readonly per: Duration;
  /** How many may start at once; the others are evenly spread over the window. Default: 1. */
  readonly burst?: number;
}

/** Limits of each key of a name. With `key` alone, keys only take turns. */
export interface PerKeyOptions {
  /** A dot path into the payload, or a function of it. It is evaluated at enqueue and stored as `limitKey`. */
  readonly key: string | ((data: never) => unknown);
  /** How many jobs of one key may run at once in the cluster. Cannot be combined with `order`. Default: no limit. */
  readonly concurrency?: number;
  /** How many jobs of one key may start per time in the cluster. Default: no limit. */
  readonly rate?: RateOptions;
  /**
   * `fifo` runs the jobs of a key one after the other, by their due time at enqueue, then in the order of enqueue.
   * Default: by priority and due time.
   */
  readonly order?: 'fifo';
  /**
   * With `order`: whether a job that waits for its retry holds its key, or lets the next jobs pass. Default: 'hold'.
   */
  readonly whileRetrying?: 'hold' | 'pass';
}

/** Limits in the whole cluster, whatever runs where. */
export interface WorkLimits {
  /** How much may run at once in the cluster. Default: no limit. */
  readonly concurrency?: number;
  /** How much may start per time in the cluster. Default: no limit. */
  readonly rate?: RateOptions;
  /** Names of limits that other work uses, too; `mill.limit` defines them. Default: none. */
  readonly shared?: readonly string[];
}

/** Limits of each key of a reactive task. With `key` alone, keys only take turns. */
export interface TaskPerKeyOptions {
  /**
   * A dot path into the watched values, through objects only. It is evaluated when a document is planned, and stored as
   * `limitKey`.
   */
  readonly key: string;
  /** How many tasks of one key may run at once in the cluster. Default: no limit. */
  readonly concurrency?: number;
  /** How many tasks of one key may start per time in the cluster. Default: no limit. */
  readonly rate?: RateOptions;
}

/** Limits of a reactive task. */
export interface TaskLimits extends WorkLimits {
  /** Limits of each key, such as each customer. Default: none. */
  readonly perKey?: TaskPerKeyOptions;
}

/** Limits of a job. */
export interface KeyedLimits extends WorkLimits {
  /** Limits of each key, such as each customer. Default: none. */
  readonly perKey?: PerKeyOptions;
}

/** Stops all starts in the cluster after too many failed attempts, and tries again with one. */
export interface BreakerOptions {
  /** How many attempts must fail. */
  readonly failures: number;
  /** The time in which they fail. */
  readonly within: Duration;
  /** How long nothing starts. Then one start is let through: its success closes the breaker, its failure opens it again. */
  readonly pause: Duration;
}

/** What `mill.limit` takes. */
export interface SharedLimitOptions {
  /** How much of all work that uses it may run at once in the cluster. Default: no limit. */
  readonly concurrency?: number;
  /** How much of it may start per time in the cluster. Default: no limit. */
  readonly rate?: RateOptions;
  /** Stops all work that uses it after too many failures. Default: none. */
  readonly breaker?: BreakerOptions;
}

const MOST = 1_000_000;
const RATE_KEYS = ['limit', 'per', 'burst'];
const BREAKER_KEYS = ['failures', 'within', 'pause'];
const PER_KEY_KEYS = ['key', 'concurrency', 'rate', 'order', 'whileRetrying'];
const MOST_SHARED = 20;

/** A whole number from 1. 0 would stop the work for good, which is what a pause is for. */
export function checkConcurrency(where: string, option: string, value: unknown): number {
  if (value === 0)
    throw new OptionError(
      `${where}: ${option} must be at least 1, got 0. To stop the work, pause its name instead.`,
    );
  return checkInteger(where, option, value, 1, MOST);
}

export function compileRate(where: string, options: RateOptions): RateLimit {
  checkKeys(where, options, RATE_KEYS);
  const { limit, per, burst = 1 } = options;
  if ((limit as unknown) === 0)
    throw new OptionError(
      `${where}: limit must be at least 1, got 0. To stop the work, pause its name instead.`,
    );
  const checked = checkInteger(where, 'limit', limit, 1, MOST);
  return {
    limit: checked,
    perMs: toMs(where, 'per', per, 1),
    burst: checkInteger(where, 'burst', burst, 1, checked),
  };
}

export function compileBreaker(where: string, options: BreakerOptions): BreakerRule {
  checkKeys(where, options, BREAKER_KEYS);
  return {
    failures: checkInteger(where, 'failures', options.failures, 1, MOST),
    withinMs: toMs(where, 'within', options.within, 1),
    pauseMs: toMs(where, 'pause', options.pause, 1),
  };
}

function compilePerKey(where: string, options: PerKeyOptions): KeyRule {
  checkKeys(where, options, PER_KEY_KEYS);
  const { key, concurrency, rate, order, whileRetrying = 'hold' } = options;
  if (typeof key !== 'function' && (typeof key !== 'string' || key.trim() === ''))
    throw new OptionError(
      `${where}: key must be a dot path into the payload or a function of it, got ${show(key)}.`,
    );
  if (options.whileRetrying !== undefined && order === undefined)
    throw new OptionError(
      `${where}: whileRetrying needs order: 'fifo'; without an order no job holds its key.`,
    );
  if (order !== undefined && concurrency !== undefined)
    throw new OptionError(`${where}: order: 'fifo' runs one job of a key at a time; leave concurrency out.`);
  return {
    ...(concurrency === undefined
      ? {}
      : { concurrency: checkConcurrency(where, 'concurrency', concurrency) }),
    ...(rate === undefined ? {} : { rate: compileRate(`${where}: rate`, rate) }),
    ...(order === undefined
      ? {}
      : {
          order: checkOneOf(where, 'order', order, ['fifo'] as const),
          whileRetrying: checkOneOf(where, 'whileRetrying', whileRetrying, ['hold', 'pass'] as const),
        }),
  };
}

function compileShared(where: string, shared: unknown): readonly string[] {
  if (!Array.isArray(shared) || shared.length > MOST_SHARED)
    throw new OptionError(
      `${where}: shared must be a list of up to ${String(MOST_SHARED)} names, got ${show(shared)}.`,
    );
  return [...new Set(shared.map((name) => checkName(where, 'shared', name)))];
}

/** Compiles `limits`, whose keys the caller has checked, and `breaker` of a definition. */
export function definedLimits(
  where: string,
  limits: KeyedLimits | undefined,
  breaker: BreakerOptions | undefined,
): ScopeLimits | undefined {
  const compiled = {
    ...compileLimits(`${where}: limits`, limits ?? {}),
    ...(breaker === undefined ? {} : { breaker: compileBreaker(`${where}: breaker`, breaker) }),
  };
  return Object.keys(compiled).length === 0 ? undefined : compiled;
}

/** Compiles limits, whose keys the caller has checked: each kind of work has others. */
export function compileLimits(
  where: string,
  options: KeyedLimits & { readonly breaker?: BreakerOptions },
): ScopeLimits {
  const { concurrency, rate, perKey, shared, breaker } = options;
  return {
    ...(concurrency === undefined
      ? {}
      : { concurrency: checkConcurrency(where, 'concurrency', concurrency) }),
    ...(rate === undefined ? {} : { rate: compileRate(`${where}: rate`, rate) }),
    ...(perKey === undefined ? {} : { perKey: compilePerKey(`${where}: perKey`, perKey) }),
    ...(shared === undefined ? {} : { shared: compileShared(where, shared) }),
    ...(breaker === undefined ? {} : { breaker: compileBreaker(`${where}: breaker`, breaker) }),
  };
}
