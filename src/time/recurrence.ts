import type { MissedPolicy } from '../core/records/job.js';
import type { CronTimes } from './cron.js';

/** A run that nobody started this long after it could be counts as missed, even if the next one is not due yet. */
const MISSED_AFTER_MS = 60_000;

/** What may delay a run although somebody looks for it: being late by that much says nothing. */
export interface Attention {
  /** The longest wait between two looks. */
  readonly delayMs: number;
  /** Whoever asks has looked since then without a break, so what was due later waited for its turn. */
  readonly since?: number;
}

const NO_DELAY: Attention = { delayMs: 0 };

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
  /** More runs had been missed than are made up for; the older ones are dropped. */
  readonly dropped: boolean;
}

/** True for a run time of the schedule itself; a run that was asked for by hand stands for none. */
function isSlot(recurrence: Recurrence, at: Date): boolean {
  return slotAfter(recurrence, new Date(at.getTime() - 1))?.getTime() === at.getTime();
}

/**
 * The run after the one for `slot`, which began at `begunAt`, as seen at `now`. A run that lasts past the next time of its
 * schedule stands for that, too; one that was asked for by hand does not: that time was missed, and its policy decides.
 */
export function runAfter(recurrence: Recurrence, slot: Date, now: Date, begunAt: Date = slot): NextRun {
  const next = slotAfter(recurrence, slot);
  const passedMeanwhile = next !== null && next > begunAt && next <= now;
  if (recurrence.missed !== 'all' && passedMeanwhile && !isSlot(recurrence, slot))
    return { at: next, dropped: false };
  return runAfterAny(recurrence, slot, now);
}

/** As `runAfter`, where `slot` may be any time that somebody chose, such as the first due time of a document. */
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

/** Run times after `from` and not after `now`, no more than `limit` of them. */
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

/** The first of the last hundred: a stretch before `now` is doubled until it holds them, whatever came before. */
function lastMissed(recurrence: Recurrence, slot: Date, now: Date): Date | null {
  for (let stretchMs = 60_000; ; stretchMs *= 2) {
    const from = new Date(Math.max(slot.getTime(), now.getTime() - stretchMs));
    const missed = missedUpTo(recurrence, from, now, Infinity);
    if (missed.length >= CATCH_UP_LIMIT || from <= slot)
      return missed[Math.max(0, missed.length - CATCH_UP_LIMIT)] ?? null;
  }
}

/** True where `missed: 'skip'` says that this run is too late to be started. */
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
