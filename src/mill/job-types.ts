import { checkSurplus } from '../core/arguments.js';
import { OptionError } from '../core/errors.js';
import type { Job } from '../core/records/job.js';
import { checkKeys, show } from '../core/options.js';
import type { JobDefinition } from '../jobs/definition.js';
import {
  ENQUEUE_KEYS,
  type Asked,
  type EnqueuedJob,
  type EnqueueOptions,
  type Enqueuer,
  type ScheduleOptions,
} from '../jobs/enqueue/enqueuer.js';
import type { ScheduleTimes } from '../time/interval.js';

/** A job's name with its payload type, ready to enqueue: what `mill.job` returns. */
export interface JobType<Input, Tx> {
  readonly name: string;
  enqueue(data: Input, options?: EnqueueOptions<Tx>): Promise<EnqueuedJob<Input>>;
  enqueueMany(
    items: readonly ({ readonly data: Input } & EnqueueOptions<Tx>)[],
    options?: EnqueueManyOptions<Tx>,
  ): Promise<EnqueuedJob<Input>[]>;
  now(data: Input): Promise<EnqueuedJob<Input>>;
  schedule(when: ScheduleTimes, data: Input, options?: ScheduleOptions): Promise<Job<Input>>;
}

/** The payload may be left out only if its type includes undefined. */
export type Payload<Input, Rest extends readonly unknown[]> = undefined extends Input
  ? [data?: Input, ...rest: Rest]
  : [data: Input, ...rest: Rest];

/** One item of `enqueueMany`, by the job's name. */
export type NamedItem<Tx> = { readonly name: string; readonly data?: unknown } & EnqueueOptions<Tx>;

/** One item of `enqueueMany`, by the job's definition, which types its data. */
export type DefinedItem<Input, Tx> = { readonly job: JobDefinition<Input, unknown> } & EnqueueOptions<Tx> &
  (undefined extends Input ? { readonly data?: NoInfer<Input> } : { readonly data: NoInfer<Input> });

export type ManyItem<Input, Tx> = NamedItem<Tx> | DefinedItem<Input, Tx>;

/** Options of a whole call of `enqueueMany`. Its items have all others. */
export interface EnqueueManyOptions<Tx = unknown> {
  /** A transaction handle of the store, for all items: the jobs exist if and only if it commits. Default: none. */
  readonly transaction?: Tx;
  /** MongoDB's name for `transaction`. Default: none. */
  readonly session?: Tx;
}

export const MANY_HINT = 'Options of a job belong to its item: { name, data, ...options }.';
const MANY_KEYS = ['transaction', 'session'];

/** Reads the arguments of `mill.enqueueMany`. */
export function readItems<Tx>(
  items: readonly ManyItem<unknown, Tx>[],
  options?: EnqueueManyOptions<Tx>,
): readonly Asked<Tx>[] {
  const asked = checkItems(items).map((item, index) => {
    if (!('job' in item)) {
      const { name, data, ...options } = item;
      return { target: name, data, options };
    }
    const { job, data, ...options } = item;
    if ('name' in options)
      throw new OptionError(`enqueueMany[${String(index)}]: pass either job or name, not both.`);
    return { target: job, data, options };
  });
  return inTransaction(asked, options);
}

/** Gives every item the transaction of the call. */
function inTransaction<Tx>(
  items: readonly Asked<Tx>[],
  options: EnqueueManyOptions<Tx> | undefined,
): readonly Asked<Tx>[] {
  checkKeys('enqueueMany', options, MANY_KEYS, { keys: ENQUEUE_KEYS, call: 'the items of the call' });
  const transaction = options?.transaction ?? options?.session;
  if (transaction === undefined) return items;
  return items.map((item, index) => {
    const { transaction: handle, session = handle, ...own } = item.options;
    if (session === undefined || session === transaction)
      return { ...item, options: { ...own, transaction } };
    throw new OptionError(
      `enqueueMany[${String(index)}]: its transaction is not that of the call. All items share one: pass it once, as ` +
        'enqueueMany(items, { transaction }).',
    );
  });
}

function checkItems<T extends object>(items: readonly T[]): readonly T[] {
  const wrong = !Array.isArray(items) || items.some((item) => typeof item !== 'object' || item === null);
  if (!wrong) return items as readonly T[];
  throw new OptionError(
    `enqueueMany: expected a list of { name, data, ...options } or { job, data, ...options }, got ${show(items)}.`,
  );
}

export function jobType<Input, Tx>(
  { name }: JobDefinition<Input>,
  enqueuer: Enqueuer<Tx>,
): JobType<Input, Tx> {
  return {
    name,
    enqueue: async (data, options, ...surplus: readonly unknown[]) => {
      checkSurplus('enqueue(data, options)', 'Pass all options in the second one.', surplus);
      return (await enqueuer.enqueue(name, data, options)) as EnqueuedJob<Input>;
    },
    enqueueMany: async (items, shared, ...surplus: readonly unknown[]) => {
      checkSurplus('enqueueMany(items, options)', MANY_HINT, surplus);
      const asked = checkItems(items).map(({ data, ...options }) => ({ target: name, data, options }));
      return (await enqueuer.enqueueMany(inTransaction(asked, shared))) as EnqueuedJob<Input>[];
    },
    now: (data) => enqueuer.enqueue(name, data) as Promise<EnqueuedJob<Input>>,
    schedule: (when, data, options) => enqueuer.schedule(when, name, data, options) as Promise<Job<Input>>,
  };
}
