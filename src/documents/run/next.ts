import type { CronTimes } from '../../time/cron.js';
import { isTooLate, runAfterAny, type Attention, type NextRun } from '../../time/missed.js';
import type { Interval } from '../../time/interval.js';
import type { DocumentMissedPolicy } from '../options.js';

/** Everything that determines the next run of a recurring document. */
export interface Plan {
  readonly interval: Interval;
  /** The scheduled time that the current run stands for. */
  readonly slot: Date;
  readonly repeatUntil?: Date | undefined;
  readonly missed: DocumentMissedPolicy;
  readonly reprocessMs: number;
}

/** Returns the run after the current one, which ended at `now`. */
export function nextRun(plan: Plan, now: Date): NextRun {
  const { slot, missed, reprocessMs, interval, repeatUntil } = plan;
  const from = new Date(slot.getTime() + reprocessMs);
  if (missed === 'seed') return { at: seedNext(interval.from(from), from, repeatUntil, now), dropped: false };
  return runAfterAny({ cron: interval.from(slot), repeatUntil, missed }, from, now);
}

/**
 * Checks `repeatUntil` before moving an overdue time to the present. An overdue document therefore runs again at once,
 * even past `repeatUntil`.
 */
function seedNext(times: CronTimes, from: Date, repeatUntil: Date | undefined, now: Date): Date | null {
  const next = times.next(from);
  if (next === null || (repeatUntil !== undefined && next > repeatUntil)) return null;
  return next < now ? now : next;
}

/** True if this run is too late to start at all. */
export const isSkipped = ({ interval, slot, missed }: Plan, now: Date, attention: Attention): boolean =>
  missed === 'skip' && isTooLate({ cron: interval.from(slot), missed }, slot, now, attention);
