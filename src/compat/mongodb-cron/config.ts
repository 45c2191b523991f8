import type { Collection, Document } from 'mongodb';
import type { SchedulerOptions } from '../../documents/index.js';

/** The running cron, as hooks get it: `this`, and their last argument. */
export interface Cron {
  isRunning(): boolean;
  isProcessing(): boolean;
  isIdle(): boolean;
  start(): Promise<void>;
  stop(): Promise<void>;
  reschedule(doc: Document): Promise<void>;
}

/** A collection of any driver and any schema. */
export type CronCollection = Pick<Collection, 'collectionName' | 'dbName'>;

/** Where this class does not do what mongodb-cron does, and options that bring the old way back. */
export interface SaferWays {
  /**
   * What happens to runs of a recurring document that are overdue. 'seed' is the old way: twice, the second time even
   * past `repeatUntil`. Default: 'once'.
   */
  readonly missed?: SchedulerOptions['missed'];
  /**
   * Whether the end of a run is written only if `sleepUntil` still is what the lock wrote. With false, it overwrites what
   * the handler, or another process, wrote meanwhile. Default: true.
   */
  readonly fencing?: boolean;
  /**
   * Whether the lock is renewed while the handler runs. With false, another process runs the document again after
   * `lockDuration`, also while the first handler still works. Default: true.
   */
  readonly renewLocks?: boolean;
  /**
   * Whether a document runs at once if its `sleepUntil` is a text, a number or anything else that is neither a date nor
   * null. With false, it does not run and is reported to `onError`. Default: false.
   */
  readonly runNonDates?: boolean;
  /**
   * How long to wait between two polls if `idleDelay` is 0. `{ min: 1, max: 1 }` comes closest to the old way, which polls
   * without a pause. Default: 100 ms to 1 s.
   */
  readonly pollInterval?: SchedulerOptions['pollInterval'];
}

/** The options of mongodb-cron, and some more. Delays are milliseconds, or texts such as '10m'. */
export interface MongoCronCfg
  extends SaferWays, Pick<SchedulerOptions, 'concurrency' | 'timezone' | 'retryPolicy' | 'logger'> {
  /** The collection of the documents, or a function that returns it, which each start calls once. */
  readonly collection: CronCollection | (() => CronCollection);
  /** Only documents that match this query. Default: all. */
  readonly condition?: Document | null;
  /** Delay before each poll. Default: 0. */
  readonly nextDelay?: SchedulerOptions['nextDelay'];
  /** Minimum time from the due time of one run of a recurring document to that of the next. Default: 0. */
  readonly reprocessDelay?: SchedulerOptions['reprocessDelay'];
  /** Delay between polls while nothing is due. 0: see `pollInterval`. Default: 0. */
  readonly idleDelay?: SchedulerOptions['idleDelay'];
  /** How long a document stays locked after its process dies. 0: no lock. Default: 600000. */
  readonly lockDuration?: SchedulerOptions['lockDuration'];
  /** Default: 'sleepUntil'. */
  readonly sleepUntilFieldPath?: string;
  /** Default: 'interval'. */
  readonly intervalFieldPath?: string;
  /** Default: 'repeatUntil'. */
  readonly repeatUntilFieldPath?: string;
  /** Default: 'autoRemove'. */
  readonly autoRemoveFieldPath?: string;
  /** Where a document names the time zone of its interval. Default: null, nowhere. */
  readonly timezoneFieldPath?: string | null;
  /** Where the reason is kept if a schedule cannot be read. Null: nowhere. Default: 'scheduleFailure'. */
  readonly failureFieldPath?: string | null;
  /** Runs one document. Default: does nothing. */
  onDocument?(this: Cron, doc: Document, cron: Cron): unknown;
  onStart?(this: Cron, cron: Cron): unknown;
  onStop?(this: Cron, cron: Cron): unknown;
  onIdle?(this: Cron, cron: Cron): unknown;
  /** Default: console.error. */
  onError?(this: Cron, error: Error & Document, cron: Cron): unknown;
}
