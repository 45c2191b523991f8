import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  fromStored,
  isStorable,
  mayBeMarked,
  readable,
  timeText,
  toStored,
} from '../../src/sql/connection/values.js';

const key = fc.oneof(
  fc.string(),
  fc.constantFrom('$date', '$$date', '$number', '$$$number', '__proto__', 'a'),
);
const { value } = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 5 },
    fc.oneof(
      fc.string(),
      fc.double({ noNaN: true, noDefaultInfinity: true }),
      fc.integer(),
      fc.boolean(),
      fc.constantFrom(null, -0),
      fc.date({ noInvalidDate: true }),
    ),
    fc.array(tie('value'), { maxLength: 4 }),
    fc.array(fc.tuple(key, tie('value')), { maxLength: 3 }).map((entries) => Object.fromEntries(entries)),
  ),
}));

describe('stored values', () => {
  it('any value survives the round trip through storage', () => {
    fc.assert(
      fc.property(value, (given) => {
        expect(fromStored(JSON.parse(JSON.stringify(toStored(given))))).toEqual(given);
      }),
      { numRuns: 500 },
    );
  });

  it('a stored text that mayBeMarked rules out parses to the same value', () => {
    fc.assert(
      fc.property(value, (given) => {
        const text = JSON.stringify(toStored(given));
        const parsed: unknown = JSON.parse(text);
        if (!mayBeMarked(text)) expect(parsed).toEqual(given);
      }),
    );
  });

  it('stores dates in a readable form', () => {
    expect(toStored({ at: new Date(0) })).toEqual({ at: { $date: '1970-01-01T00:00:00.000Z' } });
    expect(toStored({ $date: 1 })).toEqual({ $$date: 1 });
  });
});

describe('texts for PostgreSQL', () => {
  it('detects texts that PostgreSQL cannot hold, and makes them readable', () => {
    for (const text of ['a\0b', '\ud800', 'x\udc00y']) {
      expect(isStorable(text)).toBe(false);
      expect(isStorable(readable(text))).toBe(true);
    }
    expect(isStorable('👩‍👩‍👧 \u2028')).toBe(true);
    expect(readable('👩‍👩‍👧')).toBe('👩‍👩‍👧');
  });

  it('formats times with years as PostgreSQL writes them', () => {
    expect(timeText(new Date('2026-01-02T03:04:05.678Z'))).toBe('2026-01-02T03:04:05.678Z');
    expect(timeText(new Date('+012345-01-01T00:00:00Z'))).toBe('12345-01-01T00:00:00.000Z');
    expect(timeText(new Date('-000400-01-01T00:00:00Z'))).toBe('0001-01-01T00:00:00.000Z');
  });
});
