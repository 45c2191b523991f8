import type { StandardSchemaV1 } from '@standard-schema/spec';
import { OptionError } from '../core/errors.js';
import { checkBoolean, checkInteger, checkKeys, checkName, show } from '../core/options.js';
import type { RetentionMs } from '../store/port.js';
import { toMs, type Duration } from '../time/duration.js';
import { retryRule, type RetryPolicy, type RetryRule } from '../time/retry.js';

/** How long finished jobs are kept; 0 = deleted at once. Default: completed and cancelled '7d', failed '30d'. */
export interface Retention {
  readonly completed?: Duration;
  readonly failed?: Duration;
  readonly cancelled?: Duration;
}

/** What producers and workers agree on. */
export interface DefinitionOptions {
  /** Default: 2 s, 4 s, 8 s … capped at a day, ten attempts. */
  readonly retryPolicy?: RetryPolicy;
  /** The attempt fails, and its signal aborts, after this long. Default: none. */
  readonly timeout?: Duration;
  /** From -10 to 10; orders work within the name. Default: 0. */
  readonly priority?: number;
  readonly retention?: Retention;
  /**
   * The handler completes its job inside a transaction (`complete({ transaction })`): heartbeat, progress and log are then
   * written at the end, since any write to the job meanwhile would make that transaction conflict. Default: learned from
   * the first call in this process.
   */
  readonly transactional?: boolean;
}

export interface WorkOptions {
  /** How many may run at once on this instance. Default: 5. */
  readonly concurrency?: number;
  /** Attempts kept in a job's history; 0 keeps none. Default: the mill's. */
  readonly executionHistoryLimit?: number;
  /** Take the place of an earlier handler of the same name instead of refusing. Default: false. */
  readonly replace?: boolean;
}

export type JobOptions = DefinitionOptions & WorkOptions;

/** A job's name, options and types, without its handler: what a producer imports. */
export interface JobDefinition<Input = unknown, Output = Input> {
  readonly name: string;
  readonly options: DefinitionOptions;
  readonly schema?: StandardSchemaV1<Input, Output>;
}

const DEFINITION_KEYS = ['retryPolicy', 'timeout', 'priority', 'retention', 'transactional', 'schema'];
const WORK_KEYS = ['concurrency', 'executionHistoryLimit', 'replace'];

export function defineJob<S extends StandardSchemaV1>(
  name: string,
  options: DefinitionOptions & { readonly schema: S },
): JobDefinition<StandardSchemaV1.InferInput<S>, StandardSchemaV1.InferOutput<S>>;
export function defineJob<T = unknown>(name: string, options?: DefinitionOptions): JobDefinition<T>;
export function defineJob(
  name: string,
  options: DefinitionOptions & { readonly schema?: StandardSchemaV1 } = {},
): JobDefinition {
  const where = `defineJob(${show(name)})`;
  checkName(where, 'name', name);
  checkKeys(where, options, DEFINITION_KEYS);
  const { schema, ...rest } = options;
  compile(where, rest);
  checkSchema(where, schema);
  return { name, options: rest, ...(schema === undefined ? {} : { schema }) };
}

/** Made by `defineJob`, in this copy of the package or another. */
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

/** A definition's options, checked and in plain numbers. */
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
  options: JobOptions & { readonly schema?: StandardSchemaV1 },
): { definition: DefinitionOptions & { schema?: StandardSchemaV1 }; work: WorkOptions } {
  checkKeys(where, options, [...WORK_KEYS, ...DEFINITION_KEYS]);
  const entries = Object.entries(options);
  return {
    definition: Object.fromEntries(entries.filter(([key]) => DEFINITION_KEYS.includes(key))),
    work: Object.fromEntries(entries.filter(([key]) => WORK_KEYS.includes(key))),
  };
}

export const checkWorkOptions = (where: string, options: WorkOptions): void =>
  checkKeys(where, options, WORK_KEYS);

/** Checks a payload against the schema; answers what the schema makes of it. */
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
