/** What the end of a run means for its document. Pure. */
import { OptionError, reasonOf } from '../../core/errors.js';
import type { Outcome } from '../../core/records/outcome.js';
import { show } from '../../core/options.js';
import { idText } from '../../core/text/paths.js';
import type { DocumentChanges, DocumentFailure, DocumentJob } from '../../store/documents.js';
import { decideRetry } from '../../time/retry.js';
import type { Ending } from './locked-document.js';
import type { Intervals } from '../times/interval.js';
import { nextRun, type Plan } from '../times/next.js';
import type { ScheduleSettings } from '../options.js';

export interface Circumstances {
  readonly settings: ScheduleSettings;
  readonly intervals: Intervals;
  readonly now: Date;
  /** Locks leave a mark beside failures, which the end of a run takes off. */
  readonly marks: boolean;
}

export interface Conclusion {
  readonly ending: Ending;
  /** When it runs again. */
  readonly next?: Date | undefined;
  /** The schedule cannot be read, and why: the document is parked. */
  readonly problem?: OptionError;
  /** More runs had been missed than are made up for. */
  readonly dropped?: boolean;
}

const isNothing = (value: unknown): boolean => value === null || value === undefined || value === '';

/** The time that a run stands for: of one that is tried again, that of its first try. */
function slotOf({ sleepUntil, failure }: DocumentJob<unknown>, now: Date): Date {
  const retried = failure?.ended === false ? failure.scheduledFor : undefined;
  return retried ?? sleepUntil ?? now;
}

/** How a recurring document recurs; null for one that runs once. Throws an OptionError where that cannot be read. */
export function planOf(job: DocumentJob<unknown>, { settings, intervals, now }: Circumstances): Plan | null {
  if (isNothing(job.interval)) return null;
  const where = `document ${idText(job.id)}`;
  const timezone = isNothing(job.timezone) ? settings.timezone : (job.timezone as string);
  const interval = intervals.read(where, job.interval, timezone);
  const repeatUntil: unknown = job.repeatUntil ?? undefined;
  if (repeatUntil !== undefined && !isDate(repeatUntil))
    throw new OptionError(`${where}: repeatUntil must be a date, or null; got ${show(repeatUntil)}.`);
  const { missed, reprocessMs } = settings;
  return { interval, slot: slotOf(job, now), repeatUntil, missed, reprocessMs };
}

const isDate = (value: unknown): value is Date => value instanceof Date && !Number.isNaN(value.getTime());

/** Why a due time is none; undefined where it is one. */
export function misfitOf({ id, sleepUntil }: DocumentJob<unknown>): OptionError | undefined {
  if (sleepUntil === null || sleepUntil === undefined || isDate(sleepUntil)) return undefined;
  return misfitError(id, sleepUntil);
}

export const misfitError = (id: unknown, value: unknown): OptionError =>
  new OptionError(
    `document ${idText(id)}: sleepUntil must be a date, or null; got ${show(value)}. It is not run; store a date.`,
  );

/** It waits for somebody to mend it: neither run nor deleted, with the reason in it. */
export function parked(problem: OptionError, now: Date): Conclusion {
  const failure = { count: 0, reason: problem.message, firstAt: now, at: now, ended: true };
  return { ending: { changes: { sleepUntil: null, failure } }, problem };
}

/** Its run is over, one way or the other. */
function afterRun(
  job: DocumentJob<unknown>,
  about: Circumstances,
  failure?: DocumentFailure | null,
): Conclusion {
  const kept: DocumentChanges = failure === undefined ? {} : { failure };
  try {
    const plan = planOf(job, about);
    const { at, dropped } = plan === null ? { at: null, dropped: false } : nextRun(plan, about.now);
    if (at !== null) return { ending: { changes: { ...kept, sleepUntil: at } }, next: at, dropped };
    // A document that failed for good is kept, so that somebody may see it.
    if (job.autoRemove === true && (failure ?? null) === null) return { ending: { remove: true } };
    return { ending: { changes: { ...kept, sleepUntil: null } } };
  } catch (problem) {
    if (problem instanceof OptionError) return parked(problem, about.now);
    throw problem;
  }
}

/** What the document says after one failure more, and when it is tried again; null where nobody counts. */
function counted(
  job: DocumentJob<unknown>,
  error: Error,
  { settings, now }: Circumstances,
): { readonly failure: DocumentFailure; readonly retryAt: Date | null } | null {
  if (settings.retry === undefined) return null;
  const before = job.failure?.ended === false ? job.failure : undefined;
  const count = (before?.count ?? 0) + 1;
  const firstAt = before?.firstAt ?? now;
  const facts = { failures: count, firstFailedAt: firstAt, now: now.getTime(), error };
  const retryAt = decideRetry(settings.retry, facts);
  const failure = { count, reason: reasonOf(error), firstAt, at: now, scheduledFor: slotOf(job, now) };
  return { failure: { ...failure, ended: retryAt === null }, retryAt };
}

function afterFailure(job: DocumentJob<unknown>, error: Error, about: Circumstances): Conclusion | null {
  const verdict = counted(job, error, about);
  if (verdict === null) return null;
  const { failure, retryAt } = verdict;
  if (retryAt === null) return afterRun(job, about, failure);
  return { ending: { changes: { sleepUntil: retryAt, failure } }, next: retryAt };
}

/** What the death of its last process means for a document. */
interface Crash {
  readonly error: Error;
  /** To be kept before it is tried again. */
  readonly failure: DocumentFailure;
  /** There is no attempt left. */
  readonly conclusion?: Conclusion;
}

/** A document that was locked, and neither recorded nor given another time: its process died. Null for any other. */
export function afterCrash(job: DocumentJob<unknown>, about: Circumstances): Crash | null {
  const { lockedUntil, sleepUntil } = job;
  if (!about.marks || !isDate(lockedUntil) || lockedUntil.getTime() !== sleepUntil?.getTime()) return null;
  const error = new Error('Its process died, or stood still for longer than its lock.');
  const verdict = counted(job, error, about);
  if (verdict === null) return null;
  const { failure, retryAt } = verdict;
  // The lock was wait enough.
  return retryAt === null
    ? { error, failure, conclusion: afterRun(job, about, failure) }
    : { error, failure };
}

/** Null: nothing is written, and the document runs again when its lock ends. */
export function conclude(
  job: DocumentJob<unknown>,
  outcome: Outcome,
  about: Circumstances,
): Conclusion | null {
  switch (outcome.kind) {
    case 'threw':
      return afterFailure(job, outcome.error, about);
    case 'released': {
      const sleepUntil = job.sleepUntil ?? about.now;
      const kept = about.marks ? { failure: job.failure ?? null } : {};
      return { ending: { changes: { sleepUntil, ...kept } }, next: sleepUntil };
    }
    default:
      return afterRun(job, about, (job.failure ?? null) === null && !about.marks ? undefined : null);
  }
}
