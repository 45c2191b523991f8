import { OptionError } from '../core/errors.js';
import { checkFunction, checkInteger, checkKeys, checkText, show } from '../core/options.js';
import type { Duration } from '../time/duration.js';
import { everyOf } from './definition.js';
import { MOST_PARTITIONS } from '../store/reactive/partitions.js';

/** Settings of reactive tasks on one instance. */
export interface ReactiveOptions {
  /** How many task handlers run at once on this instance; the mill's `concurrency` counts them too. Default: 5. */
  readonly concurrency?: number;
  /**
   * Selects the tasks that this instance runs; called at least every five seconds. If it throws, the task does not run
   * here. Default: all.
   */
  readonly filter?: (task: { readonly task: string }) => boolean;
  /**
   * Wraps each run, for example to add context or logging. It must call and await the given function, and let its
   * errors through. Default: none.
   */
  readonly caller?: (run: () => Promise<void>) => unknown;
  /** How often the leader deletes tasks whose `cleanupPolicy` allows it: a duration or `CRON …`. Default: '24h'. */
  readonly cleanupInterval?: Duration;
  /**
   * MongoDB: the collection of coordination documents; the same setting as the store's `collections.globals`. Default:
   * '_tidemill_globals'.
   */
  readonly globalsCollection?: string;
  /** Maximum number of documents and tasks that reconciliations and cleanups process per second. Default: 100,000. */
  readonly reconcileRate?: number;
  /**
   * In how many partitions changes are planned, each by one instance; up to 64. A number above 1 lets several processes
   * plan at once. It comes into force once all instances with the role `plan` are set to it. Default: 1.
   */
  readonly partitions?: number;
}

export interface ReactiveSettings {
  readonly concurrency: number;
  readonly filter: ReactiveOptions['filter'];
  readonly caller: ReactiveOptions['caller'];
  readonly cleanupInterval: number | string;
  readonly globalsCollection: string | undefined;
  readonly reconcileRate: number;
  readonly partitions: number;
}

/** Each partition is a feed and a set of records of its own. */

const WHERE = 'new Tidemill: reactive';

export function checkReactiveOptions(options: ReactiveOptions = {}): ReactiveSettings {
  checkKeys(WHERE, options, [
    'concurrency',
    'filter',
    'caller',
    'cleanupInterval',
    'globalsCollection',
    'reconcileRate',
    'partitions',
  ]);
  const {
    concurrency = 5,
    filter,
    caller,
    cleanupInterval = '24h',
    globalsCollection,
    reconcileRate = 100_000,
    partitions = 1,
  } = options;
  if (filter !== undefined) checkFunction(WHERE, 'filter', filter);
  if (caller !== undefined) checkFunction(WHERE, 'caller', caller);
  if (globalsCollection !== undefined) checkText(WHERE, 'globalsCollection', globalsCollection);
  if (typeof reconcileRate !== 'number' || !(reconcileRate > 0))
    throw new OptionError(
      `${WHERE}: reconcileRate must be a number of documents per second above 0, got ${show(reconcileRate)}.`,
    );
  return {
    concurrency: checkInteger(WHERE, 'concurrency', concurrency, 1, 10_000),
    filter,
    caller,
    cleanupInterval: everyOf(WHERE, 'cleanupInterval', cleanupInterval),
    globalsCollection,
    reconcileRate,
    partitions: checkInteger(WHERE, 'partitions', partitions, 1, MOST_PARTITIONS),
  };
}
