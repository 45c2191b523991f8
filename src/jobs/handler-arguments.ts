/** Reads the arguments of `mill.job` and `mill.work`. Both take optional options before the handler. */
import type { StandardSchemaV1 } from '@standard-schema/spec';
import { OptionError } from '../core/errors.js';
import { checkFunction, show } from '../core/options.js';
import type { AnyHandler } from './context.js';
import {
  checkWorkOptions,
  compileWork,
  defineJob,
  isDefinition,
  splitOptions,
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

function handled<Options>(
  where: string,
  [second, third]: Given<Options>,
  read: (options: Options) => { readonly definition: JobDefinition; readonly options: WorkOptions },
): Handled {
  const [given, handler] =
    typeof second === 'function' ? [{} as Options, second as AnyHandler] : [second, third];
  const { definition, options } = read(given);
  checkFunction(where, 'handler', handler);
  return {
    where,
    worker: { definition, work: compileWork(where, options), handler: handler as AnyHandler },
  };
}

/** Reads the arguments of `mill.job`. */
export function readJob(
  name: string,
  ...given: Given<JobOptions & { readonly schema?: StandardSchemaV1 }>
): Handled {
  const where = `job(${show(name)})`;
  return handled(where, given, (all) => {
    const { definition, work: options } = splitOptions(where, all);
    const { schema } = definition;
    const defined =
      schema === undefined ? defineJob(name, definition) : defineJob(name, { ...definition, schema });
    return { definition: defined, options };
  });
}

/** Reads the arguments of `mill.work`. */
export function readWork(definition: JobDefinition, ...given: Given<WorkOptions>): Handled {
  const where = `work(${show((definition as JobDefinition | undefined)?.name)})`;
  return handled(where, given, (options) => {
    if (!isDefinition(definition))
      throw new OptionError(`${where}: the first argument must be a definition made by defineJob.`);
    checkWorkOptions(where, options);
    return { definition, options };
  });
}
