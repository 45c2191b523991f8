import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { OptionError } from '../../src/core/errors.js';
import { parseCron } from '../../src/time/cron.js';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const times = (text: string, from: string, count: number, timezone?: string): string[] => {
  const cron = parseCron('here', text, timezone);
  const found: string[] = [];
  for (let at = cron.next(new Date(from)); at !== null && found.length < count; at = cron.next(at)) {
    found.push(at.toISOString().replace('.000Z', 'Z'));
  }
  return found;
};

const next = (text: string, from: string, timezone?: string): string | undefined =>
  times(text, from, 1, timezone)[0];

describe('cron expressions', () => {
  it.each([
    ['* * * * *', '2025-01-01T00:00:30Z', '2025-01-01T00:01:00Z'],
    ['*/15 * * * *', '2025-01-01T00:16:00Z', '2025-01-01T00:30:00Z'],
    ['0 3 * * *', '2025-01-01T03:00:00Z', '2025-01-02T03:00:00Z'],
    ['0,30 9-17 * * *', '2025-01-01T17:30:00Z', '2025-01-02T09:00:00Z'],
    ['0 0 * * 1', '2025-01-01T00:00:00Z', '2025-01-06T00:00:00Z'],
    ['0 0 * * 0', '2025-01-01T00:00:00Z', '2025-01-05T00:00:00Z'],
    ['0 0 * * 7', '2025-01-01T00:00:00Z', '2025-01-05T00:00:00Z'],
    ['0 0 1 JAN *', '2025-01-01T00:00:00Z', '2026-01-01T00:00:00Z'],
    ['0 0 * feb-mar Mon', '2025-01-01T00:00:00Z', '2025-02-03T00:00:00Z'],
    ['0 0 ? * MON', '2025-01-01T00:00:00Z', '2025-01-06T00:00:00Z'],
    ['0 0 */1 * MON', '2025-01-01T00:00:00Z', '2025-01-06T00:00:00Z'],
    ['0 0 15 * ?', '2025-01-01T00:00:00Z', '2025-01-15T00:00:00Z'],
    ['0 0 29 2 *', '2025-01-01T00:00:00Z', '2028-02-29T00:00:00Z'],
  ])('%s after %s is due at %s', (text, from, expected) => {
    expect(next(text, from)).toBe(expected);
  });

  it('six fields begin with seconds', () => {
    expect(times('*/20 59 23 * * *', '2025-01-01T00:00:00Z', 4)).toEqual([
      '2025-01-01T23:59:00Z',
      '2025-01-01T23:59:20Z',
      '2025-01-01T23:59:40Z',
      '2025-01-02T23:59:00Z',
    ]);
  });

  it('L is the last day of a month', () => {
    expect(times('0 0 L * *', '2024-01-31T12:00:00Z', 3)).toEqual([
      '2024-02-29T00:00:00Z',
      '2024-03-31T00:00:00Z',
      '2024-04-30T00:00:00Z',
    ]);
  });

  it('does not skip the first of March for a day that February lacks', () => {
    expect(times('0 0 */5 * *', '2025-02-25T12:00:00Z', 3)).toEqual([
      '2025-02-26T00:00:00Z',
      '2025-03-01T00:00:00Z',
      '2025-03-06T00:00:00Z',
    ]);
    expect(next('0 6 1,31 * *', '2025-02-10T00:00:00Z')).toBe('2025-03-01T06:00:00Z');
    expect(next('0 6 2,30 * *', '2024-02-10T00:00:00Z', 'Europe/Prague')).toBe('2024-03-02T05:00:00Z');
  });

  it('# is the n-th weekday of a month, and #L the last one', () => {
    expect(times('0 0 * * FRI#2', '2025-01-01T00:00:00Z', 2)).toEqual([
      '2025-01-10T00:00:00Z',
      '2025-02-14T00:00:00Z',
    ]);
    expect(times('0 0 * * 5#L', '2025-01-01T00:00:00Z', 2)).toEqual([
      '2025-01-31T00:00:00Z',
      '2025-02-28T00:00:00Z',
    ]);
    // Most months have no fifth Monday: those are skipped.
    expect(times('0 0 * * MON#5', '2025-01-01T00:00:00Z', 2)).toEqual([
      '2025-03-31T00:00:00Z',
      '2025-06-30T00:00:00Z',
    ]);
  });

  it.each([
    ['@yearly', '2026-01-01T00:00:00Z'],
    ['@annually', '2026-01-01T00:00:00Z'],
    ['@monthly', '2025-03-01T00:00:00Z'],
    ['@weekly', '2025-02-16T00:00:00Z'],
    ['@daily', '2025-02-12T00:00:00Z'],
    ['@midnight', '2025-02-12T00:00:00Z'],
    ['@hourly', '2025-02-11T11:00:00Z'],
    ['@Daily', '2025-02-12T00:00:00Z'],
  ])('the cron name %s stands for its five fields', (name, expected) => {
    expect(next(name, '2025-02-11T10:30:00Z')).toBe(expected);
  });

  it('ignores extra white space around and between fields', () => {
    expect(next('  0   3 *\t* * ', '2025-01-01T00:00:00Z')).toBe('2025-01-01T03:00:00Z');
  });

  it('keeps the text and the zone it was given', () => {
    expect(parseCron('here', ' @daily ', 'Europe/Prague')).toMatchObject({
      text: '@daily',
      timezone: 'Europe/Prague',
    });
    expect(parseCron('here', '* * * * *').timezone).toBe('UTC');
  });

  it('next returns a time strictly after the given one, to the millisecond', () => {
    expect(next('0 3 * * *', '2025-01-01T02:59:59.999Z')).toBe('2025-01-01T03:00:00Z');
    expect(next('0 3 * * *', '2025-01-01T03:00:00.000Z')).toBe('2025-01-02T03:00:00Z');
    expect(next('0 3 * * *', '2025-01-01T03:00:00.001Z')).toBe('2025-01-02T03:00:00Z');
    expect(next('* * * * * *', '2025-01-01T03:00:00.999Z')).toBe('2025-01-01T03:00:01Z');
  });
});

describe('rejected cron expressions', () => {
  it.each(['', '   ', undefined, null, 5, {}, ['* * * * *']])('rejects %j as a cron expression', (text) => {
    expect(() => parseCron('schedule', text)).toThrow(OptionError);
    expect(() => parseCron('schedule', text)).toThrow(/^schedule: cron must be a string such as/);
  });

  it.each([
    ['*', 1],
    ['0 3', 2],
    ['0 3 *', 3],
    ['0 3 * *', 4],
    ['0 0 3 * * * *', 7],
  ])('rejects the cron expression %s because it has %i fields', (text, count) => {
    expect(() => parseCron('schedule', text)).toThrow(`has ${String(count)}.`);
    expect(() => parseCron('schedule', text)).toThrow(/needs 5 fields .* or 6 with seconds first/);
  });

  it.each([
    '60 * * * *',
    '* 24 * * *',
    '* * 32 * *',
    '* * 0 * *',
    '* * * 13 *',
    '* * * * 8',
    '-1 * * * *',
    '5-1 * * * *',
    '*/0 * * * *',
    '1.5 * * * *',
    'a b c d e',
    '* * * FOO *',
    '* * * * MON#6',
    '60 * * * * *',
  ])('rejects the invalid cron expression %s', (text) => {
    expect(() => parseCron('schedule', text)).toThrow(OptionError);
    expect(() => parseCron('schedule', text)).toThrow(`schedule: cron "${text}" is not valid: `);
  });

  it.each(['0 0 30 2 *', '0 0 31 4,6,9,11 *', '0 0 0 31 2 *'])(
    'rejects the cron expression %s, which never matches a date',
    (text) => {
      expect(() => parseCron('schedule', text)).toThrow(`cron "${text}" never matches a date`);
      expect(() => parseCron('schedule', text, 'Europe/Prague')).toThrow('never matches a date');
    },
  );

  it('lists the known names when it rejects an unknown one', () => {
    expect(() => parseCron('schedule', '@nightly')).toThrow(/not a known cron name; use one of @yearly, /);
  });

  it.each(['Europe/Praha', '', 'Mars/Olympus', 5, null])('rejects %j as a time zone', (zone) => {
    expect(() => parseCron('schedule', '* * * * *', zone as string)).toThrow(OptionError);
    expect(() => parseCron('schedule', '* * * * *', zone as string)).toThrow(/timezone must be an IANA name/);
  });
});

const ZONES = [
  'UTC',
  'Europe/Prague',
  'America/New_York',
  'Australia/Lord_Howe',
  'America/Santiago',
  'Asia/Kathmandu',
];

const part = (most: number, least = 0): fc.Arbitrary<string> => {
  const one = fc.integer({ min: least, max: most });
  return fc.oneof(
    { weight: 3, arbitrary: fc.constant('*') },
    { weight: 2, arbitrary: one.map(String) },
    fc.integer({ min: 1, max: most }).map((step) => `*/${String(step)}`),
    fc.tuple(one, one).map(([a, b]) => `${String(Math.min(a, b))}-${String(Math.max(a, b))}`),
    fc.uniqueArray(one, { minLength: 2, maxLength: 4 }).map((list) => list.sort((a, b) => a - b).join(',')),
  );
};

/** In any month, so that each text is due at least every other one. */
const texts = fc
  .tuple(part(59), part(23), part(31, 1), fc.constantFrom('*', '*', '1-12', '*/1'), part(6))
  .map((fields) => fields.join(' '));

const instants = fc
  .integer({ min: Date.UTC(2020, 0, 1), max: Date.UTC(2030, 0, 1) })
  .map((time) => new Date(time));

describe('random cron expressions in random zones', () => {
  const anything = [texts, fc.constantFrom(...ZONES), instants] as const;

  it('cron times only move forward', () => {
    fc.assert(
      fc.property(...anything, (text, zone, from) => {
        const cron = parseCron('here', text, zone);
        let last = from;
        for (let step = 0; step < 5; step += 1) {
          const at = cron.next(last)!;
          expect(at.getTime()).toBeGreaterThan(last.getTime());
          expect(at.getTime() % MINUTE).toBe(0);
          last = at;
        }
      }),
      { numRuns: 150 },
    );
  });

  it('the next cron time is the same from every earlier moment, and on every call', () => {
    fc.assert(
      fc.property(...anything, fc.double({ min: 0, max: 1, noNaN: true }), (text, zone, from, share) => {
        const cron = parseCron('here', text, zone);
        const at = cron.next(from)!;
        expect(cron.next(from)).toEqual(at);
        expect(parseCron('here', text, zone).next(from)).toEqual(at);
        // Nothing lies between: every moment on the way gives the same answer.
        const between = from.getTime() + Math.floor((at.getTime() - 1 - from.getTime()) * share);
        expect(cron.next(new Date(between))).toEqual(at);
        expect(cron.next(new Date(at.getTime() - 1))).toEqual(at);
      }),
      { numRuns: 150 },
    );
  });

  it('cron times equal those found by a scan of every minute, if no clock changes', () => {
    fc.assert(
      fc.property(texts, fc.constantFrom(...ZONES), quietDays, (text, zone, day) => {
        const cron = parseCron('here', text, zone);
        const matches = matcher(text, zone);
        const from = Date.parse(day);
        const scanned: number[] = [];
        for (let at = from; at < from + 3 * DAY; at += MINUTE) if (matches(at)) scanned.push(at);
        const found: number[] = [];
        let at = cron.next(new Date(from - 1));
        for (; at !== null && at.getTime() < from + 3 * DAY; at = cron.next(at)) found.push(at.getTime());
        expect(found).toEqual(scanned);
      }),
      { numRuns: 30 },
    );
  });
});

/** For three days from here no zone of the list changes its clocks. */
const quietDays = fc.constantFrom(
  '2025-01-14T00:00:00Z',
  '2025-02-27T12:00:00Z',
  '2025-04-29T00:00:00Z',
  '2025-06-30T00:00:00Z',
  '2024-02-28T00:00:00Z',
  '2025-12-31T00:00:00Z',
);

/** A reading of cron by its definition: each field of the wall clock is allowed; two day fields mean either. */
function matcher(text: string, zone: string): (instant: number) => boolean {
  const [minutes, hours, days, months, weekdays] = text.split(' ') as [
    string,
    string,
    string,
    string,
    string,
  ];
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone: zone,
    hourCycle: 'h23',
    weekday: 'short',
    month: 'numeric',
    day: 'numeric',
    hour: 'numeric',
    minute: 'numeric',
  });
  const names = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];
  const allows = {
    minute: allowed(minutes, 0, 59),
    hour: allowed(hours, 0, 23),
    day: allowed(days, 1, 31),
    month: allowed(months, 1, 12),
    weekday: allowed(weekdays, 0, 6),
  };
  const any = (field: string): boolean => field === '*' || field === '*/1';
  const either = !any(days) && !any(weekdays);
  return (instant) => {
    const at = Object.fromEntries(format.formatToParts(instant).map(({ type, value }) => [type, value]));
    const day = allows.day.has(Number(at['day']));
    const weekday = allows.weekday.has(names.indexOf(at['weekday']!));
    return (
      allows.minute.has(Number(at['minute'])) &&
      allows.hour.has(Number(at['hour'])) &&
      allows.month.has(Number(at['month'])) &&
      (either ? day || weekday : day && weekday)
    );
  };
}

function allowed(field: string, least: number, most: number): Set<number> {
  const all = Array.from({ length: most - least + 1 }, (_, index) => index + least);
  if (field === '*') return new Set(all);
  if (field.startsWith('*/')) return new Set(all.filter((n) => (n - least) % Number(field.slice(2)) === 0));
  const [from, to] = field.split('-').map(Number) as [number, number | undefined];
  return new Set(to === undefined ? field.split(',').map(Number) : all.filter((n) => n >= from && n <= to));
}
