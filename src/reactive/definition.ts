import { OptionError } from '../core/errors.js';
import {
  checkBoolean,
  checkFunction,
  checkInteger,
  checkKeys,
  checkName,
  checkOneOf,
  show,
} from '../core/options.js';
import { definedLimits, type BreakerOptions, type TaskLimits } from '../engine/limits/options.js';
import type { ScopeLimits } from '../store/port.js';
import type { DeleteWhen, OnVersionChange, TaskPlan } from '../store/reactive/reactive.js';
import { batchingOf, type Batching } from '../time/batching.js';
import { parseCron } from '../time/cron.js';
import { toMs, type Duration } from '../time/duration.js';
import { retryRule, TASK_RETRY, type RetryPolicy, type RetryRule } from '../time/retry.js';
import type { TaskBatchHandler, TaskHandler } from './run/context.js';

export type TaskRetryPolicy = RetryPolicy & {
  /** Reactive tasks only: start a new sequence of attempts when the document changes. Default: true. */
  readonly resetRetriesOnDataChange?: boolean;
};

export interface CleanupPolicy {
  /** When a task is deleted. Default: 'sourceDocumentDeleted'. */
  readonly deleteWhen?: DeleteWhen;
  /** How long the task is kept after that, counted from its last change or attempt. Default: '24h'. */
  readonly keepFor?: Duration;
}

export interface EvolutionConfig {
  /** Raise it when the handler has changed and tasks are to run again. Default: 1. */
  readonly handlerVersion?: number;
  /** What happens when the version is raised. Default: 'none'. */
  readonly onHandlerVersionChange?: OnVersionChange;
  /**
   * Reconcile all documents when the filter or the projection changes. A task that moves to another collection reconciles
   * them in any case. Default: true.
   */
  readonly reconcileOnTriggerChange?: boolean;
}

/** How many tasks of one name run in one call. */
export interface TaskBatchOptions {
  /** The most tasks in one call. Default: 100. */
  readonly size?: number;
  /** How long a call waits, after its first task was claimed, until it has `size` tasks. Default: 0. */
  readonly wait?: Duration;
}

/** The options of reactive tasks, whether they run one at a time or in batches. */
export interface ReactiveTaskOptions {
  /** Name of the task, unique in the cluster. */
  readonly task: string;
  /** The collection or table to watch. A collection need not exist yet. */
  readonly collection: string;
  /** The database of the collection. Default: the store's. */
  readonly database?: string;
  /**
   * Which documents have a task: a query or an expression on MongoDB, comparisons or sql`…` on tables. Default: all.
   */
  readonly filter?: object;
  /** The fields whose change makes the task run again: inclusions and computed fields. Default: the whole document. */
  readonly watchProjection?: object;
  /** How long a document must be unchanged before its task runs. Default: 1,000. */
  readonly debounce?:
    | Duration
    | {
        /** How long a document must be unchanged. */
        readonly wait: Duration;
        /** A document that keeps changing runs after this long anyway. Default: 5 × `wait`. */
        readonly maxWait?: Duration;
      };
  /** How failed attempts are retried. Default: after 10 s, 20 s, 40 s … at most a day, five attempts in all. */
  readonly retryPolicy?: TaskRetryPolicy;
  /** When tasks are deleted. */
  readonly cleanupPolicy?: CleanupPolicy;
  /** Attempts kept in a task's history; 0 keeps none. Default: 5. */
  readonly executionHistoryLimit?: number;
  /** What a changed handler, filter or projection means for existing tasks. */
  readonly evolution?: EvolutionConfig;
  /** Reconcile all documents at this interval: a duration, or `'CRON 0 * * * *'` in UTC. Default: never. */
  readonly reconcileEvery?: Duration;
  /** How many tasks of this name run at once on this instance. Default: `reactive.concurrency`. */
  readonly concurrency?: number;
  /** Limits of this task in the whole cluster: how much runs at once, and starts per time. Default: none. */
  readonly limits?: TaskLimits;
  /** Stops all starts of this task in the cluster after too many failed attempts. Default: none. */
  readonly breaker?: BreakerOptions;
  /** The attempt fails, and its signal aborts, after this long. Default: no limit. */
  readonly timeout?: Duration;
  /**
   * The handler completes its task inside a transaction (`complete({ transaction })`). Nothing else is written to the
   * task while it runs, and its outcome is recorded separately from others. Default: false until the first such call of
   * this task in this process, then true.
   */
  readonly transactional?: boolean;
}

export interface ReactiveTaskDefinition<
  Doc = Record<string, unknown>,
  Tx = unknown,
> extends ReactiveTaskOptions {
  /** Runs for each document that is due. */
  readonly handler: TaskHandler<Doc, Tx>;
  /** `{ size, wait }`: the handler gets several tasks in one call. Default: one task in each call. */
  readonly batch?: undefined;
}

/** A reactive task whose handler gets several due documents in one call. */
export interface ReactiveBatchDefinition<
  Doc = Record<string, unknown>,
  Tx = unknown,
> extends ReactiveTaskOptions {
  /** Runs for the documents that are due, up to `batch.size` in one call. `concurrency` counts calls. */
  readonly handler: TaskBatchHandler<Doc, Tx>;
  /** Calls the handler with several tasks at once. Default: one task in each call. */
  readonly batch: TaskBatchOptions;
}

const KEYS = [
  'task',
  'collection',
  'handler',
  'batch',
  'database',
  'filter',
  'watchProjection',
  'debounce',
  'retryPolicy',
  'cleanupPolicy',
  'executionHistoryLimit',
  'evolution',
  'reconcileEvery',
  'concurrency',
  'limits',
  'breaker',
  'timeout',
  'transactional',
];

const MAX_WAIT_FACTOR = 5;

/** A validated definition: what the planner needs, and what this instance needs to run it. */
export interface CompiledTask {
  readonly plan: TaskPlan;
  readonly handler: TaskHandler | TaskBatchHandler;
  /** Undefined if the handler gets one task at a time. */
  readonly batch?: Batching;
  readonly retry: RetryRule;
  /** For the instance that reclaims this instance's tasks after a crash. */
  readonly retryPolicy: RetryPolicy;
  readonly historyLimit: number;
  readonly concurrency?: number;
  /** Limits in the whole cluster; undefined if the code gives none. */
  readonly limits: ScopeLimits | undefined;
  readonly timeoutMs?: number;
  readonly transactional: boolean;
}

export function compileTask(
  definition: ReactiveTaskDefinition<never> | ReactiveBatchDefinition<never>,
): CompiledTask {
  const where = `reactiveTask(${show((definition as { task?: unknown } | undefined)?.task)})`;
  if ((definition as unknown) === undefined)
    throw new OptionError('reactiveTask: pass a definition: { task, collection, handler }.');
  checkKeys(where, definition, KEYS);
  const { task, collection, handler, database, filter, watchProjection, timeout, concurrency } = definition;
  checkFunction(where, 'handler', handler);
  const { resetRetriesOnDataChange, retryPolicy } = retryOf(where, definition.retryPolicy);
  return {
    plan: {
      task: checkName(where, 'task', task),
      source: {
        collection: checkName(where, 'collection', collection),
        ...(database === undefined ? {} : { database: checkName(where, 'database', database) }),
      },
      ...(filter === undefined ? {} : { filter }),
      ...(watchProjection === undefined ? {} : { watchProjection }),
      ...keyOf(where, definition),
      debounce: debounceOf(where, definition.debounce),
      resetRetriesOnDataChange,
      cleanup: cleanupOf(where, definition.cleanupPolicy),
      evolution: evolutionOf(where, definition.evolution),
      ...(definition.reconcileEvery === undefined
        ? {}
        : { reconcileEvery: everyOf(where, 'reconcileEvery', definition.reconcileEvery) }),
    },
    handler: handler as unknown as CompiledTask['handler'],
    ...(definition.batch === undefined ? {} : { batch: batchOf(where, definition.batch) }),
    retry: retryRule(where, retryPolicy, TASK_RETRY),
    retryPolicy,
    historyLimit: checkInteger(
      where,
      'executionHistoryLimit',
      definition.executionHistoryLimit ?? 5,
      0,
      1_000,
    ),
    ...(concurrency === undefined
      ? {}
      : { concurrency: checkInteger(where, 'concurrency', concurrency, 1, 10_000) }),
    limits: limitsOf(where, definition),
    transactional: checkBoolean(where, 'transactional', definition.transactional ?? false),
    ...(timeout === undefined ? {} : { timeoutMs: toMs(where, 'timeout', timeout, 1) }),
  };
}

function limitsOf(
  where: string,
  { limits, breaker }: Pick<ReactiveTaskOptions, 'limits' | 'breaker'>,
): ScopeLimits | undefined {
  checkKeys(`${where}: limits`, limits, ['concurrency', 'rate', 'shared', 'perKey']);
  return definedLimits(where, limits, breaker);
}

/** MongoDB includes `_id` unless it is excluded. */
const isWatched = (field: string, projection: object | null): boolean =>
  ['_id', ...Object.keys(projection ?? {})].some((path) => path.split('.')[0] === field);

/** Options of `perKey` that only jobs have. */
const ONLY_JOBS = ['order', 'whileRetrying'] as const;

/** The path to the key of a task. The database reads it while it plans, so it cannot be a function. */
function keyOf(
  where: string,
  { limits, watchProjection }: Pick<ReactiveTaskOptions, 'limits' | 'watchProjection'>,
): Pick<TaskPlan, 'limitKey'> {
  const perKey = (limits as TaskLimits | null | undefined)?.perKey;
  if (perKey === undefined) return {};
  const at = `${where}: limits.perKey`;
  const foreign = ONLY_JOBS.find((option) => (perKey as object | null) !== null && option in perKey);
  if (foreign !== undefined)
    throw new OptionError(
      `${at}.${foreign} is for jobs: a task runs for the latest state of its document, so its changes have no order. ` +
        'To run one task of a key at a time, use concurrency: 1.',
    );
  checkKeys(at, perKey, ['key', 'concurrency', 'rate']);
  const { key } = perKey;
  if (typeof key !== 'string' || key.split('.').some((part) => part.trim() === '' || part.startsWith('$')))
    throw new OptionError(
      `${at}.key must be a dot path into the watched values, such as 'customer.id', since the database plans tasks; got ${show(key)}.`,
    );
  const [field = ''] = key.split('.');
  if (watchProjection !== undefined && !isWatched(field, watchProjection))
    throw new OptionError(`${at}.key: watchProjection does not include ${show(field)}; add it there.`);
  return { limitKey: key };
}

function batchOf(where: string, given: TaskBatchOptions): Batching {
  const at = `${where}: batch`;
  checkKeys(at, given, ['size', 'wait']);
  const { size = 100, wait = 0 } = given;
  return batchingOf(at, size, wait);
}

function retryOf(
  where: string,
  given: TaskRetryPolicy = { type: 'exponential' },
): { readonly resetRetriesOnDataChange: boolean; readonly retryPolicy: RetryPolicy } {
  const at = `${where}: retryPolicy`;
  if (typeof given !== 'object' || (given as unknown) === null)
    throw new OptionError(
      `${at} must be an object such as { type: 'fixed', interval: '10s' }; got ${show(given)}.`,
    );
  const { resetRetriesOnDataChange = true, ...retryPolicy } = given;
  const near = Object.keys(retryPolicy).find((key) => key.toLowerCase().startsWith('reset'));
  if (near !== undefined)
    throw new OptionError(`${at}: unknown option "${near}". Did you mean "resetRetriesOnDataChange"?`);
  return {
    resetRetriesOnDataChange: checkBoolean(at, 'resetRetriesOnDataChange', resetRetriesOnDataChange),
    retryPolicy: retryPolicy,
  };
}

function debounceOf(where: string, given: ReactiveTaskDefinition['debounce'] = 1_000): TaskPlan['debounce'] {
  if (typeof given !== 'object') {
    const waitMs = toMs(where, 'debounce', given);
    return { waitMs, maxWaitMs: waitMs * MAX_WAIT_FACTOR };
  }
  checkKeys(`${where}: debounce`, given, ['wait', 'maxWait']);
  const waitMs = toMs(where, 'debounce.wait', given.wait);
  const maxWaitMs =
    given.maxWait === undefined ? waitMs * MAX_WAIT_FACTOR : toMs(where, 'debounce.maxWait', given.maxWait);
  if (maxWaitMs < waitMs)
    throw new OptionError(
      `${where}: debounce.maxWait (${show(given.maxWait)}) must not be less than debounce.wait (${show(given.wait)}).`,
    );
  return { waitMs, maxWaitMs };
}

function cleanupOf(where: string, given: CleanupPolicy = {}): TaskPlan['cleanup'] {
  const at = `${where}: cleanupPolicy`;
  checkKeys(at, given, ['deleteWhen', 'keepFor']);
  const { deleteWhen = 'sourceDocumentDeleted', keepFor = '24h' } = given;
  return {
    deleteWhen: checkOneOf(at, 'deleteWhen', deleteWhen, [
      'sourceDocumentDeleted',
      'sourceDocumentDeletedOrNoLongerMatching',
      'never',
    ] as const),
    keepForMs: toMs(at, 'keepFor', keepFor),
  };
}

function evolutionOf(where: string, given: EvolutionConfig = {}): TaskPlan['evolution'] {
  const at = `${where}: evolution`;
  checkKeys(at, given, ['handlerVersion', 'onHandlerVersionChange', 'reconcileOnTriggerChange']);
  const { handlerVersion = 1, onHandlerVersionChange = 'none', reconcileOnTriggerChange = true } = given;
  return {
    handlerVersion: checkInteger(at, 'handlerVersion', handlerVersion, 1, Number.MAX_SAFE_INTEGER),
    onHandlerVersionChange: checkOneOf(at, 'onHandlerVersionChange', onHandlerVersionChange, [
      'none',
      'reprocess_failed',
      'reprocess_all',
    ] as const),
    reconcileOnTriggerChange: checkBoolean(at, 'reconcileOnTriggerChange', reconcileOnTriggerChange),
  };
}

/** Validates an interval. Returns milliseconds, or a `CRON …` text unchanged. */
export function everyOf(where: string, option: string, given: unknown): number | string {
  if (typeof given === 'string' && given.startsWith('CRON ')) {
    parseCron(`${where}: ${option}`, given.slice(5));
    return given;
  }
  return toMs(where, option, given, 1);
}

/** Returns when recurring work that was last done at `last` is due next. */
export function nextTime(every: number | string, last: Date): Date | null {
  if (typeof every === 'number') return new Date(last.getTime() + every);
  return parseCron('CRON', every.slice(5)).next(last);
}
