import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { OptionError } from '../../src/core/errors.js';
import { toInstant, toMs } from '../../src/time/duration.js';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const UNITS = { ms: 1, s: SECOND, m: MINUTE, h: HOUR, d: DAY, w: 7 * DAY } as const;

const ms = (value: unknown, min?: number): number => toMs('here', 'delay', value, min);

describe('durations', () => {
  it.each([
    [0, 0],
    [1_500, 1_500],
    ['0s', 0],
    ['250ms', 250],
    ['90s', 90 * SECOND],
    ['1h30m', 90 * MINUTE],
    ['1h 30m', 90 * MINUTE],
    [' 5 m ', 5 * MINUTE],
    ['1.5h', 90 * MINUTE],
    ['7 days', 7 * DAY],
    ['1 day', DAY],
    ['2w', 14 * DAY],
    ['1 week', 7 * DAY],
    ['10 minutes', 10 * MINUTE],
    ['3 hrs', 3 * HOUR],
    ['45 sec', 45 * SECOND],
    ['1H30M', 90 * MINUTE],
  ])('reads %j as %i ms', (text, expected) => {
    expect(ms(text)).toBe(expected);
  });

  it.each([
    '',
    '   ',
    '5',
    'soon',
    's',
    '-5s',
    '5 parsecs',
    '5s later',
    '1h-30m',
    '1e3s',
    '1,5h',
    '5 months',
    'PT1H',
    -1,
    Number.NaN,
    Infinity,
    null,
    undefined,
    true,
    5n,
    {},
    ['5s'],
    new Date(0),
  ])('rejects %s as a duration', (value) => {
    expect(() => ms(value)).toThrow(OptionError);
    expect(() => ms(value)).toThrow(/^here: delay must be a duration/);
  });

  it('names the minimum when it rejects a shorter duration', () => {
    expect(ms(500, 500)).toBe(500);
    expect(() => ms(499, 500)).toThrow('here: delay must be a duration of at least 500 ms');
    expect(() => ms('0s', 1)).toThrow('of at least 1 ms');
  });

  it('rejects a duration so long that no date could hold its end', () => {
    expect(() => ms(1e300)).toThrow(OptionError);
    expect(() => ms(`${'9'.repeat(40)}d`)).toThrow(OptionError);
    expect(ms('100000d')).toBe(100_000 * DAY);
  });

  it('reads any whole number of each unit exactly', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 10_000 }), fc.constantFrom(...unitNames()), (count, unit) => {
        expect(ms(`${String(count)}${unit}`)).toBe(count * UNITS[unit]);
        expect(ms(count * UNITS[unit])).toBe(count * UNITS[unit]);
      }),
    );
  });

  it('adds up the parts of a duration text', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 400 * DAY }), fc.constantFrom('', ' '), (total, space) => {
        expect(ms(written(total, space))).toBe(total);
      }),
    );
  });

  it('toInstant returns a date unchanged, and adds a duration to now', () => {
    const at = new Date('2025-03-01T12:00:00Z');
    expect(toInstant('here', 'when', at, 0)).toBe(at);
    expect(toInstant('here', 'when', '1h', at.getTime())).toEqual(new Date('2025-03-01T13:00:00Z'));
    expect(toInstant('here', 'when', 1, at.getTime())).toEqual(new Date(at.getTime() + 1));
    expect(() => toInstant('here', 'when', new Date(Number.NaN), 0)).toThrow(
      'here: when must be a valid Date or a duration, got an invalid Date.',
    );
    expect(() => toInstant('here', 'when', 'tomorrow', 0)).toThrow(/^here: when must be a duration/);
  });
});

function unitNames(): (keyof typeof UNITS)[] {
  return Object.keys(UNITS) as (keyof typeof UNITS)[];
}

/** 90061001 -> '1d1h1m1s1ms' */
function written(total: number, space: string): string {
  let left = total;
  const parts = (['d', 'h', 'm', 's', 'ms'] as const).map((unit) => {
    const count = Math.floor(left / UNITS[unit]);
    left -= count * UNITS[unit];
    return `${String(count)}${unit}`;
  });
  return parts.join(space);
}
