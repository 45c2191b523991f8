import { describe, expect, it, vi } from 'vitest';
import type { Logger } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';
import { virtualClock } from '../../src/testing/index.js';
import { aMill, gate } from '../support/mills.js';

/** A mill at the beginning of a year; a long lease makes a month of virtual time cheap. */
function aYear(options: Parameters<typeof aMill>[1] = {}, start = '2025-01-01T00:00:00Z') {
  const clock = virtualClock(start);
  const store = memory({ clock });
  const mill = aMill(store, { leaseDuration: '1d', ...options });
  const runs: string[] = [];
  const note = (): void => void runs.push(new Date(clock.now()).toISOString().slice(0, 16));
  return { clock, store, mill, runs, note };
}

describe('schedules', () => {
  it('a schedule runs exactly at each of its times for thirty days', async () => {
    const { clock, mill, runs, note } = aYear();
    const type = mill.job('hourly', note);
    await mill.start();
    await type.schedule('0 * * * *', {});
    await clock.advance('30d');
    const expected = Array.from({ length: 720 }, (_, hour) =>
      new Date(Date.UTC(2025, 0, 1, hour + 1)).toISOString().slice(0, 16),
    );
    expect(runs).toEqual(expected);
    expect(await mill.jobs.count()).toBe(1);
    expect(await mill.schedules.get('hourly')).toMatchObject({
      status: 'pending',
      failCount: 0,
      nextRunAt: new Date('2025-01-31T01:00:00Z'),
    });
  });

  it('a schedule follows the wall clock of its zone through both clock changes', async () => {
    const { clock, mill, runs, note } = aYear({}, '2025-03-28T12:00:00Z');
    const type = mill.job('nightly', note);
    await mill.start();
    await type.schedule('30 2 * * *', {}, { timezone: 'Europe/Prague' });
    await clock.advance('3d');
    expect(runs).toEqual(['2025-03-29T01:30', '2025-03-30T01:00', '2025-03-31T00:30']);
    const autumn = aYear({}, '2025-10-25T12:00:00Z');
    const other = autumn.mill.job('nightly', autumn.note);
    await autumn.mill.start();
    await other.schedule('30 2 * * *', {}, { timezone: 'Europe/Prague' });
    await autumn.clock.advance('2d');
    expect(autumn.runs).toEqual(['2025-10-26T00:30', '2025-10-27T01:30']);
  });

  it('a schedule begins with startAt and ends with repeatUntil, both inclusive', async () => {
    const { clock, mill, runs, note } = aYear();
    const type = mill.job('some', note);
    await mill.start();
    const startAt = new Date('2025-01-03T00:00:00Z');
    const repeatUntil = new Date('2025-01-05T00:00:00Z');
    await type.schedule('@daily', {}, { startAt, repeatUntil });
    await clock.advance('10d');
    expect(runs).toEqual(['2025-01-03T00:00', '2025-01-04T00:00', '2025-01-05T00:00']);
    expect(await mill.schedules.get('some')).toMatchObject({ status: 'completed', nextRunAt: null });
  });

  it('scheduling the same job again updates its one schedule', async () => {
    const { clock, mill, runs, note } = aYear();
    const data: unknown[] = [];
    const type = mill.job('daily', (job) => {
      note();
      data.push(job.data);
    });
    await mill.start();
    await Promise.all(Array.from({ length: 10 }, () => type.schedule('@daily', { v: 1 })));
    expect(await mill.schedules.list()).toHaveLength(1);
    await clock.advance('1d');
    await type.schedule('0 12 * * *', { v: 2 });
    await clock.advance('1d');
    expect(runs).toEqual(['2025-01-02T00:00', '2025-01-02T12:00']);
    expect(data).toEqual([{ v: 1 }, { v: 2 }]);
  });

  it('schedules of the same name can have several keys', async () => {
    const { clock, mill, runs, note } = aYear();
    mill.job('report', note);
    await mill.start();
    await mill.schedule('0 6 * * *', 'report', {}, { uniqueKey: 'morning' });
    await mill.schedule('0 18 * * *', 'report', {}, { uniqueKey: 'evening' });
    expect((await mill.schedules.list('report')).map(({ uniqueKey }) => uniqueKey)).toEqual([
      'evening',
      'morning',
    ]);
    await clock.advance('1d');
    expect(runs).toEqual(['2025-01-01T06:00', '2025-01-01T18:00']);
    expect(await mill.schedules.remove('report', 'evening')).toBe(true);
    expect(await mill.schedules.remove('report', 'evening')).toBe(false);
    await clock.advance('1d');
    expect(runs).toHaveLength(3);
  });

  it('a handler gets the scheduled time of its run, also on a retry', async () => {
    const { clock, mill } = aYear();
    const seen: unknown[] = [];
    const type = mill.job('a', (job) => {
      seen.push([job.scheduledFor, job.attempt]);
      if (job.attempt === 1) throw new Error('once');
    });
    await mill.start();
    await type.schedule('@hourly', {});
    await clock.advance('1h5m');
    const slot = new Date('2025-01-01T01:00:00Z');
    expect(seen).toEqual([
      [slot, 1],
      [slot, 2],
    ]);
  });

  it('a schedule never runs twice at once, and continues with the next time after a long run', async () => {
    const { clock, mill, runs, note } = aYear();
    const end = gate();
    const type = mill.job('slow', async () => {
      note();
      if (runs.length === 1) await end.promise;
    });
    await mill.start();
    await type.schedule('@hourly', {});
    await clock.advance('3h30m');
    expect(runs).toEqual(['2025-01-01T01:00']);
    end.open();
    await clock.advance('1h');
    expect(runs).toEqual(['2025-01-01T01:00', '2025-01-01T04:00']);
  });

  it('a schedule continues after a run that used up its retries, and keeps that run as a failed job', async () => {
    const { clock, mill, runs, note } = aYear();
    const type = mill.job('flaky', { retryPolicy: { type: 'fixed', interval: '1m', maxAttempts: 2 } }, () => {
      note();
      if (runs.length <= 2) throw new Error(`no ${String(runs.length)}`);
      return 'fine';
    });
    await mill.start();
    const { id } = await type.schedule('@hourly', { kind: 'x' });
    await clock.advance('2h30m');
    expect(runs).toEqual(['2025-01-01T01:00', '2025-01-01T01:01', '2025-01-01T02:00']);
    const failed = await mill.jobs.find({ status: 'failed' });
    expect(failed.items).toHaveLength(1);
    expect(failed.items[0]).toMatchObject({
      name: 'flaky',
      data: { kind: 'x' },
      failCount: 2,
      failReason: 'no 2',
      scheduleId: id,
      scheduledFor: new Date('2025-01-01T01:00:00Z'),
    });
    expect(await mill.schedules.get('flaky')).toMatchObject({ status: 'pending', failCount: 0 });
  });

  it('a schedule can be paused and resumed, without catching up', async () => {
    const { clock, mill, runs, note } = aYear();
    const type = mill.job('a', note);
    await mill.start();
    await type.schedule('@hourly', {});
    await clock.advance('1h');
    expect(await mill.schedules.pause('a')).toMatchObject({ paused: true, nextRunAt: null });
    await clock.advance('5h30m');
    expect(runs).toHaveLength(1);
    expect(await mill.schedules.resume('a')).toMatchObject({
      paused: false,
      nextRunAt: new Date('2025-01-01T07:00:00Z'),
    });
    await clock.advance('1h');
    expect(runs).toEqual(['2025-01-01T01:00', '2025-01-01T07:00']);
  });

  it('a schedule resumed after its repeatUntil rejects and does not run again', async () => {
    const { clock, mill, runs, note } = aYear();
    const type = mill.job('a', note);
    await mill.start();
    await type.schedule('@hourly', {}, { repeatUntil: new Date('2025-01-01T03:00:00Z') });
    await clock.advance('1h');
    await mill.schedules.pause('a');
    await clock.advance('5h');
    await expect(mill.schedules.resume('a')).rejects.toMatchObject({ code: 'SCHEDULE_ENDED' });
    await clock.advance('5h');
    expect(runs).toEqual(['2025-01-01T01:00']);
  });

  it('runNow runs a schedule at once without losing its regular times', async () => {
    const { clock, mill, runs, note } = aYear();
    const type = mill.job('a', note);
    await mill.start();
    await type.schedule('@daily', {});
    await clock.advance('5h');
    expect((await mill.schedules.runNow('a')).outcome).toBe('due');
    await clock.advance('20h');
    expect(runs).toEqual(['2025-01-01T05:00', '2025-01-02T00:00']);
  });

  it.each(['once', 'all'] as const)(
    'a schedule still runs its regular time after a manual run that lasted past it (%s)',
    async (missed) => {
      const { clock, mill, runs, note } = aYear();
      const type = mill.job('a', async () => {
        note();
        await new Promise<void>((resolve) => clock.timer(2 * 3_600_000, resolve));
      });
      await mill.start();
      await type.schedule('0 3 * * *', {}, { missed });
      await clock.advance('2h');
      await mill.schedules.runNow('a');
      await clock.advance('30h');
      expect(runs).toEqual(['2025-01-01T02:00', '2025-01-01T04:00', '2025-01-02T03:00']);
    },
  );

  it.each([
    ['succeeds', 1],
    ['fails for good', 2],
  ])(
    'a schedule still runs its regular time after a manual run whose retry %s after it',
    async (_end, failures) => {
      const { clock, mill, runs, note } = aYear();
      const retryPolicy = { type: 'fixed', interval: '70m', maxAttempts: 2 } as const;
      const type = mill.job('a', { retryPolicy }, () => {
        note();
        if (runs.length <= failures) throw new Error('not yet');
      });
      await mill.start();
      await type.schedule('0 3 * * *', {});
      await clock.advance('2h');
      await mill.schedules.runNow('a');
      await clock.advance('30h');
      expect(runs).toEqual(['2025-01-01T02:00', '2025-01-01T03:10', '2025-01-01T03:10', '2025-01-02T03:00']);
    },
  );

  it('a manual run that starts late covers the scheduled times that passed before', async () => {
    const { clock, mill, runs, note } = aYear();
    const type = mill.job('a', note);
    await type.schedule('@hourly', {});
    await clock.advance('30m');
    await mill.schedules.runNow('a');
    await clock.advance('4h 40m');
    await mill.start();
    await clock.advance('1h');
    expect(runs).toEqual(['2025-01-01T05:10', '2025-01-01T06:00']);
  });

  it('schedules.next previews the next runs of one or all schedules', async () => {
    const { mill } = aYear();
    await mill.schedule('0 12 * * *', 'noon', {});
    await mill.schedule('0 0 * * *', 'night', {});
    expect(await mill.schedules.next('noon', 2)).toEqual([
      new Date('2025-01-01T12:00:00Z'),
      new Date('2025-01-02T12:00:00Z'),
    ]);
    expect((await mill.schedules.next(3)).map(({ name, at }) => `${name} ${at.toISOString()}`)).toEqual([
      'noon 2025-01-01T12:00:00.000Z',
      'night 2025-01-02T00:00:00.000Z',
      'noon 2025-01-02T12:00:00.000Z',
    ]);
    await expect(mill.schedules.next('nobody')).rejects.toMatchObject({ code: 'SCHEDULE_MISSING' });
  });
});

describe('a schedule by distance', () => {
  it.each(['@every 90s', '@EVERY 1m 30s', { every: '90s' }, { every: 90_000 }] as const)(
    '%j runs every 90 seconds, and its times can be previewed',
    async (when) => {
      const clock = virtualClock('2025-01-01T00:00:00Z');
      const mill = aMill(memory({ clock }));
      const runs: string[] = [];
      const type = mill.job('a', () => void runs.push(new Date(clock.now()).toISOString().slice(11, 19)));
      await mill.start();
      await type.schedule(when, {});
      await clock.advance('5m');
      expect(runs).toEqual(['00:01:30', '00:03:00', '00:04:30']);
      expect(await mill.schedules.next('a', 2)).toEqual([
        new Date('2025-01-01T00:06:00Z'),
        new Date('2025-01-01T00:07:30Z'),
      ]);
      expect((await mill.schedules.list('a', { runs: 1 }))[0]?.runs).toEqual([
        new Date('2025-01-01T00:06:00Z'),
      ]);
      expect((await mill.schedules.get('a'))?.cron).toMatch(/^@every /iu);
    },
  );

  it('counts from startAt, which is its first run, and ends with repeatUntil', async () => {
    const { clock, mill, runs, note } = aYear();
    const type = mill.job('a', note);
    await mill.start();
    const startAt = new Date('2025-01-01T00:07:00Z');
    await type.schedule('@every 1h', {}, { startAt, repeatUntil: new Date('2025-01-01T02:07:00Z') });
    await clock.advance('1d');
    expect(runs).toEqual(['2025-01-01T00:07', '2025-01-01T01:07', '2025-01-01T02:07']);
    expect(await mill.schedules.get('a')).toMatchObject({ status: 'completed', nextRunAt: null });
  });

  it('is not postponed by further calls, nor shifted by a run by hand, a pause or a change of clocks', async () => {
    const { clock, mill, runs, note } = aYear({}, '2025-03-30T00:10:00Z');
    const type = mill.job('a', note);
    await mill.start();
    for (let call = 0; call < 3; call += 1) {
      await type.schedule('@every 30m', { call }, { timezone: 'Europe/Prague' });
      await clock.advance('9m');
    }
    expect(runs).toEqual(['2025-03-30T00:30']);
    await mill.schedules.runNow('a');
    await clock.advance('30m');
    await mill.schedules.pause('a');
    await clock.advance('1h');
    await mill.schedules.resume('a');
    await clock.advance('30m');
    expect(runs.slice(1)).toEqual(['2025-03-30T00:37', '2025-03-30T01:00', '2025-03-30T02:30']);
  });

  it('is retried and goes on after a failed run', async () => {
    const { clock, mill } = aYear();
    const attempts: (readonly [string, number])[] = [];
    const type = mill.job('a', { retryPolicy: { maxAttempts: 2 } }, (job) => {
      attempts.push([String(job.scheduledFor?.toISOString().slice(11, 16)), job.attempt]);
      throw new Error('no');
    });
    await mill.start();
    await type.schedule({ every: '10m' }, {});
    await clock.advance('20m');
    expect(attempts).toEqual([
      ['00:10', 1],
      ['00:10', 2],
      ['00:20', 1],
    ]);
  });
});

describe('missed runs of schedules', () => {
  async function after(
    missed: 'once' | 'skip' | 'all',
    away: string,
    logger: Logger | false = false,
    when = '@hourly',
  ) {
    const { clock, mill, runs, note } = aYear({ logger });
    const type = mill.job('a', note);
    await type.schedule(when, {}, { missed });
    await clock.advance(away);
    await mill.start();
    await clock.advance(0);
    const late = runs.length;
    await clock.advance('1h');
    return { late, runs: runs.slice(late) };
  }

  it('missed "once" runs once for all missed times, then continues', async () => {
    expect(await after('once', '5h30m')).toEqual({ late: 1, runs: ['2025-01-01T06:00'] });
  });

  it('missed "skip" runs none of the missed times, then continues', async () => {
    expect(await after('skip', '5h30m')).toEqual({ late: 0, runs: ['2025-01-01T06:00'] });
  });

  it('missed "all" runs every missed time, then continues', async () => {
    expect(await after('all', '5h30m')).toEqual({ late: 5, runs: ['2025-01-01T06:00'] });
  });

  it('by distance, follow the same policies', async () => {
    const runs = ['2025-01-01T06:00'];
    expect(await after('once', '5h30m', false, '@every 1h')).toEqual({ late: 1, runs });
    expect(await after('skip', '5h30m', false, '@every 1h')).toEqual({ late: 0, runs });
    expect(await after('all', '5h30m', false, '@every 1h')).toEqual({ late: 5, runs });
    expect(await after('all', '200h30m', false, '@every 1h')).toMatchObject({ late: 101 });
  });

  it("'all' runs no more than a hundred and one of them, and says that some were dropped", async () => {
    const warn = vi.fn();
    const quiet = (): undefined => undefined;
    const { late } = await after('all', '200h30m', { debug: quiet, info: quiet, warn, error: quiet });
    // The one that was due already, and a hundred more.
    expect(late).toBe(101);
    expect(warn).toHaveBeenCalledExactlyOnceWith(
      expect.anything(),
      'schedule schedule:a:a had missed more than 100 runs; older ones were dropped',
    );
  });

  it('missed runs stop at repeatUntil, except the one that was due', async () => {
    const { clock, mill, runs, note } = aYear();
    const type = mill.job('a', note);
    await type.schedule('@hourly', {}, { repeatUntil: new Date('2025-01-01T03:00:00Z') });
    await clock.advance('10h');
    await mill.start();
    await clock.advance('5h');
    expect(runs).toEqual(['2025-01-01T10:00']);
    expect(await mill.schedules.get('a')).toMatchObject({ status: 'completed' });
  });
});
