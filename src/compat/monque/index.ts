/** `Monque` of Monque 1.10, on the engine and the MongoDB store of this package. */
export { Monque } from './monque.js';
export type { MonqueEventMap, MonqueOptions } from './options.js';
export {
  AggregationTimeoutError,
  ConnectionError,
  InvalidCronError,
  InvalidCursorError,
  InvalidJobIdentifierError,
  JobStateError,
  MonqueError,
  PayloadTooLargeError,
  ShutdownTimeoutError,
  WorkerRegistrationError,
} from './errors.js';
export {
  isCancelledJob,
  isCompletedJob,
  isFailedJob,
  isPendingJob,
  isPersistedJob,
  isProcessingJob,
  isRecurringJob,
  isValidJobStatus,
  JobStatus,
  type EnqueueOptions,
  type Job,
  type JobHandler,
  type PersistedJob,
  type ScheduleOptions,
  type WorkerOptions,
} from './job.js';
export {
  applyJitter,
  calculateBackoff,
  calculateBackoffDelay,
  DEFAULT_BASE_INTERVAL,
  DEFAULT_JITTER_FACTOR,
  DEFAULT_MAX_BACKOFF_DELAY,
  getNextCronDate,
  validateCronExpression,
  validateJobName,
  validateUniqueKey,
} from './rules.js';
export {
  CursorDirection,
  JobCursorSortDirection,
  JobCursorSortField,
  type BulkOperationResult,
  type CursorOptions,
  type CursorPage,
  type GetJobsFilter,
  type JobCursorFilter,
  type JobCursorSort,
  type JobSelector,
  type QueueStats,
  type QueueViewSummary,
  type QueueViewWorkerSummary,
} from './queries.js';
