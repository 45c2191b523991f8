/** Decides what the end of a run writes to its document. Pure. */
import { OptionError, reasonOf } from '../../core/errors.js';
import type { Outcome } from '../../core/records/outcome.js';
import { show } from '../../core/options.js';
import { idText } from '../../core/text/paths.js';
import type { DocumentChanges, DocumentFailure, DocumentJob } from '../../store/documents.js';
import { decideRetry } from '../../time/retry-decision.js';
import type { Ending } from './locked-document.js';
import type { Intervals } from '../../time/interval.js';
import { nextRun, type Plan } from './next.js';
import type { ScheduleSettings } from '../options.js';

export interface Circumstances {
  readonly settings: ScheduleSettings;
  readonly intervals: Intervals;
  readonly now: Date;
  /** Locks leave a mark beside the failure fields, which the end of a run removes. */
  readonly marks: boolean;
}

export interface Conclusion {
  readonly ending: Ending;
  /** When the document is due again. */
  readonly next?: Date | undefined;
  /** Why the schedule cannot be parsed; the document is parked. */
  readonly problem?: OptionError;
  /** More runs were missed than are made up for; the older ones are dropped. */
  readonly dropped?: boolean;
}

const isNothing = (value: unknown): boolean => value === null || value === undefined || value === '';

/** The scheduled time that a run stands for. For a retry, that of the first attempt. */
function slotOf({ sleepUntil, failure }: DocumentJob<unknown>, now: Date): Date {
  const retried = failure?.ended === false ? failure.scheduledFor : undefined;
  return retried ?? sleepUntil ?? now;
}

/** Returns how a recurring document recurs, or null if it runs once. Throws an OptionError if that cannot be parsed. */
export function planOf(job: DocumentJob<unknown>, { settings, intervals, now }: Circumstances): Plan | null {
  if (isNothing(job.interval)) return null;
  const where = `document ${idText(job.id)}`;
  const timezone = isNothing(job.timezone) ? settings.timezone : (job.timezone as string);
  const interval = intervals.read(where, job.interval, timezone);
  const repeatUntil: unknown = job.repeatUntil ?? undefined;
  if (repeatUntil !== undefined && !isDate(repeatUntil))
    throw new OptionError(`${where}: repeatUntil must be a date or null, got ${show(repeatUntil)}.`);
  const { missed, reprocessMs } = settings;
  return { interval, slot: slotOf(job, now), repeatUntil, missed, reprocessMs };
}

const isDate = (value: unknown): value is Date => value instanceof Date && !Number.isNaN(value.getTime());

/** Returns an error if `sleepUntil` is neither a date nor null, undefined otherwise. */
export function misfitOf({ id, sleepUntil }: DocumentJob<unknown>): OptionError | undefined {
  if (sleepUntil === null || sleepUntil === undefined || isDate(sleepUntil)) return undefined;
  return misfitError(id, sleepUntil);
}

export const misfitError = (id: unknown, value: unknown): OptionError =>
  new OptionError(
    `document ${idText(id)}: sleepUntil must be a date or null, got ${show(value)}. The document does not run; store a date.`,
  );

/** Parks a document until a person fixes it: it neither runs nor is deleted, and holds the reason. */
export function parked(problem: OptionError, now: Date): Conclusion {
  const failure = { count: 0, reason: problem.message, firstAt: now, at: now, ended: true };
  return { ending: { changes: { sleepUntil: null, failure } }, problem };
}

/**
 * Concludes a run that is over: plans the next one, deletes the document, or parks it. A `failure` of undefined leaves
 * the stored one as it is; null removes it.
 */
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
    // A document that failed for good is kept even with `autoRemove`, so that the failure can be seen.
    if (job.autoRemove === true && (failure ?? null) === null) return { ending: { remove: true } };
    return { ending: { changes: { ...kept, sleepUntil: null } } };
  } catch (problem) {
    if (problem instanceof OptionError) return parked(problem, about.now);
    throw problem;
  }
}

/**
 * Returns the failure to store after one more, and when to retry (null: no attempt is left). Returns null if there is
 * no retry policy.
 */
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

/** What a crash of the process that last ran a document means for the document. */
interface Crash {
  readonly error: Error;
  /** Must be stored before the document runs again. */
  readonly failure: DocumentFailure;
  /** Set if no attempt is left. */
  readonly conclusion?: Conclusion;
}

/**
 * Detects a document whose process died: it was locked, and neither recorded nor given another time. Returns null for
 * any other document, and if failures are not counted.
 */
export function afterCrash(job: DocumentJob<unknown>, about: Circumstances): Crash | null {
  const { lockedUntil, sleepUntil } = job;
  if (!about.marks || !isDate(lockedUntil) || lockedUntil.getTime() !== sleepUntil?.getTime()) return null;
  const error = new Error('Its process died, or was blocked for longer than its lock lasted.');
  const verdict = counted(job, error, about);
  if (verdict === null) return null;
  const { failure, retryAt } = verdict;
  // No backoff: the document has already waited for its lock to end.
  return retryAt === null
    ? { error, failure, conclusion: afterRun(job, about, failure) }
    : { error, failure };
}

/** Returns null if nothing is to be written; the document then runs again when its lock ends. */
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
