// The mill
export { Tidemill } from './tidemill.js';
export type { Health } from './mill/insight/health.js';
export type { MillInstance } from './mill/insight/instances.js';
export type { Reason, WhyTarget } from './mill/insight/why.js';
export type { Audit, AuditInput, AuditPage } from './mill/insight/audit.js';
export type { AuditChange, AuditEntry } from './store/audit.js';
export type { TidemillOptions } from './mill/options.js';

// Jobs
export type { DefinedItem, EnqueueManyOptions, JobType, ManyItem, NamedItem } from './mill/job-types.js';
export {
  defineJob,
  type BatchOptions,
  type DefinitionOptions,
  type JobDefinition,
  type JobOptions,
  type Retention,
  type WorkOptions,
} from './jobs/definition.js';
export type { BatchContext, BatchHandler, BatchJob, JobContext, JobHandler } from './jobs/context.js';
export type { DeadLetter } from './core/records/dead-letter.js';
export type { EnqueuedJob, EnqueueOptions, ScheduleOptions } from './jobs/enqueue/enqueuer.js';
export type { DebounceOptions } from './jobs/enqueue/existing.js';
export type { UpdateChanges } from './jobs/manage/update.js';
export type { JobsFilter } from './jobs/manage/filter.js';
export type { FindOptions } from './jobs/manage/page.js';
export type {
  CountOptions,
  JobPage,
  Jobs,
  JobStats,
  Managed,
  ManyOptions,
  ResultOptions,
  Selection,
  WatchOptions,
} from './jobs/manage/manager.js';
export type { ChangeKind, JobChange } from './jobs/watch/change.js';
export type { JobWatch } from './jobs/watch/watches.js';
export type { ErrorGroups, ErrorsOptions, FailureGroup } from './core/records/failure-groups.js';
export type { FieldValues } from './core/fields.js';
export type { Schedule, Schedules, UpcomingRun } from './jobs/manage/schedules.js';
export type { MillEvents } from './mill/events.js';
export { JobStatus, type Attempt, type Job, type LogLine, type MissedPolicy } from './core/records/job.js';
export type { FailureKind } from './core/records/work.js';

// Limits
export type {
  BreakerOptions,
  KeyedLimits,
  PerKeyOptions,
  RateOptions,
  SharedLimitOptions,
  TaskLimits,
  TaskPerKeyOptions,
  WorkLimits,
} from './engine/limits/options.js';
export type { KeysOptions, LimitChanges, Limits, LimitState, LimitTarget } from './mill/limits/manager.js';
export type {
  BreakerRule,
  KeyRule,
  KeyUse,
  RateLimit,
  ScopeKind,
  ScopeLimits,
} from './store/limits/limits.js';

// Reactive tasks
export type {
  CleanupPolicy,
  EvolutionConfig,
  ReactiveBatchDefinition,
  ReactiveTaskDefinition,
  ReactiveTaskOptions,
  TaskBatchOptions,
  TaskRetryPolicy,
} from './reactive/definition.js';
export type {
  BatchTask,
  GetDocumentOptions,
  TaskBatchContext,
  TaskBatchHandler,
  TaskContext,
  TaskHandler,
  ThrottleOptions,
} from './reactive/run/context.js';
export type { FoundTask, TaskPage, Tasks, TasksPageOptions } from './reactive/manage/manager.js';
export type { Planning } from './reactive/planner/planning.js';
export type { TasksFilter } from './reactive/manage/tasks-filter.js';
export type { TaskStats } from './store/reactive/reactive.js';
export type { ReactiveOptions } from './reactive/options.js';
export { TaskStatus, type Task } from './core/records/task.js';
export type { Role } from './mill/roles.js';

// Document schedules
export type { DocumentOptions, DocumentSchedule, NamedSchedule } from './mill/document-schedules.js';
export type {
  DocumentsFilter,
  DocumentsPage,
  DocumentsPageOptions,
  FoundDocument,
} from './documents/finding.js';
export type {
  DocumentContext,
  DocumentMissedPolicy,
  HookContext,
  ScheduleErrorContext,
} from './documents/options.js';
export type { DocumentFailure, DocumentFields, DocumentJob, DocumentState } from './store/documents.js';

// Metrics
export type { MonitoringOptions } from './metrics/options.js';
export type { PrometheusRegistry } from './metrics/prometheus.js';
export type { Metrics, SeriesOptions } from './metrics/series.js';
export type { Activity, Cell, MeasuredKind, SeriesPoint } from './store/metrics.js';

// Locks
export type { LockContext } from './locks/lock-hold.js';
export type { LockOptions } from './locks/locks.js';

// Time
export type { Duration } from './time/duration.js';
export type { ScheduleTimes } from './time/interval.js';
export type { RetryPolicy } from './time/retry.js';

// Errors
export {
  AttemptTimeoutError,
  CancelledError,
  FatalError,
  LeaseLostError,
  LockTakenError,
  OptionError,
  PayloadError,
  StoppingError,
  StoreError,
  TaskConditionFailedError,
  TidemillError,
  type PayloadIssue,
  type TidemillErrorOptions,
} from './core/errors.js';

// For custom stores and loggers
export type { Clock, Timer } from './core/clock.js';
export type { Logger } from './core/logger.js';
export type { Finding } from './store/inspect.js';
export type { Store, TransactionOf, WakeUp } from './store/port.js';
