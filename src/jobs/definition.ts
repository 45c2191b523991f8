import type { StandardSchemaV1 } from '@standard-schema/spec';
import { OptionError } from '../core/errors.js';
import { checkBoolean, checkInteger, checkKeys, checkName, show } from '../core/options.js';
import type { RetentionMs } from '../store/port.js';
import { toMs, type Duration } from '../time/duration.js';
import { retryRule, type RetryPolicy, type RetryRule } from '../time/retry.js';

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
  /** How long finished jobs of this name are kept. Default: the mill's. */
  readonly retention?: Retention;
  /**
   * The handler completes its job inside a transaction (`complete({ transaction })`). While it runs, heartbeats are not
   * written, and progress and log lines are held back until it ends: any other write to the job would make that
   * transaction conflict. Default: false until the first such call for this name in this process, then true.
   */
  readonly transactional?: boolean;
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

const DEFINITION_KEYS = ['retryPolicy', 'timeout', 'priority', 'retention', 'transactional', 'schema'];
const WORK_KEYS = ['concurrency', 'executionHistoryLimit', 'replace'];

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
  checkKeys(where, options, DEFINITION_KEYS);
  const { schema, ...rest } = options;
  compile(where, rest);
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
  readonly retention: Partial<RetentionMs>;
  readonly transactional: boolean;
}

export function compile(where: string, options: DefinitionOptions): CompiledOptions {
  const { retryPolicy, timeout, priority = 0, retention, transactional = false } = options;
  return {
    retry: retryRule(where, retryPolicy),
    retryPolicy,
    timeoutMs: timeout === undefined ? undefined : toMs(where, 'timeout', timeout, 1),
    priority: checkPriority(where, priority),
    retention: toRetention(where, retention),
    transactional: checkBoolean(where, 'transactional', transactional),
  };
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
  checkKeys(where, options, WORK_KEYS);

/** Validates a payload and returns the schema's output; throws an OptionError if it does not fit. */
export async function validated(
  where: string,
  schema: StandardSchemaV1 | undefined,
  data: unknown,
): Promise<unknown> {
  if (schema === undefined) return data;
  const result = await schema['~standard'].validate(data);
  if (result.issues === undefined) return result.value;
  const issues = result.issues.map(({ message, path }) => {
    const at = (path ?? []).map((step) => String(typeof step === 'object' ? step.key : step)).join('.');
    return at === '' ? message : `${at}: ${message}`;
  });
  throw new OptionError(`${where}: data does not fit the schema: ${issues.join('; ')}.`);
}
