/** The run that follows another one, and what becomes of runs that were not started in time. */
import { slotAfter, type Recurrence } from './recurrence.js';

/** A run that has not started this long after it was due counts as missed, even if the next one is not due yet. */
const MISSED_AFTER_MS = 60_000;

/** Delays that are normal although an instance polls for the run. Lateness within them does not count as missed. */
export interface Attention {
  /** The longest wait between two polls. */
  readonly delayMs: number;
  /** The instance has polled without a gap since then, so a run that was due later only waited for a slot. */
  readonly since?: number;
}

const NO_DELAY: Attention = { delayMs: 0 };

/** `missed: 'all'` catches up on at most this many runs. Older ones are dropped, and the log says so. */
export const CATCH_UP_LIMIT = 100;

export interface NextRun {
  /** Null if the schedule has ended. */
  readonly at: Date | null;
  /** More than `CATCH_UP_LIMIT` runs were missed; the older ones are dropped. */
  readonly dropped: boolean;
}

/** True if `at` is a run time of the schedule. The time of a manual run usually is not. */
function isSlot(recurrence: Recurrence, at: Date): boolean {
  return slotAfter(recurrence, new Date(at.getTime() - 1))?.getTime() === at.getTime();
}

/**
 * The run that follows the one for `slot`, which began at `begunAt` and ended at `now`. A scheduled run that lasts past
 * the next run time covers that time, too. A manual run does not: unless the policy is 'all', which catches up anyway,
 * that time is returned as the next run, and its policy decides whether it is too late.
 */
export function runAfter(recurrence: Recurrence, slot: Date, now: Date, begunAt: Date = slot): NextRun {
  const next = slotAfter(recurrence, slot);
  const passedMeanwhile = next !== null && next > begunAt && next <= now;
  if (recurrence.missed !== 'all' && passedMeanwhile && !isSlot(recurrence, slot))
    return { at: next, dropped: false };
  return runAfterAny(recurrence, slot, now);
}

/** Like `runAfter`, for any `slot`: the first due time of a document need not be a run time of its schedule. */
export function runAfterAny(recurrence: Recurrence, slot: Date, now: Date): NextRun {
  const next = slotAfter(recurrence, slot);
  const missed = next !== null && next <= now;
  if (recurrence.missed !== 'all' || !missed) {
    return { at: slotAfter(recurrence, slot > now ? slot : now), dropped: false };
  }
  const all = missedUpTo(recurrence, slot, now, CATCH_UP_LIMIT + 1);
  if (all.length <= CATCH_UP_LIMIT) return { at: next, dropped: false };
  return { at: lastMissed(recurrence, slot, now), dropped: true };
}

/** Run times after `from` and up to `now`, at most `limit` of them. */
function missedUpTo(recurrence: Recurrence, from: Date, now: Date, limit: number): Date[] {
  const missed: Date[] = [];
  for (
    let at = slotAfter(recurrence, from);
    at !== null && at <= now && missed.length < limit;
    at = slotAfter(recurrence, at)
  ) {
    missed.push(at);
  }
  return missed;
}

/**
 * The first of the last `CATCH_UP_LIMIT` missed runs. Doubles a window before `now` until it contains them, so that the
 * cost does not depend on how long the schedule was down.
 */
function lastMissed(recurrence: Recurrence, slot: Date, now: Date): Date | null {
  for (let stretchMs = 60_000; ; stretchMs *= 2) {
    const from = new Date(Math.max(slot.getTime(), now.getTime() - stretchMs));
    const missed = missedUpTo(recurrence, from, now, Infinity);
    if (missed.length >= CATCH_UP_LIMIT || from <= slot)
      return missed[Math.max(0, missed.length - CATCH_UP_LIMIT)] ?? null;
  }
}

/** True if `missed: 'skip'` applies and this run is too late to start. */
export function isTooLate(
  recurrence: Recurrence,
  slot: Date,
  now: Date,
  { delayMs, since = Infinity }: Attention = NO_DELAY,
): boolean {
  const lateMs = now.getTime() - slot.getTime();
  if (recurrence.missed !== 'skip' || lateMs <= delayMs) return false;
  if (lateMs > MISSED_AFTER_MS + delayMs && slot.getTime() < since) return true;
  const following = recurrence.cron.next(slot);
  return following !== null && following <= now;
}
