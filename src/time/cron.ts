import { Cron } from 'croner';
import { OptionError, reasonOf } from '../core/errors.js';
import { show } from '../core/options.js';
import { checkZone, nextTransition, offsetAt } from './zone.js';

/**
 * The run times of a cron expression in a time zone.
 *
 * croner evaluates the expression in wall-clock time only. This file maps wall-clock times to instants:
 * - A wall time that does not exist (clocks go forward) runs once, at the end of the gap.
 * - A wall time that occurs twice (clocks go back) runs once, the first time.
 * - Patterns that run in every hour (`* * * * *`, `0 * * * *`) follow elapsed time through both changes. Patterns whose
 *   minute field begins with `*` also do so when clocks go back.
 */
export interface CronTimes {
  readonly text: string;
  readonly timezone: string;
  /** The first time strictly after the given one, or null if there is none. */
  next(after: Date): Date | null;
}

const NICKNAMES: Readonly<Record<string, string>> = {
  '@yearly': '0 0 1 1 *',
  '@annually': '0 0 1 1 *',
  '@monthly': '0 0 1 * *',
  '@weekly': '0 0 * * 0',
  '@daily': '0 0 * * *',
  '@midnight': '0 0 * * *',
  '@hourly': '0 * * * *',
};

const DAY = 86_400_000;
/** Other ways to write `*`. */
const ANY: readonly string[] = ['?', '*/1'];

class ZonedCron implements CronTimes {
  readonly text: string;
  readonly timezone: string;
  readonly #wall: Cron;
  /** Runs in every hour of the day, so no run is lost in a gap. */
  readonly #everyHour: boolean;
  /** Runs again in the repeated hour when clocks go back. */
  readonly #repeats: boolean;

  constructor(text: string, fields: readonly string[], timezone: string) {
    this.text = text;
    this.timezone = timezone;
    // `utcOffset: 0` gives the same results as the zone UTC without a formatter, about thirty times as fast.
    // croner takes any other text than `*` in a field of days for a choice of days, which a weekday would only add to.
    const plain = fields.map((field) => (ANY.includes(field) ? '*' : field));
    this.#wall = new Cron(plain.join(' '), { utcOffset: 0, paused: true });
    const [minute = '', hour = ''] = fields.length === 6 ? fields.slice(1) : fields;
    this.#everyHour = ['*', '?', '*/1', '0-23'].includes(hour);
    this.#repeats = this.#everyHour || /^[*?]/u.test(minute);
  }

  next(after: Date): Date | null {
    const next = this.#after(after.getTime(), false);
    return next === null ? null : new Date(next);
  }

  /** The first due instant after `from`, or at it if `inclusive`. Handles one stretch of constant offset at a time. */
  #after(from: number, inclusive: boolean): number | null {
    const offset = offsetAt(this.timezone, from);
    const wall = this.#nextWall(this.#afterFold(from, from + offset, inclusive));
    if (wall === null) return null;
    const change = nextTransition(this.timezone, from, wall - offset);
    if (change === null) return wall - offset;
    return this.#dueInGap(change, offset) ? change : this.#after(change, true);
  }

  /** The wall time to search from. In a repeated hour, skips the wall times that already occurred. */
  #afterFold(from: number, wall: number, inclusive: boolean): number {
    const start = inclusive ? wall - 1 : wall;
    if (this.#repeats) return start;
    const change = lastTransition(this.timezone, from);
    if (change === null) return start;
    const foldEnd = change + offsetAt(this.timezone, change - 1);
    return Math.max(start, foldEnd - 1);
  }

  #dueInGap(change: number, before: number): boolean {
    if (this.#everyHour) return false;
    const gapEnd = change + offsetAt(this.timezone, change);
    const due = this.#nextWall(change + before - 1);
    return due !== null && due < gapEnd;
  }

  /** The next matching wall time strictly after the given one. */
  #nextWall(after: number): number | null {
    const found = this.#read(after);
    const nextMonth = startOfNextMonth(after);
    if (found === null || found < nextMonth) return found;
    // croner turns 31 February into 3 March and skips the days before; a search from the end of the month finds them.
    return Math.min(found, this.#read(nextMonth - 1) ?? found);
  }

  #read(after: number): number | null {
    // croner works in whole seconds; flooring keeps the result strictly after.
    return this.#wall.nextRun(new Date(Math.floor(after / 1000) * 1000))?.getTime() ?? null;
  }
}

function startOfNextMonth(wall: number): number {
  const date = new Date(wall);
  return Date.UTC(date.getUTCFullYear(), date.getUTCMonth() + 1, 1);
}

/** The offset change within the day before `instant`, or null. */
function lastTransition(zone: string, instant: number): number | null {
  return nextTransition(zone, instant - DAY, instant);
}

function fieldsOf(where: string, text: unknown): readonly string[] {
  if (typeof text !== 'string' || text.trim() === '') {
    throw new OptionError(
      `${where}: cron must be a string such as '0 3 * * *' or '@daily', got ${show(text)}.`,
    );
  }
  const trimmed = text.trim();
  if (trimmed.startsWith('@') && NICKNAMES[trimmed.toLowerCase()] === undefined) {
    const known = Object.keys(NICKNAMES).join(', ');
    throw new OptionError(
      `${where}: ${show(text)} is not a known cron name; use one of ${known}, or five fields.`,
    );
  }
  const fields = (NICKNAMES[trimmed.toLowerCase()] ?? trimmed).split(/\s+/u);
  if (fields.length === 5 || fields.length === 6) return fields;
  throw new OptionError(
    `${where}: cron needs 5 fields (minute hour day month weekday) or 6 with seconds first; ` +
      `${show(text)} has ${String(fields.length)}.${/^every\b/iu.test(trimmed) ? " For a distance, write '@every 90s'." : ''}`,
  );
}

/** Parses a cron expression. Throws an `OptionError` if it is invalid or can never be due. */
export function parseCron(where: string, text: unknown, timezone = 'UTC'): CronTimes {
  const fields = fieldsOf(where, text);
  const zone = checkZone(where, timezone);
  let cron: ZonedCron;
  try {
    cron = new ZonedCron(String(text).trim(), fields, zone);
  } catch (cause) {
    const reason = reasonOf(cause);
    throw new OptionError(`${where}: cron ${show(text)} is not valid: ${reason}.`, { cause });
  }
  if (!everMatches(cron)) {
    throw new OptionError(`${where}: cron ${show(text)} never matches a date; check its day and month.`);
  }
  return cron;
}

function everMatches(cron: CronTimes): boolean {
  try {
    return cron.next(new Date()) !== null;
  } catch (error) {
    // croner searches by recursion and overflows the stack if no date ever matches.
    if (error instanceof RangeError) return false;
    throw error;
  }
}
