import { OptionError } from '../core/errors.js';
import type { Job } from '../core/records/job.js';
import { show } from '../core/options.js';
import type { JobDefinition } from '../jobs/definition.js';
import type { EnqueuedJob, EnqueueOptions, Enqueuer, ScheduleOptions } from '../jobs/enqueuer.js';

/** A job's name with its payload type, ready to enqueue: what `mill.job` returns. */
export interface JobType<Input, Tx> {
  readonly name: string;
  enqueue(data: Input, options?: EnqueueOptions<Tx>): Promise<EnqueuedJob<Input>>;
  enqueueMany(
    items: readonly ({ readonly data: Input } & EnqueueOptions<Tx>)[],
  ): Promise<EnqueuedJob<Input>[]>;
  now(data: Input): Promise<EnqueuedJob<Input>>;
  schedule(cron: string, data: Input, options?: ScheduleOptions): Promise<Job<Input>>;
}

/** The payload may be left out only if its type includes undefined. */
export type Payload<Input, Rest extends readonly unknown[]> = undefined extends Input
  ? [data?: Input, ...rest: Rest]
  : [data: Input, ...rest: Rest];

/** One item of `enqueueMany`. */
export type NamedItem<Tx> = { readonly name: string; readonly data?: unknown } & EnqueueOptions<Tx>;

export function checkItems<T extends object>(items: readonly T[]): readonly T[] {
  const wrong = !Array.isArray(items) || items.some((item) => typeof item !== 'object' || item === null);
  if (!wrong) return items as readonly T[];
  throw new OptionError(`enqueueMany: expected a list of { name, data, ...options }, got ${show(items)}.`);
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
    schedule: (cron, data, options) => enqueuer.schedule(cron, name, data, options) as Promise<Job<Input>>,
  };
}
