/** The order in which work is claimed. Statements that take several rows do not keep it, so stores restore it. */
import type { JobRecord } from './job.js';
import type { TaskRecord } from './task.js';

type QueuedJob = Pick<JobRecord, 'priority' | 'nextRunAt' | 'id'>;

/** Higher priorities first, then by due time, then by id. */
export const byJobOrder = (a: QueuedJob, b: QueuedJob): number =>
  b.priority - a.priority || a.nextRunAt.getTime() - b.nextRunAt.getTime() || (a.id < b.id ? -1 : 1);

type QueuedTask = Pick<TaskRecord, 'scheduledAt'>;

/** By due time. */
export const byTaskOrder = (a: QueuedTask, b: QueuedTask): number =>
  a.scheduledAt.getTime() - b.scheduledAt.getTime();
