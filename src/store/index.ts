/**
 * `tidemill/store`: the port, and helpers that most stores need, for stores that do not come with Tidemill.
 * docs/write-a-store.md follows an example.
 */
export type * from './audit.js';
export type * from './documents.js';
export type * from './reactive/forgetting.js';
export type * from './inspect.js';
export type * from './limits/limits.js';
export type * from './metrics.js';
export type * from './reactive/partitions.js';
export type * from './port.js';
export type * from './reactive/reactive.js';
export {
  capFor,
  EVERYTHING,
  FAILURE_SLICES,
  isPausedIn,
  leaseOf,
  runsOf,
  scopeText,
  WAITING_MS,
} from './port.js';
export { orderOf } from '../core/records/limit-order.js';
export { counting, givenBack, grantStarts, NO_STARTS, startsInWindow, type RateState } from '../time/rate.js';
export { systemClock, type Clock, type Timer } from '../core/clock.js';
export { ServerClock } from '../core/server-clock.js';
export { matchesFields, type FieldValues } from '../core/fields.js';
export { fairShare } from '../core/batches/fair-share.js';
export type { FailureLine } from '../core/records/failure-groups.js';
export {
  failedRunId,
  FINISHED,
  JOB_STATUSES,
  LOG_LIMIT,
  NEVER,
  scheduleId,
  type JobRecord,
} from '../core/records/job.js';
export type { Work } from '../core/records/work.js';
export type { PayloadRules } from '../core/payload.js';
export type { TraceContext } from '../core/tracer.js';
