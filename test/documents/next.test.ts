import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Intervals, parseInterval } from '../../src/time/interval.js';
import { MISSED, type DocumentMissedPolicy } from '../../src/documents/options.js';
import { nextRun, type Plan } from '../../src/documents/run/next.js';
import { CATCH_UP_LIMIT } from '../../src/time/missed.js';

const MINUTE = 60_000;
const BASE = Date.parse('2026-01-01T00:00:00Z');

const crons = fc.constantFrom(
  '* * * * *',
  '*/7 * * * *',
  '30 2 * * *',
  '0 0 1 * *',
  '0 12 * * MON#2',
  '0 8 L * *',
  '*/10 * * * * *',
  '@every 90s',
  '@every 1h30m',
);
const zones = fc.constantFrom('UTC', 'Europe/Prague', 'America/New_York', 'Australia/Lord_Howe');
const instants = fc.integer({ min: BASE, max: BASE + 400 * 24 * 60 * MINUTE }).map((ms) => new Date(ms));

const plans = fc.record({
  text: crons,
  zone: zones,
  slot: instants,
  lateMs: fc.integer({ min: 0, max: 3 * 24 * 60 * MINUTE }),
  reprocessMs: fc.constantFrom(0, 1_000, 45 * MINUTE),
  untilMs: fc.option(fc.integer({ min: -60 * MINUTE, max: 4 * 24 * 60 * MINUTE }), { nil: undefined }),
});

function facts(given: typeof plans extends fc.Arbitrary<infer T> ? T : never, missed: DocumentMissedPolicy) {
  const interval = parseInterval('test', given.text, given.zone);
  const now = new Date(given.slot.getTime() + given.lateMs);
  const repeatUntil =
    given.untilMs === undefined ? undefined : new Date(given.slot.getTime() + given.untilMs);
  const plan: Plan = { interval, slot: given.slot, repeatUntil, missed, reprocessMs: given.reprocessMs };
  const from = new Date(given.slot.getTime() + given.reprocessMs);
  return { plan, now, repeatUntil, from, times: interval.from(given.slot), next: nextRun(plan, now) };
}

describe('nextRun', () => {
  it('nextRun returns a time of the schedule, after the current one and not after repeatUntil', () => {
    fc.assert(
      fc.property(plans, fc.constantFrom('once', 'skip', 'all'), (given, missed) => {
        const { next, from, times, repeatUntil } = facts(given, missed);
        if (next.at === null) return repeatUntil !== undefined;
        expect(next.at > from).toBe(true);
        expect(times.next(new Date(next.at.getTime() - 1))).toEqual(next.at);
        return repeatUntil === undefined || next.at <= repeatUntil;
      }),
    );
  });

  it('nextRun with once or skip returns the first scheduled time in the future', () => {
    fc.assert(
      fc.property(plans, fc.constantFrom('once', 'skip'), (given, missed) => {
        const { next, now, from, times, repeatUntil } = facts(given, missed);
        const first = times.next(new Date(Math.max(now.getTime(), from.getTime())));
        if (first === null || (repeatUntil !== undefined && first > repeatUntil)) return next.at === null;
        expect(next.at).toEqual(first);
        return first > now;
      }),
    );
  });

  it('nextRun with all returns the next time, unless more were missed than the catch-up limit', () => {
    fc.assert(
      fc.property(plans, (given) => {
        const { next, now, from, times, repeatUntil } = facts(given, 'all');
        if (next.at === null) return repeatUntil !== undefined;
        if (!next.dropped) {
          expect(next.at).toEqual(times.next(from));
          return true;
        }
        let missed = 1;
        for (let at = times.next(next.at); at !== null && at <= now; at = times.next(at)) {
          if (repeatUntil !== undefined && at > repeatUntil) break;
          missed += 1;
        }
        return missed === CATCH_UP_LIMIT;
      }),
      { numRuns: 50 },
    );
  });

  it('nextRun with seed follows the rule of the seed version', () => {
    fc.assert(
      fc.property(plans, (given) => {
        const { plan, next, now, from, repeatUntil } = facts(given, 'seed');
        const first = plan.interval.from(from).next(from);
        const ended = first === null || (repeatUntil !== undefined && first > repeatUntil);
        expect(next.at).toEqual(ended ? null : first < now ? now : first);
      }),
    );
  });

  it('nextRun returns the same time for every missed policy if nothing was missed', () => {
    fc.assert(
      fc.property(plans, (given) => {
        const onTime = { ...given, lateMs: 0, reprocessMs: 0 };
        const answers = MISSED.map((missed) => facts(onTime, missed).next.at?.getTime());
        expect(new Set(answers).size).toBe(1);
      }),
    );
  });

  it('nextRun keeps @every intervals aligned to the first run, however long a run takes', () => {
    fc.assert(
      fc.property(instants, fc.integer({ min: 0, max: 10_000_000 }), (slot, tookMs) => {
        const interval = parseInterval('test', '@every 1h30m', 'UTC');
        const plan = { interval, slot, missed: 'once', reprocessMs: 0 } as const;
        const { at } = nextRun(plan, new Date(slot.getTime() + tookMs));
        return (at!.getTime() - slot.getTime()) % (90 * MINUTE) === 0;
      }),
    );
  });
});

describe('intervals of documents', () => {
  const first = (text: string, zone = 'UTC', after = '2026-03-02T12:00:00Z'): string | undefined =>
    parseInterval('test', text, zone).from(new Date(after)).next(new Date(after))?.toISOString();

  it.each([
    ['five fields', '5 13 * * *', '2026-03-02T13:05:00.000Z'],
    ['six fields', '15 5 13 * * *', '2026-03-02T13:05:15.000Z'],
    ['a name', '@hourly', '2026-03-02T13:00:00.000Z'],
    ['a name in capitals', '@DAILY', '2026-03-03T00:00:00.000Z'],
    ['a distance', '@every 1h30m', '2026-03-02T13:30:00.000Z'],
    ['a distance with a space in it', '@every 1h 30m', '2026-03-02T13:30:00.000Z'],
    ['a zone', 'CRON_TZ=Asia/Tokyo 0 3 * * *', '2026-03-02T18:00:00.000Z'],
    ['a zone by its short name', 'TZ=Asia/Tokyo @daily', '2026-03-02T15:00:00.000Z'],
    ['the last day of the month', '0 0 L * *', '2026-03-31T00:00:00.000Z'],
    ['the third Friday', '0 9 * * FRI#3', '2026-03-20T09:00:00.000Z'],
    ['the last Friday', '0 9 * * 5L', '2026-03-27T09:00:00.000Z'],
    ['spaces around it', '  0 13 * * *  ', '2026-03-02T13:00:00.000Z'],
  ])('parses an interval with %s', (_what, text, next) => {
    expect(first(text)).toBe(next);
  });

  it.each([
    '',
    '* * *',
    '* * * *',
    '* * * * * * *',
    '61 * * * *',
    '@every',
    '@every 0s',
    '@every -1h',
    'TZ= * * * * *',
  ])('rejects the interval %j', (text) => {
    expect(() => parseInterval('test', text, 'UTC')).toThrow('test: ');
  });

  it('parses each combination of interval and zone once', () => {
    const intervals = new Intervals();
    expect(intervals.read('a', '@daily', 'UTC')).toBe(intervals.read('b', '@daily', 'UTC'));
    expect(intervals.read('a', '@daily', 'UTC')).not.toBe(intervals.read('a', '@daily', 'Europe/Prague'));
  });
});

describe('intervals across clock changes', () => {
  /** The runs of a document in Prague, one after the other, from an instant on. */
  function runs(text: string, from: string, count: number): string[] {
    const interval = parseInterval('test', text, 'Europe/Prague');
    const found: string[] = [];
    let slot = new Date(from);
    while (found.length < count) {
      slot = nextRun({ interval, slot, missed: 'once', reprocessMs: 0 }, slot).at!;
      found.push(slot.toISOString().slice(5, 16));
    }
    return found;
  }

  it('a time skipped by a clock change runs once, at the end of the gap', () => {
    expect(runs('30 2 * * *', '2026-03-28T12:00:00Z', 2)).toEqual(['03-29T01:00', '03-30T00:30']);
  });

  it('a time repeated by a clock change runs once, the first time', () => {
    expect(runs('30 2 * * *', '2026-10-24T12:00:00Z', 2)).toEqual(['10-25T00:30', '10-26T01:30']);
  });

  it('half-hourly intervals follow elapsed time across clock changes', () => {
    for (const day of ['03-29', '10-25']) {
      const expected = ['00:00', '00:30', '01:00', '01:30', '02:00'].map((time) => `${day}T${time}`);
      for (const text of ['*/30 * * * *', '@every 30m'])
        expect(runs(text, `2026-${day === '03-29' ? '03-28' : '10-24'}T23:30:00Z`, 5)).toEqual(expected);
    }
  });
});
