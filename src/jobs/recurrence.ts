import type { JobRecord } from '../core/records/job.js';
import { parseSchedule } from '../time/interval.js';
import type { Recurrence } from '../time/recurrence.js';

/** Returns the recurrence of a job; null if it has none, or if its cron text can no longer be parsed. */
export function recurrenceOf(job: JobRecord): Recurrence | null {
  if (job.repeatInterval === undefined) return null;
  try {
    const cron = parseSchedule(`schedule ${job.id}`, job.repeatInterval, job.timezone, job.startAt);
    return { cron, startAt: job.startAt, repeatUntil: job.repeatUntil, missed: job.missed ?? 'once' };
  } catch {
    return null;
  }
}
