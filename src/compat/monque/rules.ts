/** The public functions and constants of Monque: names, keys, cron and backoff. */
import { parseCron, type CronTimes } from '../../time/cron.js';
import { InvalidCronError, InvalidJobIdentifierError } from './errors.js';

export const DEFAULT_BASE_INTERVAL = 1_000;
export const DEFAULT_MAX_BACKOFF_DELAY = 86_400_000;
export const DEFAULT_JITTER_FACTOR = 0.25;

/** Spreads a delay evenly by the share `factor` in both directions. */
export function applyJitter(
  delayMs: number,
  factor: number = DEFAULT_JITTER_FACTOR,
  random: () => number = Math.random,
): number {
  return Math.max(0, Math.round(delayMs * (1 + factor * (2 * random() - 1))));
}

/** Milliseconds from the n-th failure to the next try: 2^n times the base, at most the cap, with jitter. */
export function calculateBackoffDelay(
  failCount: number,
  baseInterval: number = DEFAULT_BASE_INTERVAL,
  maxDelay: number = DEFAULT_MAX_BACKOFF_DELAY,
): number {
  return Math.min(maxDelay, applyJitter(Math.min(maxDelay, 2 ** failCount * baseInterval)));
}

export function calculateBackoff(failCount: number, baseInterval?: number, maxDelay?: number): Date {
  return new Date(Date.now() + calculateBackoffDelay(failCount, baseInterval, maxDelay));
}

/** Monque reads cron expressions in the zone of the process. */
export const processZone = (): string => Intl.DateTimeFormat().resolvedOptions().timeZone;

function timesOf(expression: string): CronTimes {
  try {
    return parseCron('cron', expression, processZone());
  } catch (cause) {
    throw new InvalidCronError(expression, (cause as Error).message, { cause });
  }
}

/** Throws an InvalidCronError. */
export function validateCronExpression(expression: string): void {
  timesOf(expression);
}

export function getNextCronDate(expression: string, currentDate: Date = new Date()): Date {
  const next = timesOf(expression).next(currentDate);
  if (next !== null) return next;
  throw new InvalidCronError(
    expression,
    `cron '${expression}' has no time after ${currentDate.toISOString()}.`,
  );
}

// eslint-disable-next-line no-control-regex -- control characters are what it looks for
const CONTROL = /[\u0000-\u001F\u007F]/u;

function check(field: string, value: unknown, max: number, wrong: RegExp, rule: string): void {
  if (typeof value === 'string' && value.trim() !== '' && value.length <= max && !wrong.test(value)) return;
  throw new InvalidJobIdentifierError(
    field,
    value,
    `${field} must be a text of 1 to ${max} characters ${rule}.`,
  );
}

/** Throws an InvalidJobIdentifierError. */
export function validateJobName(name: string): void {
  check('name', name, 255, new RegExp(`\\s|${CONTROL.source}`, 'u'), 'without spaces and control characters');
}

/** Throws an InvalidJobIdentifierError. */
export function validateUniqueKey(uniqueKey: string): void {
  check('uniqueKey', uniqueKey, 1_024, CONTROL, 'without control characters, and not blank');
}
