import { describe, expect, it } from 'vitest';
import { axisWidth } from '../../dashboard/src/ui/axis-width.js';
import { duration, inZone, many, relative } from '../../dashboard/src/format.js';

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

describe('formats of the dashboard', () => {
  it.each([
    [0, '0 ms'],
    [850.4, '850 ms'],
    [999.7, '1000 ms'],
    [4_200, '4.2 s'],
    [5_000, '5 s'],
    [59_400, '59 s'],
    [59_600, '1 min'],
    [200 * SECOND, '3 min 20 s'],
    [59 * MINUTE + 59.8 * SECOND, '1 h'],
    [125 * MINUTE, '2 h 5 min'],
    [6 * DAY + 4 * HOUR, '6 d 4 h'],
  ])('formats a duration of %d ms as %s', (ms, text) => {
    expect(duration(ms)).toBe(text);
  });

  it.each([
    [0, 'just now'],
    [20 * SECOND, '20 s ago'],
    [-3 * MINUTE, 'in 3 min'],
    [5 * HOUR, '5 h ago'],
    [-40 * DAY, 'in 40 d'],
  ])('formats a time %d ms ago as %s', (ago, text) => {
    const now = Date.parse('2026-01-01T12:00:00Z');
    expect(relative(now - ago, now)).toBe(text);
  });

  it('formats a time in its own zone, and in UTC if the zone is unknown', () => {
    expect(inZone('2026-07-01T12:00:00Z', 'Europe/Prague')).toContain('14:00');
    expect(inZone('2026-07-01T12:00:00Z', 'Nowhere/Else')).toMatch(/12:00.* UTC$/u);
  });

  it('formats counts with the singular or plural of their noun', () => {
    expect([many(1, 'job'), many(1200, 'job'), many(2, 'entry', 'entries')]).toEqual([
      '1 job',
      '1,200 jobs',
      '2 entries',
    ]);
  });
});

it('an axis is as wide as its longest label needs', () => {
  const widthOf = (label: string): number => label.length * 6;
  expect(axisWidth([], widthOf)).toBe(54);
  expect(axisWidth(['0 ms', '500 ms'], widthOf)).toBe(54);
  expect(axisWidth(['0 ms', '16 min 40 s'], widthOf)).toBe(80);
});
