import { describe, expect, it } from 'vitest';
import { parseCron } from '../../src/time/cron.js';
import { CATCH_UP_LIMIT, isTooLate, runAfter } from '../../src/time/missed.js';
import { preview, slotAfter, type Recurrence } from '../../src/time/recurrence.js';

const at = (time: string): Date => new Date(`2025-05-05T${time}Z`);

const hourly = (given: Partial<Recurrence> = {}): Recurrence => ({
  cron: parseCron('here', '0 * * * *'),
  missed: 'once',
  ...given,
});

describe('runs that last past the next time', () => {
  it('a scheduled run that lasted past the next times covers them', () => {
    expect(runAfter(hourly(), at('10:00:00'), at('12:30:00')).at).toEqual(at('13:00:00'));
  });

  it('a manual run that lasted past the next time does not cover it', () => {
    expect(runAfter(hourly(), at('09:59:00'), at('12:30:00')).at).toEqual(at('10:00:00'));
    expect(runAfter(hourly({ missed: 'skip' }), at('09:59:00'), at('12:30:00')).at).toEqual(at('10:00:00'));
    expect(runAfter(hourly(), at('09:58:00'), at('09:59:00')).at).toEqual(at('10:00:00'));
  });
});

describe('slots of a schedule', () => {
  it('slots begin with startAt, inclusive', () => {
    expect(slotAfter(hourly({ startAt: at('10:00:00') }), at('06:30:00'))).toEqual(at('10:00:00'));
    expect(slotAfter(hourly({ startAt: at('10:00:00.001') }), at('06:30:00'))).toEqual(at('11:00:00'));
    expect(slotAfter(hourly({ startAt: at('09:30:00') }), at('06:30:00'))).toEqual(at('10:00:00'));
  });

  it('slots continue as usual once startAt has passed', () => {
    const recurrence = hourly({ startAt: at('10:00:00') });
    expect(slotAfter(recurrence, at('10:00:00'))).toEqual(at('11:00:00'));
    expect(slotAfter(recurrence, at('12:15:00'))).toEqual(at('13:00:00'));
  });

  it('slots end with repeatUntil, inclusive', () => {
    const recurrence = hourly({ repeatUntil: at('10:00:00') });
    expect(slotAfter(recurrence, at('09:30:00'))).toEqual(at('10:00:00'));
    expect(slotAfter(recurrence, at('10:00:00'))).toBeNull();
    expect(slotAfter(hourly({ repeatUntil: at('09:59:59.999') }), at('09:30:00'))).toBeNull();
  });

  it('there is a single slot if startAt equals repeatUntil', () => {
    const recurrence = hourly({ startAt: at('10:00:00'), repeatUntil: at('10:00:00') });
    expect(preview(recurrence, at('06:00:00'), 5)).toEqual([at('10:00:00')]);
  });

  it('there is no slot if startAt is after repeatUntil', () => {
    const recurrence = hourly({ startAt: at('11:00:00'), repeatUntil: at('10:00:00') });
    expect(slotAfter(recurrence, at('06:00:00'))).toBeNull();
  });

  it('preview returns at most the slots that are left', () => {
    const recurrence = hourly({ repeatUntil: at('12:00:00') });
    expect(preview(recurrence, at('10:00:00'), 1)).toEqual([at('11:00:00')]);
    expect(preview(recurrence, at('10:00:00'), 9)).toEqual([at('11:00:00'), at('12:00:00')]);
  });
});

describe('after a run that was on time', () => {
  it.each(['once', 'skip', 'all'] as const)('the next slot follows a run that was on time (%s)', (missed) => {
    expect(runAfter(hourly({ missed }), at('10:00:00'), at('10:05:00'))).toEqual({
      at: at('11:00:00'),
      dropped: false,
    });
  });

  it.each(['once', 'skip', 'all'] as const)(
    'the same slot never comes again, even if the clock is behind it (%s)',
    (missed) => {
      expect(runAfter(hourly({ missed }), at('10:00:00'), at('09:59:59.990')).at).toEqual(at('11:00:00'));
    },
  );

  it.each(['once', 'skip', 'all'] as const)('nothing follows the last slot (%s)', (missed) => {
    const recurrence = hourly({ missed, repeatUntil: at('10:00:00') });
    expect(runAfter(recurrence, at('10:00:00'), at('10:00:01')).at).toBeNull();
  });
});

describe('after missed slots', () => {
  it('missed "once" continues with the first slot after now', () => {
    expect(runAfter(hourly(), at('10:00:00'), at('15:30:00'))).toEqual({
      at: at('16:00:00'),
      dropped: false,
    });
  });

  it('missed "once" ends if repeatUntil has passed meanwhile', () => {
    const recurrence = hourly({ repeatUntil: at('12:00:00') });
    expect(runAfter(recurrence, at('10:00:00'), at('15:30:00')).at).toBeNull();
  });

  it('missed "skip" continues with the first slot after now', () => {
    expect(runAfter(hourly({ missed: 'skip' }), at('10:00:00'), at('15:30:00')).at).toEqual(at('16:00:00'));
  });

  it('missed "skip" treats a run as too late after a minute, or when the next one is due', () => {
    const recurrence = hourly({ missed: 'skip' });
    expect(isTooLate(recurrence, at('10:00:00'), at('10:00:00'))).toBe(false);
    expect(isTooLate(recurrence, at('10:00:00'), at('10:01:00'))).toBe(false);
    expect(isTooLate(recurrence, at('10:00:00'), at('10:01:00.001'))).toBe(true);
    const often = { ...recurrence, cron: parseCron('here', '*/10 * * * * *') };
    expect(isTooLate(often, at('10:00:00'), at('10:00:09.999'))).toBe(false);
    expect(isTooLate(often, at('10:00:00'), at('10:00:10'))).toBe(true);
  });

  it('missed "skip" allows for the delay of a poll, and for a turn that had to be waited for', () => {
    const recurrence = hourly({ missed: 'skip' });
    const slow = { delayMs: 300_000 };
    expect(isTooLate(recurrence, at('10:00:00'), at('10:05:00'), slow)).toBe(false);
    expect(isTooLate(recurrence, at('10:00:00'), at('10:06:00'), slow)).toBe(false);
    expect(isTooLate(recurrence, at('10:00:00'), at('10:06:00.001'), slow)).toBe(true);
    const often = { ...recurrence, cron: parseCron('here', '* * * * *') };
    expect(isTooLate(often, at('10:00:00'), at('10:04:00'), slow)).toBe(false);
    const attentive = { delayMs: 0, since: at('09:00:00').getTime() };
    expect(isTooLate(recurrence, at('10:00:00'), at('10:59:59'), attentive)).toBe(false);
    expect(isTooLate(recurrence, at('10:00:00'), at('11:00:00'), attentive)).toBe(true);
    expect(isTooLate(recurrence, at('08:00:00'), at('08:59:59'), attentive)).toBe(true);
  });

  it.each(['once', 'all'] as const)('missed "%s" never treats a run as too late', (missed) => {
    expect(isTooLate(hourly({ missed }), at('10:00:00'), at('23:00:00'))).toBe(false);
  });

  it('missed "all" catches up slot by slot, and then continues', () => {
    const recurrence = hourly({ missed: 'all' });
    const made: Date[] = [];
    for (let slot = at('10:00:00'), step = 0; step < 5; step += 1) {
      const { at: next, dropped } = runAfter(recurrence, slot, at('13:30:00'));
      expect(dropped).toBe(false);
      made.push(next!);
      slot = next!;
    }
    expect(made).toEqual(['11:00', '12:00', '13:00', '14:00', '15:00'].map((time) => at(`${time}:00`)));
  });

  it('missed "all" catches up a slot that is due right now', () => {
    expect(runAfter(hourly({ missed: 'all' }), at('10:00:00'), at('11:00:00')).at).toEqual(at('11:00:00'));
  });

  it('missed "all" stops at repeatUntil', () => {
    const recurrence = hourly({ missed: 'all', repeatUntil: at('12:00:00') });
    expect(runAfter(recurrence, at('11:00:00'), at('20:00:00')).at).toEqual(at('12:00:00'));
    expect(runAfter(recurrence, at('12:00:00'), at('20:00:00')).at).toBeNull();
  });

  it('missed "all" catches up the last 100 slots, and reports that it dropped others', () => {
    const recurrence = { cron: parseCron('here', '* * * * *'), missed: 'all' } as const;
    expect(CATCH_UP_LIMIT).toBe(100);
    // 10:01 to 13:00: 180 times.
    const first = runAfter(recurrence, at('10:00:00'), at('13:00:00'));
    expect(first).toEqual({ at: at('11:21:00'), dropped: true });
    let runs = 0;
    for (let slot = first.at; slot !== null && slot <= at('13:00:00'); runs += 1) {
      const next = runAfter(recurrence, slot, at('13:00:00'));
      expect(next.dropped).toBe(false);
      slot = next.at;
    }
    expect(runs).toBe(100);
    // Exactly a hundred: none is dropped.
    expect(runAfter(recurrence, at('10:00:00'), at('11:40:00'))).toEqual({
      at: at('10:01:00'),
      dropped: false,
    });
  });

  it('missed "all" finds its place after a year of minutes without visiting each', () => {
    const cron = parseCron('here', '* * * * *');
    let asked = 0;
    const counting = { ...cron, next: (after: Date) => ((asked += 1), cron.next(after)) };
    const { at: next } = runAfter({ cron: counting, missed: 'all' }, at('10:00:00'), aYearLater);
    expect(next).toEqual(new Date('2026-05-05T08:21:00Z'));
    expect(asked).toBeLessThan(5_000);
  });
});

const aYearLater = new Date('2026-05-05T10:00:00Z');
