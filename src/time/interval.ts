import { OptionError } from '../core/errors.js';
import { checkKeys, show } from '../core/options.js';
import { parseCron, type CronTimes } from './cron.js';
import { toMs, type Duration } from './duration.js';
import { checkZone } from './zone.js';

/** How work recurs: by the calendar, or at a fixed interval. */
export interface Interval {
  /** Returns the run times. Those of a fixed interval are counted from the anchor. */
  readonly from: (anchor: Date) => CronTimes;
}

const ZONE = /^(?:CRON_TZ|TZ)=(?<zone>\S+)\s+(?<rest>.+)$/su;
const EVERY = /^@every\s+(?<duration>.+)$/isu;

/** The latest time that a Date can hold. */
const END_OF_TIME = 8_640_000_000_000_000;

/** Counts elapsed time, so daylight-saving changes do not affect it. */
function everyFrom(text: string, timezone: string, ms: number, anchor: Date): CronTimes {
  return {
    text,
    timezone,
    next: (after) => {
      const steps = Math.floor((after.getTime() - anchor.getTime()) / ms) + 1;
      const next = anchor.getTime() + steps * ms;
      return next > END_OF_TIME ? null : new Date(next);
    },
  };
}

/** Parses a cron expression or `@every …`. Throws an OptionError if it is invalid or can never be due. */
function parseRecurring(where: string, text: unknown, timezone: string): Interval {
  const trimmed = typeof text === 'string' ? text.trim() : '';
  const duration = EVERY.exec(trimmed)?.groups?.['duration'];
  if (duration === undefined) {
    const cron = parseCron(where, text, timezone);
    return { from: () => cron };
  }
  const zone = checkZone(where, timezone);
  const ms = toMs(where, '@every', duration, 1);
  return { from: (anchor) => everyFrom(trimmed, zone, ms, anchor) };
}

/** Parses a document's interval, which may name its own zone. */
export function parseInterval(where: string, text: unknown, timezone: string): Interval {
  if (typeof text !== 'string')
    throw new OptionError(
      `${where}: interval must be a string such as '0 3 * * *' or '@every 1h30m', got ${show(text)}.`,
    );
  const { zone = timezone, rest = text } = ZONE.exec(text.trim())?.groups ?? {};
  return parseRecurring(where, rest, zone);
}

/** The times of a schedule: a cron expression, `'@every 90s'`, or `{ every: '90s' }`. */
export type ScheduleTimes = string | { readonly every: Duration };

/** The text under which the times of a schedule are stored. */
export function timesText(where: string, times: unknown): unknown {
  if (typeof times !== 'object' || times === null) return times;
  checkKeys(where, times, ['every']);
  const { every } = times as { readonly every?: unknown };
  toMs(where, 'every', every, 1);
  return `@every ${typeof every === 'number' ? `${String(every)}ms` : String(every)}`;
}

const EPOCH = new Date(0);

/**
 * Returns the run times of a schedule from its text. Those of `@every` are counted from `startAt`, or from the beginning
 * of 1970 (UTC), so that every process computes the same ones, and a repeated `schedule` call postpones none.
 */
export function parseSchedule(where: string, text: unknown, timezone?: string, startAt?: Date): CronTimes {
  return parseRecurring(where, text, timezone ?? 'UTC').from(startAt ?? EPOCH);
}

const MOST_KNOWN = 1_000;

/** Caches parsed intervals: documents share them, and parsing one takes longer than using it. Cleared when full. */
export class Intervals {
  readonly #known = new Map<string, Interval>();

  read(where: string, text: unknown, timezone: string): Interval {
    const key = `${timezone} ${String(text)}`;
    const known = this.#known.get(key);
    if (known !== undefined) return known;
    const interval = parseInterval(where, text, timezone);
    if (this.#known.size === MOST_KNOWN) this.#known.clear();
    this.#known.set(key, interval);
    return interval;
  }
}
