import type { MissedPolicy } from '../core/job.js';
import type { CronTimes } from './cron.js';

/** A run that nobody started this long after its time counts as missed, even if the next one is not due yet. */
export const MISSED_AFTER_MS = 60_000;

/** `missed: 'all'` catches up on at most this many runs; older ones are dropped, and a log line says so. */
export const CATCH_UP_LIMIT = 100;

/** When a schedule is due: its cron times between `startAt` and `repeatUntil`, both inclusive. */
export interface Recurrence {
  readonly cron: CronTimes;
  readonly startAt?: Date | undefined;
  readonly repeatUntil?: Date | undefined;
  readonly missed: MissedPolicy;
}

/** The first run time after the given one, or null when the schedule has ended. */
export function slotAfter(recurrence: Recurrence, after: Date): Date | null {
  const { cron, startAt, repeatUntil } = recurrence;
  const from = startAt !== undefined && startAt > after ? new Date(startAt.getTime() - 1) : after;
  const next = cron.next(from);
  return next === null || (repeatUntil !== undefined && next > repeatUntil) ? null : next;
}

export interface NextRun {
  /** Null: the schedule has ended. */
  readonly at: Date | null;
  /** Runs that were dropped because more than the limit had been missed. */
  readonly dropped: number;
}

/** The run after the one for `slot`, as seen at `now`. */
export function runAfter(recurrence: Recurrence, slot: Date, now: Date): NextRun {
  if (recurrence.missed !== 'all') return { at: slotAfter(recurrence, slot > now ? slot : now), dropped: 0 };
  const missed: Date[] = [];
  let dropped = 0;
  for (let at = slotAfter(recurrence, slot); at !== null && at <= now; at = slotAfter(recurrence, at)) {
    missed.push(at);
    if (missed.length > CATCH_UP_LIMIT) {
      missed.shift();
      dropped += 1;
    }
  }
  return { at: missed[0] ?? slotAfter(recurrence, slot > now ? slot : now), dropped };
}

/** True where `missed: 'skip'` says that this run is too late to be started. */
export function isTooLate(recurrence: Recurrence, slot: Date, now: Date): boolean {
  if (recurrence.missed !== 'skip' || now <= slot) return false;
  if (now.getTime() - slot.getTime() > MISSED_AFTER_MS) return true;
  const following = recurrence.cron.next(slot);
  return following !== null && following <= now;
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
