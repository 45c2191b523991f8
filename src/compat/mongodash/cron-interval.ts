import parse from 'parse-duration';
import { OptionError, type ScheduleTimes } from '../../index.js';
import type { CronExpressionOptions, Interval } from './types.js';

/** When a task runs next: what `mill.schedule` takes. */
export interface NextRun {
  readonly when: ScheduleTimes;
  /** Absent for cron text, which tells the time by itself. */
  readonly startAt?: Date;
  readonly timezone: string;
}

/** A time that has passed would be due for ever. */
const LEAST_DELAY_MS = 200;
/** A million days. */
const MOST_MS = 86_400_000_000_000;
const CRON = /^CRON\s+/iu;

const later = (everyMs: number, startAt: Date): NextRun => ({
  when: { every: Math.max(1, Math.round(everyMs)) },
  startAt,
  timezone: 'UTC',
});

function durationOf(where: string, interval: unknown): number {
  const ms = typeof interval === 'string' && !interval.includes('*') ? parse(interval) : interval;
  if (typeof ms === 'number' && ms > 0 && ms <= MOST_MS) return ms;
  throw new OptionError(
    `${where}: the interval must be a positive duration, such as 5000 or '1h 30m', or 'CRON ' with a cron expression, such as ` +
      `'CRON 0 3 * * *'; got ${JSON.stringify(interval)}.`,
  );
}

function nextOf(where: string, value: unknown, now: Date, timezone: string): NextRun {
  if (value instanceof Date) {
    if (Number.isNaN(value.getTime()))
      throw new OptionError(`${where}: the interval function returned an invalid Date.`);
    const delay = Math.max(value.getTime() - now.getTime(), LEAST_DELAY_MS);
    return later(delay, new Date(now.getTime() + delay));
  }
  if (typeof value === 'string' && CRON.test(value)) return { when: value.replace(CRON, ''), timezone };
  const ms = durationOf(where, value);
  return later(ms, new Date(now.getTime() + ms));
}

export async function nextRun(
  where: string,
  interval: Interval,
  now: Date,
  { tz }: CronExpressionOptions = {},
): Promise<NextRun> {
  const value = typeof interval === 'function' ? await interval() : interval;
  return nextOf(where, value, now, tz ?? Intl.DateTimeFormat().resolvedOptions().timeZone);
}
