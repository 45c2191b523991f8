import { OptionError } from '../core/errors.js';
import type { Job } from '../core/records/job.js';
import { show } from '../core/options.js';
import type { JobDefinition } from '../jobs/definition.js';
import type { Asked, EnqueuedJob, EnqueueOptions, Enqueuer, ScheduleOptions } from '../jobs/enqueuer.js';
import type { ScheduleTimes } from '../time/interval.js';

/** A job's name with its payload type, ready to enqueue: what `mill.job` returns. */
export interface JobType<Input, Tx> {
  readonly name: string;
  enqueue(data: Input, options?: EnqueueOptions<Tx>): Promise<EnqueuedJob<Input>>;
  enqueueMany(
    items: readonly ({ readonly data: Input } & EnqueueOptions<Tx>)[],
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

/** Reads the items of `mill.enqueueMany`. */
export function readItems<Tx>(items: readonly ManyItem<unknown, Tx>[]): readonly Asked<Tx>[] {
  return checkItems(items).map((item, index) => {
    if (!('job' in item)) {
      const { name, data, ...options } = item;
      return { target: name, data, options };
    }
    const { job, data, ...options } = item;
    if ('name' in options)
      throw new OptionError(`enqueueMany[${String(index)}]: pass either job or name, not both.`);
    return { target: job, data, options };
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
    enqueue: (data, options) => enqueuer.enqueue(name, data, options) as Promise<EnqueuedJob<Input>>,
    enqueueMany: async (items) => {
      const asked = checkItems(items).map(({ data, ...options }) => ({ target: name, data, options }));
      return (await enqueuer.enqueueMany(asked)) as EnqueuedJob<Input>[];
    },
    now: (data) => enqueuer.enqueue(name, data) as Promise<EnqueuedJob<Input>>,
    schedule: (when, data, options) => enqueuer.schedule(when, name, data, options) as Promise<Job<Input>>,
  };
}
