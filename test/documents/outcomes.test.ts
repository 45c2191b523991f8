import { describe, expect, it } from 'vitest';
import { FatalError, OptionError } from '../../src/core/errors.js';
import { aTestScheduler, at, times } from './test-scheduler.js';

describe('failed documents', () => {
  it('a failed document without a retry policy runs again when its lock expires', async () => {
    const { store, scheduler, seen, clock, errors } = aTestScheduler({
      lockDuration: '1m',
      onDocument: () => {
        seen.push(times(clock).slice(0, 5));
        throw new Error('bad');
      },
    });
    store.insert({ autoRemove: true });
    await scheduler.start();
    await clock.advance('2m59s');
    expect(seen).toEqual(['12:00', '12:01', '12:02']);
    expect(errors.map(({ where }) => where)).toEqual(['onDocument', 'onDocument', 'onDocument']);
    expect(store.jobs.get('job-1')?.failure).toBeUndefined();
  });

  it('a failed document with a retry policy is retried up to maxAttempts and then parked', async () => {
    const { store, scheduler, seen, clock } = aTestScheduler({
      retryPolicy: { type: 'fixed', interval: '10s', maxAttempts: 3 },
      onDocument: () => {
        seen.push(times(clock));
        throw new Error('bad');
      },
    });
    store.insert({ autoRemove: true });
    await scheduler.start();
    await clock.advance('5s');
    expect(store.jobs.get('job-1')).toMatchObject({
      sleepUntil: at('12:00:10.000'),
      failure: { count: 1, reason: 'bad', ended: false, scheduledFor: at('12:00:00.000') },
    });
    await clock.advance('1h');
    expect(seen).toEqual(['12:00:00.000', '12:00:10.000', '12:00:20.000']);
    expect(store.jobs.get('job-1')).toMatchObject({
      sleepUntil: null,
      failure: { count: 3, ended: true, firstAt: at('12:00:00.000'), at: at('12:00:20.000') },
    });
  });

  it('a recurring document counts failures per run, and a success resets the count', async () => {
    let fails = 3;
    const { store, scheduler, seen, clock } = aTestScheduler({
      retryPolicy: { type: 'fixed', interval: '10s', maxAttempts: 2 },
      onDocument: () => {
        seen.push(times(clock));
        if ((fails -= 1) >= 0) throw new Error('bad');
      },
    });
    store.insert({ interval: '@hourly' });
    await scheduler.start();
    await clock.advance('30m');
    expect(store.jobs.get('job-1')).toMatchObject({
      sleepUntil: at('13:00:00.000'),
      failure: { count: 2, ended: true },
    });
    await clock.advance('31m');
    expect(seen).toEqual(['12:00:00.000', '12:00:10.000', '13:00:00.000', '13:00:10.000']);
    expect(store.jobs.get('job-1')).toMatchObject({ sleepUntil: at('14:00:00.000'), failure: null });
  });

  it('a FatalError ends a document at once, despite its retry policy', async () => {
    const { store, scheduler, seen, clock } = aTestScheduler({
      retryPolicy: { type: 'fixed', interval: '10s' },
      onDocument: () => {
        seen.push('ran');
        throw new FatalError('never');
      },
    });
    store.insert({});
    await scheduler.start();
    await clock.advance('1h');
    expect(seen).toEqual(['ran']);
    expect(store.jobs.get('job-1')?.failure).toMatchObject({ count: 1, ended: true, reason: 'never' });
  });
});

describe('documents that cannot be planned', () => {
  it.each([
    ['too few fields', { interval: '0 3 * *' }, 'needs 5 fields'],
    ['a date that never comes', { interval: '0 0 30 2 *' }, 'never matches'],
    ['an unknown name', { interval: '@often' }, '@often'],
    ['a wrong distance', { interval: '@every soon' }, 'must be a duration'],
    ['an unknown zone', { interval: 'CRON_TZ=Mars/Olympus 0 3 * * *' }, 'Mars/Olympus'],
    ['a zone of its own that is unknown', { interval: '@daily', timezone: 'Mars' }, 'Mars'],
    ['an interval that is no text', { interval: 5 as unknown as string }, 'got 5'],
    ['a bound that is no date', { interval: '@daily', repeatUntil: 'May' as unknown as Date }, 'got "May"'],
  ])('parks a document with %s after its run and keeps the reason', async (_what, schedule, reason) => {
    const { store, scheduler, clock, seen, errors } = aTestScheduler();
    store.insert({ ...schedule, autoRemove: true });
    await scheduler.start();
    await clock.advance('5m');
    expect(seen).toEqual(['job-1']);
    expect(errors).toHaveLength(1);
    expect(errors[0]).toMatchObject({ where: 'interval', error: expect.any(OptionError) as unknown });
    expect(errors[0]?.error.message).toContain(reason);
    expect(errors[0]?.error.message).toContain('job-1');
    const parked = store.jobs.get('job-1');
    expect(parked).toMatchObject({ sleepUntil: null, failure: { ended: true, count: 0 } });
    expect(parked?.failure?.reason).toContain(reason);
  });

  it('does not run a document whose sleepUntil is no date, and reports it once', async () => {
    const { store, scheduler, clock, seen, errors } = aTestScheduler();
    store.insert({ sleepUntil: '2020-01-01' as unknown as Date });
    await scheduler.start();
    await clock.advance('1h');
    expect(seen).toEqual([]);
    expect(errors.map(({ where }) => where)).toEqual(['sleepUntil']);
    expect(errors[0]?.error.message).toContain('got "2020-01-01"');
  });
});

describe('missed runs of documents', () => {
  const late = { sleepUntil: at('09:00:00.000'), interval: '0 * * * *' };

  it('missed "once" runs an overdue document once and continues with the next regular time', async () => {
    const { store, scheduler, clock, seen } = aTestScheduler();
    store.insert(late);
    await scheduler.start();
    await clock.advance('1m');
    expect(seen).toHaveLength(1);
    expect(store.jobs.get('job-1')?.sleepUntil).toEqual(at('13:00:00.000'));
  });

  it('missed "skip" skips an overdue document until its next regular time', async () => {
    const { store, scheduler, clock, seen } = aTestScheduler({ missed: 'skip' });
    store.insert(late);
    await scheduler.start();
    await clock.advance('1m');
    expect(seen).toEqual([]);
    expect(store.jobs.get('job-1')?.sleepUntil).toEqual(at('13:00:00.000'));
    await clock.advance('1h');
    expect(seen).toHaveLength(1);
  });

  it.each([
    ['1s', '*/10 * * * *', 36],
    ['2m', '*/10 * * * *', 36],
    ['5m', '*/10 * * * *', 36],
    ['2m', '* * * * *', 120],
    ['20m', '*/10 * * * *', 12],
  ])('missed "skip" with an idleDelay of %s misses no run of %s', async (idleDelay, interval, least) => {
    const { store, scheduler, clock, seen } = aTestScheduler({ missed: 'skip', idleDelay });
    await scheduler.start();
    await clock.advance('90s');
    store.insert({ sleepUntil: at('12:10:00.000'), interval });
    await clock.advance('6h');
    expect(seen.length).toBeGreaterThanOrEqual(least - 1);
  });

  it('missed "skip" still runs a document that was late because others ran before it', async () => {
    const { store, scheduler, clock, seen } = aTestScheduler({
      missed: 'skip',
      onDocument: (_document, { job }) => {
        seen.push(String(job.id));
        return new Promise<void>((resolve) => clock.timer(2_000, resolve));
      },
    });
    await scheduler.start();
    for (let n = 0; n < 100; n += 1) store.insert({ sleepUntil: at('12:01:00.000'), interval: '@daily' });
    await clock.advance('1h');
    expect(new Set(seen).size).toBe(100);
  });

  it('missed "skip" skips a document that came due while the store was down', async () => {
    const { store, scheduler, clock, seen } = aTestScheduler({ missed: 'skip' });
    await scheduler.start();
    await clock.advance('10s');
    store.before = () => {
      throw new Error('away');
    };
    store.insert({ sleepUntil: at('12:01:00.000'), interval: '@daily' });
    await clock.advance('10m');
    store.before = () => undefined;
    await clock.advance('1m');
    expect(seen).toEqual([]);
    expect(store.jobs.get('job-1')?.sleepUntil).toEqual(new Date('2026-03-03T00:00:00.000Z'));
  });

  it('missed "skip" still runs an overdue document without an interval', async () => {
    const { store, scheduler, clock, seen } = aTestScheduler({ missed: 'skip' });
    store.insert({ sleepUntil: at('09:00:00.000') });
    await scheduler.start();
    await clock.advance('1m');
    expect(seen).toHaveLength(1);
  });

  it('missed "all" runs an overdue document once for each missed time, in order', async () => {
    const { store, scheduler, clock, seen } = aTestScheduler({
      missed: 'all',
      onDocument: (_document, { job }) => void seen.push(String(job.sleepUntil?.toISOString().slice(11, 16))),
    });
    store.insert(late);
    await scheduler.start();
    await clock.advance('1m');
    expect(seen).toEqual(['09:00', '10:00', '11:00', '12:00']);
    expect(store.jobs.get('job-1')?.sleepUntil).toEqual(at('13:00:00.000'));
  });

  it('missed "seed" reruns an overdue document past repeatUntil, and "once" does not', async () => {
    for (const [missed, runs] of [
      ['seed', 2],
      ['once', 1],
    ] as const) {
      const { store, scheduler, clock, seen } = aTestScheduler({ missed });
      store.insert({ ...late, repeatUntil: at('11:00:00.000') });
      await scheduler.start();
      await clock.advance('5h');
      expect(seen).toHaveLength(runs);
      expect(store.jobs.get('job-1')?.sleepUntil).toBeNull();
    }
  });

  it('runs a recurring document at repeatUntil, but not after it', async () => {
    const { store, scheduler, clock, seen } = aTestScheduler({
      onDocument: () => void seen.push(times(clock)),
    });
    store.insert({ interval: '0 * * * *', repeatUntil: at('14:00:00.000') });
    await scheduler.start();
    await clock.advance('5h');
    expect(seen).toEqual(['12:00:00.000', '13:00:00.000', '14:00:00.000']);
  });

  it('counts reprocessDelay from the scheduled time of the run', async () => {
    const { store, scheduler, clock } = aTestScheduler({ reprocessDelay: '90s' });
    store.insert({ interval: '* * * * *' });
    await scheduler.start();
    await clock.advance('1s');
    expect(store.jobs.get('job-1')?.sleepUntil).toEqual(at('12:02:00.000'));
  });
});
