/** Formats times, durations and numbers for people. Pure: `now` is a parameter. */

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const number = new Intl.NumberFormat('en');
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });
const exact = new Intl.DateTimeFormat('en-GB', { dateStyle: 'medium', timeStyle: 'long' });

/** At most two units: `850 ms`, `4.2 s`, `3 min 20 s`, `2 h 5 min`, `6 d 4 h`. */
export function duration(ms: number): string {
  if (ms < SECOND) return `${Math.max(0, Math.round(ms))} ms`;
  if (ms < 10 * SECOND) return `${trimmed(ms / SECOND)} s`;
  const seconds = Math.round(ms / SECOND);
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return two(seconds, 60, 'min', 1, 's');
  const minutes = Math.round(ms / MINUTE);
  if (minutes < 24 * 60) return two(minutes, 60, 'h', 1, 'min');
  return two(Math.round(ms / HOUR), 24, 'd', 1, 'h');
}

function two(amount: number, per: number, large: string, rest: number, small: string): string {
  const left = amount % per;
  const whole = `${Math.floor(amount / per)} ${large}`;
  return left < rest ? whole : `${whole} ${left} ${small}`;
}

function trimmed(value: number): string {
  return value.toFixed(1).replace(/\.0$/u, '');
}

/** `just now`, `20 s ago`, `in 3 min`. One unit is enough to get a sense of it. */
export function relative(at: number, now: number): string {
  const away = Math.abs(now - at);
  if (away < 2 * SECOND) return 'just now';
  const words = oneUnit(away);
  return at > now ? `in ${words}` : `${words} ago`;
}

function oneUnit(ms: number): string {
  if (ms < MINUTE) return `${Math.floor(ms / SECOND)} s`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min`;
  if (ms < DAY) return `${Math.floor(ms / HOUR)} h`;
  return `${Math.floor(ms / DAY)} d`;
}

/** In the viewer's own time zone, which the text names. */
export function exactTime(iso: string): string {
  const date = new Date(iso);
  return Number.isNaN(date.getTime()) ? iso : exact.format(date);
}

/** A time in another time zone; in UTC if the browser does not know that zone. */
export function inZone(iso: string, timeZone: string): string {
  const options = {
    weekday: 'short',
    day: 'numeric',
    month: 'short',
    hour: '2-digit',
    minute: '2-digit',
  } as const;
  const date = new Date(iso);
  try {
    return new Intl.DateTimeFormat('en-GB', { ...options, timeZone }).format(date);
  } catch {
    return `${new Intl.DateTimeFormat('en-GB', { ...options, timeZone: 'UTC' }).format(date)} UTC`;
  }
}

export function count(value: number): string {
  return number.format(value);
}

/** For axes and narrow columns: `1.2K`. */
export function compact(value: number): string {
  return short.format(value);
}

export function many(value: number, one: string, more: string = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : more}`;
}

/** Turns a name such as `processing_dirty` into words. */
export function words(name: string): string {
  return name.replaceAll(/[_-]/gu, ' ');
}
