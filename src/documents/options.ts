import type { Clock } from '../core/clock.js';
import { OptionError } from '../core/errors.js';
import type { Logger } from '../core/logger.js';
import { checkFunction, checkInteger, checkKeys, checkOneOf, show } from '../core/options.js';
import type { DocumentJob, DocumentJobStore } from '../store/documents.js';
import { toMs, type Duration } from '../time/duration.js';
import { retryRule, type RetryPolicy, type RetryRule } from '../time/retry.js';
import { checkZone } from '../time/zone.js';
import { MISSED, type DocumentMissedPolicy } from './times/next.js';

/** What a handler gets besides its document. */
export interface DocumentContext<Doc = Record<string, unknown>> {
  /** The schedule of the document, as it stood before the lock. */
  readonly job: DocumentJob<Doc>;
  /** Aborts when the lock is lost, and when the scheduler stops and cannot wait any longer. */
  readonly signal: AbortSignal;
}

/** What an error was about. */
export interface ScheduleErrorContext<Doc = Record<string, unknown>> {
  /**
   * `onDocument`: the handler threw. `crash`: the process that ran it last died; told where failures are counted.
   * `interval`: the schedule cannot be read; the document is parked. `sleepUntil`: it is no date; the document is left
   * alone. `lock`, `renew`, `record`, `watch`: the store failed, or a lock was lost. `onIdle`, `onStop`: that hook threw.
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
  /** Aborts when the scheduler is told to stop. */
  readonly signal: AbortSignal;
}

/** What every scheduler of documents can be told, wherever they are. */
export interface ScheduleOptions<Doc = Record<string, unknown>> {
  /** Runs a document that is due. When it has returned, the next run is planned; when it throws, see `retryPolicy`. */
  readonly onDocument: (document: Doc, context: DocumentContext<Doc>) => unknown;
  /** Awaited before the first document; if it throws, `start` rejects and nothing runs. */
  readonly onStart?: (context: HookContext) => unknown;
  /** Awaited by `stop`, after the last document. */
  readonly onStop?: (context: HookContext) => unknown;
  /** Called once when nothing is left to do, and again after the next document. */
  readonly onIdle?: (context: HookContext) => unknown;
  /** Hears of every failure. Default: the log, or the mill's `error` event. */
  readonly onError?: (error: Error, context: ScheduleErrorContext<Doc>) => unknown;
  /** Waited before each look for the next document. Default: 0. */
  readonly nextDelay?: Duration;
  /** A recurring document's next run is at least this much after the time of the present one. Default: 0. */
  readonly reprocessDelay?: Duration;
  /** Waited when nothing is due. Default: 0, which polls after 100 ms, then less and less often, up to once a second. */
  readonly idleDelay?: Duration;
  /** How long a lock outlives a process that dies. It is renewed while the handler runs. 0 = no lock at all. Default: '10m'. */
  readonly lockDuration?: Duration;
  /** How many documents may run at once here. Default: 1. */
  readonly concurrency?: number;
  /** The zone in which intervals are read; a document's own goes first. Default: 'UTC'. */
  readonly timezone?: string;
  /** What becomes of runs that nobody started in time. Default: 'once'. */
  readonly missed?: DocumentMissedPolicy;
  /** Count failures in the document, and end. Default: none; a document that failed runs again when its lock ends. */
  readonly retryPolicy?: RetryPolicy;
}

export interface SchedulerOptions<Doc = Record<string, unknown>> extends ScheduleOptions<Doc> {
  /** Where the documents are, or a function that answers it when the scheduler starts. */
  readonly store: DocumentJobStore<Doc> | (() => DocumentJobStore<Doc> | Promise<DocumentJobStore<Doc>>);
  /** Shortest and longest wait between two looks where `idleDelay` is 0. Default: `{ min: '100ms', max: '1s' }`. */
  readonly pollInterval?: { readonly min?: Duration; readonly max?: Duration };
  /** Shaped like pino. Default: warnings and errors to console.error, at most a line in ten seconds; `false` = silence. */
  readonly logger?: Logger | false;
  /** Whose time delays and timers follow. Default: the store's, or real time. */
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

/** Refuses what is wrong, and fills in the defaults. Unknown options are the caller's to refuse: it may have its own. */
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
  const min = toMs(where, 'pollInterval.min', given?.min ?? '100ms', 1);
  const max = toMs(where, 'pollInterval.max', given?.max ?? Math.max(min, 1_000), 1);
  if (max < min) throw new OptionError(`${where}: pollInterval.max must not be less than pollInterval.min.`);
  return { min, max };
}

const METHODS = ['lockNext', 'update', 'remove'] as const;

/** Says which of the three methods is missing. */
export function checkJobStore(where: string, store: unknown): void {
  const methods = store as Partial<Record<string, unknown>> | null | undefined;
  const missing = METHODS.filter((method) => typeof methods?.[method] !== 'function');
  if (missing.length === 0) return;
  throw new OptionError(
    `${where}: store must have ${METHODS.join(', ')}; ${show(store)} has no ${missing.join(', no ')}.`,
  );
}

/** The options of a scheduler that stands alone. */
export function checkScheduler<Doc>(
  where: string,
  options: SchedulerOptions<Doc>,
): { readonly settings: ScheduleSettings; readonly pollMs: PollMs } {
  checkKeys(where, options, ['store', 'pollInterval', 'logger', 'clock', ...SCHEDULE_KEYS]);
  if (typeof options !== 'object')
    throw new OptionError(`${where}: options with a store and onDocument are needed.`);
  if (typeof options.store !== 'function') checkJobStore(where, options.store);
  return { settings: checkSchedule(where, options), pollMs: pollOf(where, options.pollInterval) };
}
