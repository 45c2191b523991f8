/** Reads the arguments of `mill.job`, `mill.work` and `mill.batch`. All take optional options before the handler. */
import type { StandardSchemaV1 } from '@standard-schema/spec';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { checkSurplus } from '../core/arguments.js';
import { OptionError } from '../core/errors.js';
import { checkFunction, show } from '../core/options.js';
import type { AnyHandler } from './context.js';
import {
  checkWorkOptions,
  compileBatchWork,
  compileWork,
  defineJob,
  isDefinition,
  splitOptions,
  type BatchOptions,
  type JobDefinition,
  type JobOptions,
  type WorkOptions,
} from './definition.js';
import type { Worker } from './registry.js';

export interface Handled {
  /** The call, for error messages. */
  readonly where: string;
  readonly worker: Omit<Worker, 'compiled'>;
}

type Given<Options> = readonly [second: Options | AnyHandler, third: AnyHandler | undefined];

const OPTIONS_FIRST = 'The options come before the handler, which is the last argument.';

/** The name for messages, also of a name in the definition's place. */
const nameIn = (definition: unknown): unknown =>
  typeof definition === 'string' ? definition : (definition as JobDefinition | undefined)?.name;

function handled<Options>(
  where: string,
  [second, third]: Given<Options>,
  surplus: readonly unknown[],
  read: (options: Options) => { readonly definition: JobDefinition; readonly options: WorkOptions },
): Handled {
  const late = typeof second === 'function' ? [third, ...surplus] : surplus;
  checkSurplus(where, OPTIONS_FIRST, late);
  const [given, handler] =
    typeof second === 'function' ? [{} as Options, second as AnyHandler] : [second, third];
  const { definition, options } = read(given);
  const { thread, ...rest } = options;
  const work = compileWork(where, rest);
  if (thread !== undefined)
    return { where, worker: { definition, work, handler: threadOf(where, { definition, thread, handler }) } };
  checkFunction(where, 'handler', handler);
  return { where, worker: { definition, work, handler: handler as AnyHandler } };
}

interface InThread {
  readonly definition: JobDefinition;
  readonly thread: unknown;
  readonly handler: unknown;
}

/** Checks `thread`, and returns the URL of the module. */
function threadOf(where: string, { definition, thread, handler }: InThread): URL {
  if (handler !== undefined)
    throw new OptionError(
      `${where}: pass either a handler or \`thread\`, whose module has the handler as its default export.`,
    );
  if (definition.options.transactional === true)
    throw new OptionError(
      `${where}: \`thread\` does not go with \`transactional: true\`: a transaction cannot enter a thread. Leave one of them out.`,
    );
  const url =
    thread instanceof URL || (typeof thread === 'string' && URL.canParse(thread))
      ? new URL(thread)
      : undefined;
  if (url?.protocol !== 'file:')
    throw new OptionError(
      `${where}: thread must be a file: URL such as new URL('./resize.js', import.meta.url), got ${show(thread)}.`,
    );
  if (!existsSync(url))
    throw new OptionError(`${where}: thread names a file that does not exist: ${fileURLToPath(url)}.`);
  return url;
}

/** Reads the arguments of `mill.job`. */
export function readJob(
  name: string,
  given: Given<JobOptions & { readonly schema?: StandardSchemaV1 }>,
  surplus: readonly unknown[],
): Handled {
  const where = `job(${show(name)})`;
  return handled(where, given, surplus, (all) => {
    const { definition, work: options } = splitOptions(where, all);
    const { schema } = definition;
    const defined =
      schema === undefined ? defineJob(name, definition) : defineJob(name, { ...definition, schema });
    return { definition: defined, options };
  });
}

/** Reads the arguments of `mill.work`. */
export function readWork(
  definition: JobDefinition,
  given: Given<WorkOptions>,
  surplus: readonly unknown[],
): Handled {
  const where = `work(${show(nameIn(definition))})`;
  return handled(where, given, surplus, (options) => {
    checkDefinition(where, definition);
    checkWorkOptions(where, options);
    return { definition, options };
  });
}

/** Reads the arguments of `mill.batch`. */
export function readBatch(
  definition: JobDefinition,
  [second, third]: Given<BatchOptions>,
  surplus: readonly unknown[],
): Handled {
  const where = `batch(${show(nameIn(definition))})`;
  checkSurplus(where, OPTIONS_FIRST, typeof second === 'function' ? [third, ...surplus] : surplus);
  const [options, handler] = typeof second === 'function' ? [{}, second] : [second, third];
  checkDefinition(where, definition);
  checkFunction(where, 'handler', handler);
  const work = compileBatchWork(where, definition.options, options);
  return { where, worker: { definition, work, handler: handler as AnyHandler } };
}

function checkDefinition(where: string, definition: unknown): void {
  if (!isDefinition(definition))
    throw new OptionError(
      `${where}: the first argument must be a definition made by defineJob, got ${show(definition)}; ` +
        'with a name, call mill.job(name, options, handler).',
    );
}
