import { OptionError } from '../errors.js';
import { checkPayload, type PayloadRules } from '../payload.js';
import { textOf } from './history.js';
import type { Attempt } from './job.js';

/** The payload of a dead letter: the job that failed for good, why, and each attempt that its history kept. */
export interface DeadLetter<T = unknown> {
  readonly job: { readonly id: string; readonly name: string; readonly data: T };
  readonly error: { readonly name: string; readonly message: string };
  /** The attempts, oldest first, the failed one included. */
  readonly history: readonly Attempt[];
  /** How many of the oldest attempts were left out, because the payload would have been too large. */
  readonly historyOmitted?: number;
}

/** What a store allows. */
export interface LetterLimits {
  readonly rules: PayloadRules;
  readonly maxBytes: number;
}

/** The levels that a letter adds around the data of its job. */
const LEVELS = 3;

/** Error texts come from anywhere, and no database stores every text. */
const readable = (value: unknown): string => textOf(value).toWellFormed().replaceAll('\0', '\uFFFD');

function readableAttempt({ error, ...attempt }: Attempt): Attempt {
  if (error === undefined) return attempt;
  const { name, message, stack } = error;
  const texts = { name: readable(name), message: readable(message) };
  return { ...attempt, error: { ...texts, ...(stack === undefined ? {} : { stack: readable(stack) }) } };
}

function fits(letter: DeadLetter, { rules, maxBytes }: LetterLimits): boolean {
  try {
    checkPayload('', '', letter, { ...rules, maxDepth: rules.maxDepth + LEVELS }, maxBytes);
    return true;
  } catch (error) {
    if (error instanceof OptionError) return false;
    throw error;
  }
}

/**
 * Makes the payload of a dead letter. If it is too large, the oldest half of the history goes, and so on, down to none.
 * The job's data always stay: they were accepted, and stores hold somewhat more than they accept.
 */
export function deadLetter(
  job: DeadLetter['job'],
  failure: Error,
  history: readonly Attempt[],
  limits: LetterLimits,
): DeadLetter {
  const error = { name: readable(failure.name), message: readable(failure.message) };
  const attempts = history.map(readableAttempt);
  for (let kept = attempts.length; ; kept = Math.floor(kept / 2)) {
    const omitted = attempts.length - kept;
    const letter = {
      job,
      error,
      history: attempts.slice(omitted),
      ...(omitted === 0 ? {} : { historyOmitted: omitted }),
    };
    if (kept === 0 || fits(letter, limits)) return letter;
  }
}
