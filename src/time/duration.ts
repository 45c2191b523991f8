import parse from 'parse-duration';
import { OptionError } from '../core/errors.js';
import { show } from '../core/options.js';

/** Milliseconds, or a text such as '90s', '1h30m' or '7 days'. */
export type Duration = number | string;

const SHAPE =
  /^\s*(?:\d+(?:\.\d+)?\s*(?:ms|s|secs?|seconds?|m|mins?|minutes?|h|hrs?|hours?|d|days?|w|weeks?)\s*)+$/iu;

/** A million days. Added to any realistic date, the result is still a valid Date. */
const MOST_MS = 86_400_000 * 1_000_000;

/** Converts a duration to milliseconds. Throws an `OptionError` that names the option if it is invalid. */
export function toMs(where: string, option: string, value: unknown, min = 0): number {
  const ms = typeof value === 'string' ? (SHAPE.test(value) ? parse(value) : null) : value;
  if (typeof ms === 'number' && ms >= min && ms <= MOST_MS) return Math.round(ms);
  const least = min > 0 ? ` of at least ${String(min)} ms` : '';
  const most = typeof ms === 'number' && ms > MOST_MS ? ' of at most a million days' : '';
  throw new OptionError(
    `${where}: ${option} must be a duration${least}${most}: milliseconds, or a string such as '90s' or '1h30m'; got ${show(value)}.`,
  );
}

/** Converts a duration from `now`, or a Date, to a Date. */
export function toInstant(where: string, option: string, value: unknown, now: number): Date {
  if (!(value instanceof Date)) return new Date(now + toMs(where, option, value));
  if (!Number.isNaN(value.getTime())) return value;
  throw new OptionError(`${where}: ${option} must be a valid Date or a duration, got ${show(value)}.`);
}
