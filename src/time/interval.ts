import { OptionError } from '../../core/errors.js';
import { show } from '../../core/options.js';
import { parseCron, type CronTimes } from '../../time/cron.js';
import { toMs } from '../../time/duration.js';

/** How a document recurs: by the calendar, or at a fixed interval. */
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

/** Parses a document's interval. Throws an OptionError with the reason if it is invalid or can never be due. */
export function parseInterval(where: string, text: unknown, timezone: string): Interval {
  if (typeof text !== 'string')
    throw new OptionError(
      `${where}: interval must be a string such as '0 3 * * *' or '@every 1h30m', got ${show(text)}.`,
    );
  const { zone = timezone, rest = text.trim() } = ZONE.exec(text.trim())?.groups ?? {};
  const duration = EVERY.exec(rest)?.groups?.['duration'];
  const cron = parseCron(where, duration === undefined ? rest : '@hourly', zone);
  if (duration === undefined) return { from: () => cron };
  const ms = toMs(where, '@every', duration, 1);
  return { from: (anchor) => everyFrom(text, zone, ms, anchor) };
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
