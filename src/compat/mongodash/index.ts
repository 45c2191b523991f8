/** `tidemill/compat/mongodash`: the names of mongodash 2.9, on Tidemill. docs/from-mongodash.md lists the differences. */
export { TaskConditionFailedError, type CleanupPolicy, type EvolutionConfig } from '../../index.js';
export type { TaskRetryPolicy as RetryPolicy } from '../../index.js';
export {
  CODE_CRON_TASK_FAILED,
  CODE_CRON_TASK_FINISHED,
  CODE_CRON_TASK_SCHEDULED,
  CODE_CRON_TASK_STARTED,
  CODE_REACTIVE_TASK_CLEANUP,
  CODE_REACTIVE_TASK_DEFER_IGNORED,
  CODE_REACTIVE_TASK_FAILED,
  CODE_REACTIVE_TASK_FINISHED,
  CODE_REACTIVE_TASK_INITIALIZED,
  CODE_REACTIVE_TASK_LEADER_LOCK_LOST,
  CODE_REACTIVE_TASK_LEGACY_MIGRATION,
  CODE_REACTIVE_TASK_LOCK_LOST,
  CODE_REACTIVE_TASK_PLANNER_RECONCILIATION_FINISHED,
  CODE_REACTIVE_TASK_PLANNER_RECONCILIATION_STARTED,
  CODE_REACTIVE_TASK_PLANNER_STARTED,
  CODE_REACTIVE_TASK_PLANNER_STOPPED,
  CODE_REACTIVE_TASK_PLANNER_STREAM_ERROR,
  CODE_REACTIVE_TASK_STARTED,
  CODE_REACTIVE_TASK_THREW_AFTER_COMPLETION,
} from './codes.js';
export {
  getCollection,
  getMongoClient,
  init,
  registerPostCommitHook,
  withTransaction,
  type PostCommitHook,
} from './connection.js';
export {
  cronTask,
  getCronTasksList,
  getRegisteredCronTaskIds,
  runCronTask,
  scheduleCronTaskImmediately,
  startCronTasks,
  stopCronTasks,
  triggerCronTask,
} from './cron-tasks.js';
export {
  configureForTesting,
  getPrometheusMetrics,
  reactiveTask,
  startReactiveTasks,
  stopReactiveTasks,
} from './reactive-tasks.js';
export { countReactiveTasks, getReactiveTasks, retryReactiveTasks } from './task-records.js';
export { _scheduler, OperationalTaskController, type ReactiveTaskScheduler } from './controller.js';
export { serveDashboard, type ServeDashboardOptions } from './dashboard.js';
export {
  isLockAlreadyAcquiredError,
  LockAlreadyAcquiredError,
  withLock,
  type LockCallback,
  type LockKey,
  type WithLockOptions,
} from './locks.js';
export { processInBatches, type ProcessInBatchesOptions, type ProcessInBatchesResult } from './batches.js';
export {
  assertNoReactiveTaskErrors,
  resolveWhitelistFilter,
  waitUntil,
  waitUntilReactiveTasksIdle,
  type AssertNoReactiveTaskErrorsOptions,
  type WaitUntilOptions,
  type WaitUntilReactiveTasksIdleOptions,
  type WhitelistResolution,
  type WhitelistRule,
} from './testing/helpers.js';
export type {
  CronPagedResult,
  CronTaskQuery,
  CronTaskRecord,
  CronTaskStatus,
  InitOptions,
  Interval,
  OnError,
  OnInfo,
  PagedResult,
  PaginationOptions,
  ReactiveTask,
  ReactiveTaskContext,
  ReactiveTaskHandler,
  ReactiveTaskQuery,
  ReactiveTaskRecord,
  ReactiveTaskStatus,
  TaskCaller,
  TaskFunction,
  TaskId,
} from './types.js';
