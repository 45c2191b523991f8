import { OptionError } from '../core/errors.js';
import { show } from '../core/options.js';

const HOUR = 3_600_000;
const formats = new Map<string, Intl.DateTimeFormat>();

function formatOf(zone: string): Intl.DateTimeFormat {
  const known = formats.get(zone);
  if (known !== undefined) return known;
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone: zone,
    hourCycle: 'h23',
    year: 'numeric',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
    second: 'numeric',
    era: 'short',
  });
  formats.set(zone, format);
  return format;
}

/** Throws an `OptionError` unless Node's time zone database knows the zone. */
export function checkZone(where: string, value: unknown): string {
  try {
    if (typeof value !== 'string' || value === '') throw new RangeError('empty');
    formatOf(value);
    return value;
  } catch (cause) {
    throw new OptionError(
      `${where}: timezone must be an IANA name such as 'Europe/Prague', got ${show(value)}.`,
      {
        cause,
      },
    );
  }
}

/** Milliseconds to add to an instant to get the zone's wall-clock time, read as if it were UTC. */
export function offsetAt(zone: string, instant: number): number {
  if (zone === 'UTC') return 0;
  const at: Record<string, number> = {};
  for (const { type, value } of formatOf(zone).formatToParts(instant)) at[type] = Number(value);
  const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = at;
  return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(instant / 1000) * 1000;
}

/** A week. A change of offset and its reversal within one step would be missed. */
const STEP = 168 * HOUR;

/** The first instant in (from, to] at which the zone's offset changes, or null. */
export function nextTransition(zone: string, from: number, to: number): number | null {
  if (zone === 'UTC') return null;
  const offset = offsetAt(zone, from);
  for (let low = from; low < to; low += STEP) {
    const high = Math.min(low + STEP, to);
    if (offsetAt(zone, high) !== offset) return bisect(zone, offset, low, high);
  }
  return null;
}

/** The first instant in (low, high] at which the offset differs from the given one. */
function bisect(zone: string, offset: number, low: number, high: number): number {
  let [before, after] = [low, high];
  while (after - before > 1) {
    const middle = Math.floor((before + after) / 2);
    if (offsetAt(zone, middle) === offset) before = middle;
    else after = middle;
  }
  return after;
}
