/** The types of mongodash 2.9 that its users name. */
import type {
  ClientSession,
  Collection,
  Document,
  Filter,
  FindOptions,
  MongoClient,
  MongoClientOptions,
  ObjectId,
  WithId,
} from 'mongodb';
import type {
  CleanupPolicy,
  EvolutionConfig,
  MonitoringOptions,
  TaskRetryPolicy,
  TaskStatus,
} from '../../index.js';

export type OnError = (error: Error) => void;
export type OnInfo = (info: { message: string; code: string } & Record<string, unknown>) => void;

export interface TaskCaller {
  <T>(task: () => Promise<T>): Promise<T> | T;
}

/** Options of the cron-parser package, as far as they have a meaning here. */
export interface CronExpressionOptions {
  /** IANA time zone of `CRON …` intervals. Default: that of the process. */
  tz?: string;
  /** Refused, as in mongodash. */
  endDate?: never;
}

export interface InitOptions {
  /** Your own client, which is never closed. Give this or `uri`. */
  mongoClient?: MongoClient;
  uri?: string;
  /** Only with `uri`. */
  clientOptions?: MongoClientOptions;
  /** Default: `console.error`. */
  onError?: OnError;
  /** Default: `console.log` of the message. */
  onInfo?: OnInfo;
  /** Wraps each run, unless `cronTaskCaller` or `reactiveTaskCaller` does. */
  taskCaller?: TaskCaller;
  /** Whether cron tasks run on this instance from the start. Default: true. */
  runCronTasks?: boolean;
  /** How many cron tasks run at once on this instance. Default: 1. */
  cronTaskConcurrency?: number;
  cronExpressionParserOptions?: CronExpressionOptions;
  cronTaskCaller?: TaskCaller;
  /** Selects the cron tasks that this instance runs. */
  cronTaskFilter?: (task: { taskId: TaskId }) => boolean;
  /** Replaces collections that `getCollection` returns; for tests. */
  collectionFactory?: (<T extends Document>(name: string) => Collection<T> | null) | null;
  /** The collection of coordination documents, or its name. Default: `_tidemill_globals`. */
  globalsCollection?: string | Collection;
  /** Names this instance; unique among the live ones. */
  instanceId?: string;
  /** How many reactive tasks run at once on this instance; 0 plans only. Default: 5. */
  reactiveTaskConcurrency?: number;
  reactiveTaskCaller?: TaskCaller;
  /** Selects the reactive tasks that this instance runs. */
  reactiveTaskFilter?: (task: { task: string }) => boolean;
  /** Default: '24h'. */
  reactiveTaskCleanupInterval?: number | string;
  /** How long an instance may be silent before others take over its work. Default: 30,000. */
  visibilityTimeoutMs?: number;
  monitoring?: Pick<MonitoringOptions, 'enabled' | 'pushIntervalMs' | 'scrapeMode' | 'readPreference'>;
}

export type TaskId = string;
export type TaskFunction = () => unknown;
type IntervalFunction = () => number | string | Date | Promise<number | string | Date>;
/** Milliseconds, a duration, `'CRON …'`, or a function that returns one of them or the next time. */
export type Interval = number | string | IntervalFunction;

export type CronTaskStatus = 'locked' | 'running' | 'idle' | 'failed' | 'scheduled';

export interface CronTaskRecord {
  _id: TaskId;
  status: CronTaskStatus;
  nextRunAt: Date;
  runImmediately: boolean;
  /** Always null: an instance holds its runs by one lease of its own. */
  lockedTill: Date | null;
  lastRun: { startedAt: Date; finishedAt: Date | null; error: string | null; durationMs?: number } | null;
  isRegistered: boolean;
}

export interface CronTaskQuery {
  filter?: string;
  limit?: number;
  skip?: number;
  sort?: { field: keyof CronTaskRecord; direction: 1 | -1 };
}

export interface PagedResult<T> {
  items: T[];
  total: number;
  limit: number;
  offset: number;
}
export type CronPagedResult<T> = PagedResult<T>;

export type ReactiveTaskStatus = TaskStatus;

export interface ReactiveTaskRecord<T = Document> {
  _id: string | ObjectId;
  task: string;
  sourceDocId: WithId<T>['_id'];
  status: ReactiveTaskStatus;
  attempts: number;
  /** When it is due; null once it has ended. */
  nextRunAt: Date | null;
  dueAt: Date;
  createdAt: Date;
  updatedAt: Date;
  startedAt?: Date | null;
  completedAt?: Date | null;
  firstErrorAt?: Date | null;
  lastError?: string | null;
  lastFinalizedAt?: Date | null;
  lastObservedValues?: Record<string, unknown> | null;
  lastSuccess?: { at: Date; durationMs: number } | null;
  executionHistory?: { at: Date; status: 'completed' | 'failed'; durationMs: number; error?: string }[];
}

export interface ReactiveTaskContext<T = Document> {
  readonly docId: WithId<T>['_id'];
  readonly watchedValues: Record<string, unknown> | null;
  /** Not in mongodash. */
  readonly task: string;
  /** Not in mongodash: counts from 1. */
  readonly attempt: number;
  /** Not in mongodash: aborts on a lost lease, or at the end of a stop. */
  readonly signal: AbortSignal;
  /** Throws a `TaskConditionFailedError` if the document is gone, does not match, or has changed. */
  getDocument(this: void, options?: FindOptions): Promise<T>;
  /** Runs this task again later; uses no attempt. */
  deferCurrent(this: void, delay: number | Date): void;
  /** Starts no task of this name on this instance until then. */
  throttleAll(this: void, until: number | Date): void;
  /** Completes the task in your transaction, or at once without one. */
  markCompleted(this: void, options?: { session?: ClientSession }): Promise<void>;
}

export type ReactiveTaskHandler<T = Document> = (context: ReactiveTaskContext<T>) => Promise<void>;

export interface ReactiveTask<T extends Document> {
  collection: string | Collection<T>;
  task: string;
  watchProjection?: NonNullable<Parameters<Collection<T>['find']>[1]>['projection'];
  /** A query, or an aggregation expression. */
  filter?: Filter<T>;
  handler: ReactiveTaskHandler<T>;
  /** Default: 1,000. */
  debounce?: number | string;
  retryPolicy?: TaskRetryPolicy;
  /** Default: 5. */
  executionHistoryLimit?: number;
  evolution?: EvolutionConfig;
  cleanupPolicy?: CleanupPolicy;
}

export interface ReactiveTaskQuery<T = unknown> {
  task?: string | string[];
  _id?: string | ObjectId | string[] | ObjectId[];
  status?: ReactiveTaskStatus | ReactiveTaskStatus[];
  sourceDocFilter?: Filter<T>;
  errorMessage?: string | RegExp;
  hasError?: boolean;
}

export interface PaginationOptions {
  limit?: number;
  skip?: number;
  sort?: { field: keyof ReactiveTaskRecord; direction: 1 | -1 };
}
