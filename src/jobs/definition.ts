import type { StandardSchemaV1 } from '@standard-schema/spec';
import { OptionError, PayloadError } from '../core/errors.js';
import { checkBoolean, checkInteger, checkKeys, checkName, show } from '../core/options.js';
import { definedLimits, type BreakerOptions, type KeyedLimits } from '../engine/limits/options.js';
import type { RetentionMs, ScopeLimits } from '../store/port.js';
import { batchingOf, type Batching } from '../time/batching.js';
import { toMs, type Duration } from '../time/duration.js';
import { retryRule, type RetryPolicy, type RetryRule } from '../time/retry.js';
import type { KeyPath } from './enqueue/limit-key.js';

/** How long finished jobs are kept; 0 deletes them at once. In a definition, the mill's settings are the default. */
export interface Retention {
  /** How long completed jobs are kept. Default: '7d'. */
  readonly completed?: Duration;
  /** How long failed jobs are kept. Default: '30d'. */
  readonly failed?: Duration;
  /** How long cancelled jobs are kept. Default: '7d'. */
  readonly cancelled?: Duration;
}

/** Options that producers and workers share. */
export interface DefinitionOptions {
  /** How failed attempts are retried. Default: after 2 s, 4 s, 8 s … at most a day, ten attempts in all. */
  readonly retryPolicy?: RetryPolicy;
  /** The attempt fails, and its signal aborts, after this long. Default: no limit. */
  readonly timeout?: Duration;
  /** From -10 to 10; higher runs first among jobs of the same name. Default: 0. */
  readonly priority?: number;
  /**
   * A job that has not started this long after its due time is cancelled, with the `failReason` `expired`. Does not apply
   * to schedules. Default: never.
   */
  readonly expireIn?: Duration;
  /** How long finished jobs of this name are kept. Default: the mill's. */
  readonly retention?: Retention;
  /**
   * The handler completes its job inside a transaction (`complete({ transaction })`). While it runs, heartbeats are not
   * written, and progress and log lines are held back until it ends: any other write to the job would make that
   * transaction conflict. Default: false until the first such call for this name in this process, then true.
   */
  readonly transactional?: boolean;
  /** Limits of this name in the whole cluster: how much runs at once, starts per time, limits per key. Default: none. */
  readonly limits?: KeyedLimits;
  /** Stops this name in the whole cluster after too many failed attempts, and tries again with one. Default: none. */
  readonly breaker?: BreakerOptions;
  /**
   * The name of another job. Each time a job of this name fails for good, the same write stores a job of that name, with
   * the failed job, its error and its history as the payload. The definition of the worker that records the failure
   * counts. Default: none.
   */
  readonly deadLetter?: string;
}

interface SchemaOption {
  /**
   * Any Standard Schema validator (zod, valibot, arktype …). `enqueue` refuses a payload that does not fit, and the
   * schema types `data`. Default: none.
   */
  readonly schema?: StandardSchemaV1;
}

/** Options of a handler on one instance. */
export interface WorkOptions {
  /** How many jobs of this name may run at once on this instance. Default: 5. */
  readonly concurrency?: number;
  /** How many attempts a job's history keeps; 0 keeps none. Default: the mill's. */
  readonly executionHistoryLimit?: number;
  /** Replace an earlier handler of the same name instead of throwing. Default: false. */
  readonly replace?: boolean;
  /**
   * A module whose default export is the handler, as a `file:` URL: `new URL('./resize.js', import.meta.url)`. It runs in
   * worker threads, one job in each; needs the package piscina. Default: the handler runs in this thread.
   */
  readonly thread?: URL | string;
}

/** Options of a handler of batches on one instance. */
export interface BatchOptions {
  /** The most jobs in one call. Default: 100. */
  readonly size?: number;
  /** How long a call waits, after its first job was claimed, until it has `size` jobs. Default: 0. */
  readonly wait?: Duration;
  /**
   * All jobs of one call have the same key: that of `limits.perKey`, or the one given at enqueue; jobs without any share
   * the key ''. Keys take turns. Default: false.
   */
  readonly byKey?: boolean;
  /** How many calls may run at once on this instance. Default: 5. */
  readonly concurrency?: number;
  /** How many attempts a job's history keeps; 0 keeps none. Default: the mill's. */
  readonly executionHistoryLimit?: number;
  /** Replace an earlier handler of the same name instead of throwing. Default: false. */
  readonly replace?: boolean;
}

export type JobOptions = DefinitionOptions & WorkOptions;

/**
 * A job's name, options and types without its handler: what a producer imports. `Input` is the payload that producers
 * give, `Output` the one that the handler gets, `Result` what the handler returns.
 */
export interface JobDefinition<Input = unknown, Output = Input, Result = unknown> {
  readonly name: string;
  readonly options: DefinitionOptions;
  readonly schema?: StandardSchemaV1<Input, Output>;
  /** Carries the type of the result for `work` and `jobs.result`; there is no such property at run time. */
  readonly '~result'?: Result;
}

const DEFINITION_KEYS = [
  'retryPolicy',
  'timeout',
  'priority',
  'expireIn',
  'retention',
  'transactional',
  'limits',
  'breaker',
  'deadLetter',
  'schema',
];
const HANDLER_KEYS = ['concurrency', 'executionHistoryLimit', 'replace'];
const WORK_KEYS = [...HANDLER_KEYS, 'thread'];
const BATCH_KEYS = ['size', 'wait', 'byKey', ...HANDLER_KEYS];

/**
 * Defines a job without its handler, so that a producer can import it. `mill.work` adds the handler. The second type is
 * that of the result: `defineJob<Email, Receipt>(…)`, or `defineJob<typeof schema, Receipt>(…)`.
 */
export function defineJob<S extends StandardSchemaV1, Result = unknown>(
  name: string,
  options: DefinitionOptions & { readonly schema: S },
): JobDefinition<StandardSchemaV1.InferInput<S>, StandardSchemaV1.InferOutput<S>, Result>;
export function defineJob<T = unknown, Result = unknown>(
  name: string,
  options?: DefinitionOptions,
): JobDefinition<T, T, Result>;
export function defineJob(name: string, options: DefinitionOptions & SchemaOption = {}): JobDefinition {
  const where = `defineJob(${show(name)})`;
  checkName(where, 'name', name);
  checkKeys(where, options, DEFINITION_KEYS, {
    keys: WORK_KEYS,
    call: 'mill.work(definition, options, handler)',
  });
  const { schema, ...rest } = options;
  compile(where, name, rest);
  checkSchema(where, schema);
  return { name, options: rest, ...(schema === undefined ? {} : { schema }) };
}

/** True for a value of the shape that `defineJob` returns, in this copy of the package or another. */
export function isDefinition(value: unknown): value is JobDefinition {
  if (typeof value !== 'object' || value === null) return false;
  const { name, options } = value as Partial<JobDefinition>;
  return typeof name === 'string' && name.trim() !== '' && typeof options === 'object';
}

function checkSchema(where: string, schema: unknown): void {
  if (schema === undefined) return;
  const standard: unknown = Reflect.get(Object(schema) as object, '~standard');
  if (typeof standard === 'object' && standard !== null && 'validate' in standard) return;
  throw new OptionError(
    `${where}: schema must be a Standard Schema validator (zod, valibot, arktype …), got ${show(schema)}.`,
  );
}

/** A definition's options, checked, with durations in milliseconds. */
export interface CompiledOptions {
  readonly retry: RetryRule;
  readonly retryPolicy: RetryPolicy | undefined;
  readonly timeoutMs: number | undefined;
  readonly priority: number;
  readonly expireInMs: number | undefined;
  readonly retention: Partial<RetentionMs>;
  readonly transactional: boolean;
  readonly deadLetter: string | undefined;
  /** Undefined if the definition has none. */
  readonly limits: ScopeLimits | undefined;
  /** How the key of a payload is found; undefined without limits per key. */
  readonly keyPath: KeyPath | undefined;
}

export function compile(where: string, name: string, options: DefinitionOptions): CompiledOptions {
  const {
    retryPolicy,
    timeout,
    priority = 0,
    expireIn,
    retention,
    transactional = false,
    deadLetter,
    limits,
    breaker,
  } = options;
  checkKeys(`${where}: limits`, limits, ['concurrency', 'rate', 'shared', 'perKey']);
  return {
    retry: retryRule(where, retryPolicy),
    retryPolicy,
    timeoutMs: timeout === undefined ? undefined : toMs(where, 'timeout', timeout, 1),
    priority: checkPriority(where, priority),
    expireInMs: expireIn === undefined ? undefined : toMs(where, 'expireIn', expireIn, 1),
    retention: toRetention(where, retention),
    transactional: checkBoolean(where, 'transactional', transactional),
    deadLetter: deadLetter === undefined ? undefined : checkDeadLetter(where, name, deadLetter),
    limits: definedLimits(where, limits, breaker),
    keyPath: limits?.perKey?.key,
  };
}

/** A dead letter of a job's own name could fail and make another one, for ever. */
function checkDeadLetter(where: string, name: string, deadLetter: unknown): string {
  if (checkName(where, 'deadLetter', deadLetter) !== name) return deadLetter as string;
  throw new OptionError(`${where}: deadLetter must name another job, got its own name ${show(name)}.`);
}

export const checkPriority = (where: string, priority: unknown): number =>
  checkInteger(where, 'priority', priority, -10, 10);

export function toRetention(where: string, retention: Retention | undefined): Partial<RetentionMs> {
  checkKeys(`${where}: retention`, retention, ['completed', 'failed', 'cancelled']);
  const entries = Object.entries(retention ?? {}).map(([status, keep]) => [
    status,
    toMs(where, `retention.${status}`, keep),
  ]);
  return Object.fromEntries(entries) as Partial<RetentionMs>;
}

export interface CompiledWork {
  readonly concurrency: number;
  readonly historyLimit: number | undefined;
  readonly replace: boolean;
  /** Undefined if the handler gets one job at a time. */
  readonly batch?: Batching;
}

/** Checks the options of `mill.batch`. */
export function compileBatchWork(
  where: string,
  { limits }: DefinitionOptions,
  options: BatchOptions,
): CompiledWork {
  checkKeys(where, options, BATCH_KEYS);
  const { size = 100, wait = 0, byKey = false, concurrency = 5, replace = false, ...rest } = options;
  const isByKey = checkBoolean(where, 'byKey', byKey);
  if (isByKey && limits?.perKey?.order !== undefined)
    throw new OptionError(
      `${where}: byKey does not go with perKey.order: 'fifo', which runs one job of a key at a time. Leave one of them out.`,
    );
  const batch = { ...batchingOf(where, size, wait), ...(isByKey ? { byKey: true as const } : {}) };
  return { ...compileWork(where, { concurrency, replace, ...rest }), batch };
}

export function compileWork(where: string, options: WorkOptions): CompiledWork {
  const { concurrency = 5, executionHistoryLimit, replace = false } = options;
  return {
    concurrency: checkInteger(where, 'concurrency', concurrency, 1, 10_000),
    historyLimit:
      executionHistoryLimit === undefined
        ? undefined
        : checkInteger(where, 'executionHistoryLimit', executionHistoryLimit, 0, 1_000),
    replace: checkBoolean(where, 'replace', replace),
  };
}

export function splitOptions(
  where: string,
  options: JobOptions & SchemaOption,
): { definition: DefinitionOptions & SchemaOption; work: WorkOptions } {
  checkKeys(where, options, [...WORK_KEYS, ...DEFINITION_KEYS]);
  const entries = Object.entries(options);
  return {
    definition: Object.fromEntries(entries.filter(([key]) => DEFINITION_KEYS.includes(key))),
    work: Object.fromEntries(entries.filter(([key]) => WORK_KEYS.includes(key))),
  };
}

export const checkWorkOptions = (where: string, options: WorkOptions): void =>
  checkKeys(where, options, WORK_KEYS, { keys: DEFINITION_KEYS, call: 'defineJob(name, options)' });

/** Validates a payload and returns the schema's output; throws a PayloadError if it does not fit. */
export async function validated(
  where: string,
  schema: StandardSchemaV1 | undefined,
  data: unknown,
): Promise<unknown> {
  if (schema === undefined) return data;
  const result = await schema['~standard'].validate(data);
  if (result.issues === undefined) return result.value;
  const texts = result.issues.map(({ message, path }) => {
    const at = (path ?? []).map((step) => String(typeof step === 'object' ? step.key : step)).join('.');
    return at === '' ? message : `${at}: ${message}`;
  });
  throw new PayloadError(`${where}: data does not fit the schema: ${texts.join('; ')}.`, result.issues);
}
