import type { MissedPolicy } from '../../core/records/job.js';
import type { CronTimes } from '../../time/cron.js';
import { isTooLate, runAfterAny, type Attention, type NextRun } from '../../time/recurrence.js';
import type { Interval } from './interval.js';

/** What becomes of runs that nobody started in time; `seed`: as mongodb-cron computes it. */
export type DocumentMissedPolicy = MissedPolicy | 'seed';
export const MISSED: readonly DocumentMissedPolicy[] = ['once', 'skip', 'all', 'seed'];

/** All that the next run of a recurring document follows from. */
export interface Plan {
  readonly interval: Interval;
  /** The time that the present run stands for. */
  readonly slot: Date;
  readonly repeatUntil?: Date | undefined;
  readonly missed: DocumentMissedPolicy;
  readonly reprocessMs: number;
}

/** The run after the present one, which ended at `now`. */
export function nextRun(plan: Plan, now: Date): NextRun {
  const { slot, missed, reprocessMs, interval, repeatUntil } = plan;
  const from = new Date(slot.getTime() + reprocessMs);
  if (missed === 'seed') return { at: seedNext(interval.from(from), from, repeatUntil, now), dropped: false };
  return runAfterAny({ cron: interval.from(slot), repeatUntil, missed }, from, now);
}

/** The bound is looked at before the time is moved to the present: an overdue document runs again at once, and past it. */
function seedNext(times: CronTimes, from: Date, repeatUntil: Date | undefined, now: Date): Date | null {
  const next = times.next(from);
  if (next === null || (repeatUntil !== undefined && next > repeatUntil)) return null;
  return next < now ? now : next;
}

/** True where this run is too late to be started at all. */
export const isSkipped = ({ interval, slot, missed }: Plan, now: Date, attention: Attention): boolean =>
  missed === 'skip' && isTooLate({ cron: interval.from(slot), missed }, slot, now, attention);
