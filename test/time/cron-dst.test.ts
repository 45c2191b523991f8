import { describe, expect, it } from 'vitest';
import { parseCron } from '../../src/time/cron.js';

/** Runs after `from` and before `to`. */
function runs(text: string, timezone: string, from: string, to: string): string[] {
  const cron = parseCron('here', text, timezone);
  const found: string[] = [];
  for (let at = cron.next(new Date(from)); at !== null && at < new Date(to); at = cron.next(at)) {
    found.push(at.toISOString().replace(':00.000Z', 'Z'));
  }
  return found;
}

interface Change {
  readonly zone: string;
  /** The instant of the change, and the wall clock around it. */
  readonly what: string;
  readonly from: string;
  readonly to: string;
}

/** Clocks go forward: from 02:00 to 03:00, and on Lord Howe Island from 02:00 to 02:30. */
const SPRING: Readonly<Record<string, Change>> = {
  prague: {
    zone: 'Europe/Prague',
    what: '2025-03-30T01:00Z',
    from: '2025-03-28T23:00:00Z',
    to: '2025-04-01T00:00:00Z',
  },
  newYork: {
    zone: 'America/New_York',
    what: '2025-03-09T07:00Z',
    from: '2025-03-08T05:00:00Z',
    to: '2025-03-10T12:00:00Z',
  },
  lordHowe: {
    zone: 'Australia/Lord_Howe',
    what: '2025-10-04T15:30Z',
    from: '2025-10-03T13:30:00Z',
    to: '2025-10-06T00:00:00Z',
  },
  // From 24:00 to 01:00: the first hour of a day is missing.
  santiago: {
    zone: 'America/Santiago',
    what: '2025-09-07T04:00Z',
    from: '2025-09-06T04:00:00Z',
    to: '2025-09-08T12:00:00Z',
  },
};

describe('local times that do not exist', () => {
  it.each([
    ['prague', '30 2 * * *', ['2025-03-29T01:30Z', '2025-03-30T01:00Z', '2025-03-31T00:30Z']],
    ['newYork', '30 2 * * *', ['2025-03-08T07:30Z', '2025-03-09T07:00Z', '2025-03-10T06:30Z']],
    ['lordHowe', '15 2 * * *', ['2025-10-03T15:45Z', '2025-10-04T15:30Z', '2025-10-05T15:15Z']],
    ['santiago', '30 0 * * *', ['2025-09-06T04:30Z', '2025-09-07T04:00Z', '2025-09-08T03:30Z']],
    ['santiago', '@daily', ['2025-09-07T04:00Z', '2025-09-08T03:00Z']],
  ])('a missing local time runs at the end of the gap (%s, %s)', (change, text, expected) => {
    const { zone, from, to } = SPRING[change]!;
    expect(runs(text, zone, from, to)).toEqual(expected);
  });

  it.each([
    ['prague', '0,15,30,45 2 * * *', '2025-03-30T01:00Z'],
    ['prague', '*/10 2 * * *', '2025-03-30T01:00Z'],
    ['newYork', '*/20 2 * * *', '2025-03-09T07:00Z'],
    ['lordHowe', '0,10,20 2 * * *', '2025-10-04T15:30Z'],
  ])('several local times in one gap run once, at its end (%s, %s)', (change, text, end) => {
    const { zone, what } = SPRING[change]!;
    const around = [new Date(Date.parse(what) - 3_600_000), new Date(Date.parse(what) + 1_800_000)] as const;
    expect(runs(text, zone, around[0].toISOString(), around[1].toISOString())).toEqual([end]);
  });

  it('a missing local time runs once if the end of the gap is a scheduled time itself', () => {
    expect(runs('30 2,3 * * *', 'Europe/Prague', '2025-03-30T00:00:00Z', '2025-03-30T03:00:00Z')).toEqual([
      '2025-03-30T01:00Z',
      '2025-03-30T01:30Z',
    ]);
    expect(runs('0 2,3 * * *', 'Europe/Prague', '2025-03-30T00:00:00Z', '2025-03-30T03:00:00Z')).toEqual([
      '2025-03-30T01:00Z',
    ]);
    expect(runs('0 */2 * * *', 'Europe/Prague', '2025-03-29T22:00:00Z', '2025-03-30T05:00:00Z')).toEqual([
      '2025-03-29T23:00Z',
      '2025-03-30T01:00Z',
      '2025-03-30T02:00Z',
      '2025-03-30T04:00Z',
    ]);
  });

  it('a missing local time with seconds runs once', () => {
    expect(runs('*/20 30 2 * * *', 'Europe/Prague', '2025-03-30T00:00:00Z', '2025-03-30T03:00:00Z')).toEqual([
      '2025-03-30T01:00Z',
    ]);
  });

  it('a missing day runs at the first moment after it', () => {
    expect(runs('0 3 * * *', 'Pacific/Apia', '2011-12-28T14:00:00Z', '2011-12-31T00:00:00Z')).toEqual([
      '2011-12-29T13:00Z',
      '2011-12-30T10:00Z',
      '2011-12-30T13:00Z',
    ]);
  });

  it('a missing local time runs once, whether asked from before the gap or from its end', () => {
    const cron = parseCron('here', '30 2 * * *', 'Europe/Prague');
    expect(cron.next(new Date('2025-03-30T00:59:59.999Z'))).toEqual(new Date('2025-03-30T01:00:00Z'));
    expect(cron.next(new Date('2025-03-30T01:00:00.000Z'))).toEqual(new Date('2025-03-31T00:30:00Z'));
  });

  it('a gap does not affect times outside of it', () => {
    expect(runs('30 1,3 * * *', 'Europe/Prague', '2025-03-30T00:00:00Z', '2025-03-30T12:00:00Z')).toEqual([
      '2025-03-30T00:30Z',
      '2025-03-30T01:30Z',
    ]);
  });
});

describe('local times that come twice', () => {
  it.each([
    // 03:00 -> 02:00 at 01:00Z
    [
      'Europe/Prague',
      '30 2 * * *',
      '2025-10-25T12:00:00Z',
      '2025-10-27T12:00:00Z',
      ['2025-10-26T00:30Z', '2025-10-27T01:30Z'],
    ],
    // 02:00 -> 01:00 at 06:00Z
    [
      'America/New_York',
      '30 1 * * *',
      '2025-11-01T12:00:00Z',
      '2025-11-03T12:00:00Z',
      ['2025-11-02T05:30Z', '2025-11-03T06:30Z'],
    ],
    // 02:00 -> 01:30 at 15:00Z
    [
      'Australia/Lord_Howe',
      '45 1 * * *',
      '2025-04-05T00:00:00Z',
      '2025-04-07T00:00:00Z',
      ['2025-04-05T14:45Z', '2025-04-06T15:15Z'],
    ],
    // 24:00 -> 23:00 at 03:00Z
    [
      'America/Santiago',
      '30 23 * * *',
      '2025-04-05T12:00:00Z',
      '2025-04-07T12:00:00Z',
      ['2025-04-06T02:30Z', '2025-04-07T03:30Z'],
    ],
  ])('a repeated local time runs once, the first time (%s)', (zone, text, from, to, expected) => {
    expect(runs(text, zone, from, to)).toEqual(expected);
  });

  it('each end of the repeated hour runs once', () => {
    expect(runs('0,59 2,3 * * *', 'Europe/Prague', '2025-10-25T12:00:00Z', '2025-10-26T12:00:00Z')).toEqual([
      '2025-10-26T00:00Z',
      '2025-10-26T00:59Z',
      '2025-10-26T02:00Z',
      '2025-10-26T02:59Z',
    ]);
  });

  it('a repeated local time does not run again when asked for between the two', () => {
    const cron = parseCron('here', '30 2 * * *', 'Europe/Prague');
    for (const moment of ['00:30:00.000', '00:59:59.999', '01:00:00.000', '01:15:00.000', '01:30:00.000']) {
      expect(cron.next(new Date(`2025-10-26T${moment}Z`))).toEqual(new Date('2025-10-27T01:30:00Z'));
    }
  });

  it('a repeated hour runs twice if its minutes are a step, which follows elapsed time', () => {
    expect(runs('*/20 2 * * *', 'Europe/Prague', '2025-10-25T12:00:00Z', '2025-10-26T12:00:00Z')).toEqual([
      '2025-10-26T00:00Z',
      '2025-10-26T00:20Z',
      '2025-10-26T00:40Z',
      '2025-10-26T01:00Z',
      '2025-10-26T01:20Z',
      '2025-10-26T01:40Z',
    ]);
  });
});

describe('expressions without an hour', () => {
  const CHANGES = [
    ['Europe/Prague', '2025-03-30T01:00:00Z'],
    ['Europe/Prague', '2025-10-26T01:00:00Z'],
    ['America/New_York', '2025-03-09T07:00:00Z'],
    ['America/New_York', '2025-11-02T06:00:00Z'],
    ['America/Santiago', '2025-09-07T04:00:00Z'],
    ['America/Santiago', '2025-04-06T03:00:00Z'],
    ['Australia/Lord_Howe', '2025-10-04T15:30:00Z'],
    ['Australia/Lord_Howe', '2025-04-05T15:00:00Z'],
  ] as const;

  const gapsAround = (text: string, zone: string, change: string): number[] => {
    const cron = parseCron('here', text, zone);
    const end = Date.parse(change) + 4 * 3_600_000;
    const gaps: number[] = [];
    let last = cron.next(new Date(Date.parse(change) - 4 * 3_600_000))!;
    for (let at = cron.next(last)!; at.getTime() < end; at = cron.next(at)!) {
      gaps.push((at.getTime() - last.getTime()) / 60_000);
      last = at;
    }
    return gaps;
  };

  it.each(CHANGES)('runs every 15 minutes through the clock change of %s at %s', (zone, change) => {
    expect(new Set(gapsAround('*/15 * * * *', zone, change))).toEqual(new Set([15]));
    expect(new Set(gapsAround('7-59/15 * * * *', zone, change))).toEqual(new Set([15]));
  });

  it.each(CHANGES)(
    'runs every minute and every 10 seconds through the clock change of %s at %s',
    (zone, change) => {
      expect(new Set(gapsAround('* * * * *', zone, change))).toEqual(new Set([1]));
      const cron = parseCron('here', '*/10 * * * * *', zone);
      let at = new Date(Date.parse(change) - 60_000);
      for (let step = 0; step < 12; step += 1) {
        const next = cron.next(at)!;
        expect(next.getTime() - at.getTime()).toBe(10_000);
        at = next;
      }
    },
  );

  it.each(CHANGES.filter(([zone]) => zone !== 'Australia/Lord_Howe'))(
    'runs every hour through the clock change of %s at %s',
    (zone, change) => {
      expect(new Set(gapsAround('5 * * * *', zone, change))).toEqual(new Set([60]));
      expect(new Set(gapsAround('@hourly', zone, change))).toEqual(new Set([60]));
      expect(new Set(gapsAround('30 */1 * * *', zone, change))).toEqual(new Set([60]));
      expect(new Set(gapsAround('30 ? * * *', zone, change))).toEqual(new Set([60]));
    },
  );

  it('keeps its minute through a clock change of half an hour, and never waits two hours', () => {
    for (const [zone, change] of CHANGES.filter(([name]) => name === 'Australia/Lord_Howe')) {
      for (const text of ['5 * * * *', '45 * * * *']) {
        for (const gap of gapsAround(text, zone, change)) expect([30, 60, 90]).toContain(gap);
      }
    }
  });
});

describe('expressions over a whole year', () => {
  it.each(['Europe/Prague', 'America/New_York', 'Australia/Lord_Howe', 'America/Santiago', 'Asia/Tehran'])(
    'a daily expression runs once on each of 365 days in %s',
    (zone) => {
      for (const text of [
        '30 0 * * *',
        '15 1 * * *',
        '45 1 * * *',
        '15 2 * * *',
        '30 2 * * *',
        '30 23 * * *',
      ]) {
        const cron = parseCron('here', text, zone);
        const day = new Intl.DateTimeFormat('en-CA', { timeZone: zone });
        const days: string[] = [];
        const end = new Date('2026-01-02T12:00:00Z');
        for (let at = cron.next(new Date('2025-01-02T12:00:00Z'))!; at <= end; at = cron.next(at)!) {
          days.push(day.format(at));
        }
        expect(days).toHaveLength(365);
        expect(new Set(days).size).toBe(365);
      }
    },
  );
});
