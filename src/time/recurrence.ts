import type { MissedPolicy } from '../core/records/job.js';
import type { CronTimes } from './cron.js';

/** The run times of a schedule: its cron times between `startAt` and `repeatUntil`, both inclusive. */
export interface Recurrence {
  readonly cron: CronTimes;
  readonly startAt?: Date | undefined;
  readonly repeatUntil?: Date | undefined;
  readonly missed: MissedPolicy;
}

/** The first run time after the given one, or null if the schedule has ended. */
export function slotAfter(recurrence: Recurrence, after: Date): Date | null {
  const { cron, startAt, repeatUntil } = recurrence;
  const from = startAt !== undefined && startAt > after ? new Date(startAt.getTime() - 1) : after;
  const next = cron.next(from);
  return next === null || (repeatUntil !== undefined && next > repeatUntil) ? null : next;
}

/** The next `count` run times after `now`, for a preview. */
export function preview(recurrence: Recurrence, now: Date, count: number): Date[] {
  const times: Date[] = [];
  for (
    let at = slotAfter(recurrence, now);
    at !== null && times.length < count;
    at = slotAfter(recurrence, at)
  ) {
    times.push(at);
  }
  return times;
}
