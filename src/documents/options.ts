import type { Clock } from '../core/clock.js';
import { OptionError } from '../core/errors.js';
import type { Logger } from '../core/logger.js';
import { checkFunction, checkInteger, checkKeys, checkOneOf, show } from '../core/options.js';
import type { MissedPolicy } from '../core/records/job.js';
import type { DocumentJob, DocumentJobStore } from '../store/documents.js';
import { toMs, type Duration } from '../time/duration.js';
import { retryRule, type RetryPolicy, type RetryRule } from '../time/retry.js';
import { checkZone } from '../time/zone.js';

/** What happens to runs that no scheduler started in time. `seed`: the next run is computed as in mongodb-cron. */
export type DocumentMissedPolicy = MissedPolicy | 'seed';
export const MISSED: readonly DocumentMissedPolicy[] = ['once', 'skip', 'all', 'seed'];

/** The second argument of `onDocument`. */
export interface DocumentContext<Doc = Record<string, unknown>> {
  /** The document's schedule as it was before the scheduler locked it. */
  readonly job: DocumentJob<Doc>;
  /** Aborts when the lock is lost, or when a stop no longer waits for the handler. */
  readonly signal: AbortSignal;
}

/** Where an error passed to `onError` came from. */
export interface ScheduleErrorContext<Doc = Record<string, unknown>> {
  /**
   * `onDocument`: the handler threw. `crash`: the process that last ran the document died; reported only if failures
   * are counted. `interval`: the schedule cannot be parsed, and the document is parked. `sleepUntil`: the value is not
   * a date, and the document does not run. `lock`, `renew`, `record`, `watch`: the store failed, or a lock was lost.
   * `onIdle`, `onStop`: that hook threw.
   */
  readonly where:
    | 'onDocument'
    | 'crash'
    | 'interval'
    | 'sleepUntil'
    | 'lock'
    | 'renew'
    | 'record'
    | 'watch'
    | 'onIdle'
    | 'onStop';
  readonly document?: Doc;
  readonly job?: DocumentJob<Doc>;
}

export interface HookContext {
  /** Aborts when the scheduler is asked to stop. */
  readonly signal: AbortSignal;
}

/** Options of every document scheduler, whatever store holds the documents. */
export interface ScheduleOptions<Doc = Record<string, unknown>> {
  /** Runs a due document. After it returns, the next run is planned. If it throws, see `retryPolicy`. */
  readonly onDocument: (document: Doc, context: DocumentContext<Doc>) => unknown;
  /** Awaited before the first document runs. If it throws, `start` rejects and nothing runs. Default: none. */
  readonly onStart?: (context: HookContext) => unknown;
  /** Awaited by `stop`, after the last document has ended. Default: none. */
  readonly onStop?: (context: HookContext) => unknown;
  /** Called once when no document is due or running, and again after the next document. Default: none. */
  readonly onIdle?: (context: HookContext) => unknown;
  /** Receives every failure. Default: the logger, or the `error` event if a mill owns the scheduler. */
  readonly onError?: (error: Error, context: ScheduleErrorContext<Doc>) => unknown;
  /** Delay before each poll for due documents. Default: 0. */
  readonly nextDelay?: Duration;
  /** Minimum time from the due time of one run of a recurring document to that of the next. Default: 0. */
  readonly reprocessDelay?: Duration;
  /**
   * Delay between polls while nothing is due. 0 polls after 100 ms, then after twice as long each time up to a second,
   * and never past the next due time. Default: 0.
   */
  readonly idleDelay?: Duration;
  /**
   * How long a document stays locked after its process dies. The lock is renewed while the handler runs. 0 disables
   * locking. Default: '10m'.
   */
  readonly lockDuration?: Duration;
  /** How many documents this scheduler runs at once. Default: 1. */
  readonly concurrency?: number;
  /** Time zone of intervals; a document's own zone takes precedence. Default: 'UTC'. */
  readonly timezone?: string;
  /** What happens to runs that no scheduler started in time. Default: 'once'. */
  readonly missed?: DocumentMissedPolicy;
  /**
   * Counts failures in the document and gives up when no attempt is left. Without it, a document that failed runs again
   * when its lock ends. Default: none.
   */
  readonly retryPolicy?: RetryPolicy;
}

export interface SchedulerOptions<Doc = Record<string, unknown>> extends ScheduleOptions<Doc> {
  /** The store of the documents, or a function that returns it when the scheduler first needs it. */
  readonly store: DocumentJobStore<Doc> | (() => DocumentJobStore<Doc> | Promise<DocumentJobStore<Doc>>);
  /** How long to wait between two polls if `idleDelay` is 0. */
  readonly pollInterval?: {
    /** The shortest wait. Default: '100ms'. */
    readonly min?: Duration;
    /** The longest wait; `min` if that is longer. Default: '1s'. */
    readonly max?: Duration;
  };
  /**
   * A logger with the methods of pino, or `false` for none. Default: warnings and errors go to console.error, at most
   * one line in ten seconds.
   */
  readonly logger?: Logger | false;
  /** The clock of delays and timers. Default: the store's clock, or real time. */
  readonly clock?: Clock;
}

export interface ScheduleSettings {
  readonly nextMs: number;
  readonly reprocessMs: number;
  readonly idleMs: number;
  readonly lockMs: number;
  readonly concurrency: number;
  readonly timezone: string;
  readonly missed: DocumentMissedPolicy;
  readonly retry: RetryRule | undefined;
}

const HOOKS = ['onStart', 'onStop', 'onIdle', 'onError'] as const;
export const SCHEDULE_KEYS: readonly string[] = [
  'onDocument',
  ...HOOKS,
  'nextDelay',
  'reprocessDelay',
  'idleDelay',
  'lockDuration',
  'concurrency',
  'timezone',
  'missed',
  'retryPolicy',
];

/** Validates options and fills in the defaults. Does not reject unknown keys: the caller may accept more of them. */
function checkSchedule<Doc>(where: string, options: ScheduleOptions<Doc>): ScheduleSettings {
  checkFunction(where, 'onDocument', options.onDocument);
  for (const hook of HOOKS) if (options[hook] !== undefined) checkFunction(where, hook, options[hook]);
  const { nextDelay = 0, reprocessDelay = 0, idleDelay = 0, lockDuration = '10m' } = options;
  const { concurrency = 1, timezone = 'UTC', missed = 'once', retryPolicy } = options;
  return {
    nextMs: toMs(where, 'nextDelay', nextDelay),
    reprocessMs: toMs(where, 'reprocessDelay', reprocessDelay),
    idleMs: toMs(where, 'idleDelay', idleDelay),
    lockMs: toMs(where, 'lockDuration', lockDuration),
    concurrency: checkInteger(where, 'concurrency', concurrency, 1, 1_000),
    timezone: checkZone(where, timezone),
    missed: checkOneOf(where, 'missed', missed, MISSED),
    retry: retryPolicy === undefined ? undefined : retryRule(where, retryPolicy),
  };
}

export interface PollMs {
  readonly min: number;
  readonly max: number;
}

function pollOf(where: string, given: SchedulerOptions['pollInterval']): PollMs {
  checkKeys(`${where}: pollInterval`, given, ['min', 'max']);
  const { min: least = '100ms', max: most } = given ?? {};
  const min = toMs(where, 'pollInterval.min', least, 1);
  const max = toMs(where, 'pollInterval.max', most ?? Math.max(min, 1_000), 1);
  if (max < min)
    throw new OptionError(
      `${where}: pollInterval.max (${show(most)}) must not be less than pollInterval.min (${show(least)}).`,
    );
  return { min, max };
}

const METHODS = ['lockNext', 'update', 'remove'] as const;

/** Throws an OptionError that names the missing methods. */
export function checkJobStore(where: string, store: unknown): void {
  const methods = store as Partial<Record<string, unknown>> | null | undefined;
  const missing = METHODS.filter((method) => typeof methods?.[method] !== 'function');
  if (missing.length === 0) return;
  throw new OptionError(
    `${where}: store must have the methods ${METHODS.join(', ')}; ${show(store)} has no ${missing.join(', no ')}.`,
  );
}

/** Validates the options of a `Scheduler`. */
export function checkScheduler<Doc>(
  where: string,
  options: SchedulerOptions<Doc>,
): { readonly settings: ScheduleSettings; readonly pollMs: PollMs } {
  checkKeys(where, options, ['store', 'pollInterval', 'logger', 'clock', ...SCHEDULE_KEYS]);
  if (typeof options !== 'object')
    throw new OptionError(`${where}: pass options with a store and onDocument, got ${show(options)}.`);
  if (typeof options.store !== 'function') checkJobStore(where, options.store);
  return { settings: checkSchedule(where, options), pollMs: pollOf(where, options.pollInterval) };
}
