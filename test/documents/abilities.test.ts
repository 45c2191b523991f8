import { describe, expect, it } from 'vitest';
import { OptionError } from '../../src/core/errors.js';
import { Scheduler, type SchedulerOptions } from '../../src/documents/index.js';
import { gate } from '../support/mills.js';
import { aTestScheduler, at, open } from './test-scheduler.js';
import { OwnStore } from './own-store.js';

describe('Scheduler.reschedule', () => {
  it('reschedule plans the next run as if the document had run, unless it has changed since', async () => {
    const { store, scheduler } = aTestScheduler();
    const job = { ...store.insert({ interval: '@hourly' }) };
    expect(await scheduler.reschedule(job)).toBe(true);
    expect(store.jobs.get('job-1')?.sleepUntil).toEqual(at('13:00:00.000'));
    expect(await scheduler.reschedule(job)).toBe(false);
  });

  it('reschedule removes a document without another run if it asks for that, and revives a parked one', async () => {
    const { store, scheduler } = aTestScheduler();
    expect(await scheduler.reschedule({ ...store.insert({ autoRemove: true }) })).toBe(true);
    expect(store.jobs.size).toBe(0);
    const parked = store.insert({ sleepUntil: null, interval: '@hourly' });
    expect(await scheduler.reschedule({ ...parked })).toBe(true);
    expect(parked.sleepUntil).toEqual(at('13:00:00.000'));
  });

  it('reschedule rejects an unreadable interval and writes nothing', async () => {
    const { store, scheduler } = aTestScheduler();
    const job = store.insert({ interval: 'often' });
    await expect(scheduler.reschedule({ ...job })).rejects.toThrow(OptionError);
    expect(job.sleepUntil).toEqual(at('12:00:00.000'));
  });
});

describe('optional methods of a document store', () => {
  it('uses the clock of a document store that has one', async () => {
    const store = new OwnStore({ now: () => Date.now() + 3_600_000 });
    const ran = gate();
    const ahead = Object.assign(store, { now: async () => new Date(Date.now() + 3_600_000) });
    store.insert({});
    const scheduler = new Scheduler({ store: ahead, onDocument: () => ran.open(), logger: false });
    open.push(scheduler);
    await scheduler.start();
    await ran.promise;
    expect(store.locks[0]!.getTime() - Date.now()).toBeGreaterThan(4_000_000);
  });

  it('uses watch, look, open and close of a document store that has them', async () => {
    const { clock, store, seen } = aTestScheduler();
    let wake: () => void = () => undefined;
    const able = Object.assign(store, {
      open: async () => void seen.push('open'),
      close: async () => void seen.push('close'),
      watch: async (callback: () => void) => {
        wake = callback;
        return { close: async () => void seen.push('unwatched') };
      },
      look: async () => {
        store.calls.push('look');
        return { dueInMs: null, misfits: [{ id: 'odd', value: 7 }] };
      },
    });
    const errors: string[] = [];
    const scheduler = new Scheduler({
      store: () => able,
      clock,
      logger: false,
      onDocument: () => undefined,
      onError: (error) => void errors.push(error.message),
    });
    open.push(scheduler);
    await scheduler.start();
    await clock.advance(20);
    store.calls.length = 0;
    wake();
    await clock.advance(20);
    expect(store.calls).toEqual(['look']);
    await scheduler.stop();
    expect(seen).toEqual(['open', 'unwatched', 'close']);
    expect(errors[0]).toContain('document odd: sleepUntil must be a date');
  });
});

describe('bad options of a document scheduler', () => {
  it.each([
    [{ store: undefined }, 'store must have the methods lockNext, update, remove'],
    [{ store: { lockNext: () => null } }, 'no update, no remove'],
    [{ onDocument: undefined }, 'onDocument must be a function'],
    [{ onIdle: 'x' }, 'onIdle must be a function'],
    [{ lockDuration: 'long' }, 'lockDuration must be a duration'],
    [{ concurrency: 0 }, 'concurrency must be a whole number'],
    [{ timezone: 'Mars' }, 'timezone must be an IANA name'],
    [{ missed: 'never' }, 'missed must be one of once, skip, all, seed'],
    [{ nextDely: 1 }, 'Did you mean "nextDelay"?'],
    [{ retryPolicy: { type: 'fixed' } }, 'interval must be a duration'],
    [
      { pollInterval: { min: '2s', max: '1s' } },
      'pollInterval.max ("1s") must not be less than pollInterval.min ("2s")',
    ],
  ])('a document scheduler rejects %o with the option and the fix', (options, message) => {
    const given = { store: new OwnStore(), onDocument: () => undefined, ...options };
    expect(() => new Scheduler(given as unknown as SchedulerOptions)).toThrow(message);
  });

  it('start and stop of a document scheduler reject bad options', async () => {
    const { scheduler } = aTestScheduler();
    await expect(scheduler.start({ singal: 1 } as never)).rejects.toThrow('Did you mean "signal"?');
    await expect(scheduler.stop({ timeout: 'x' })).rejects.toThrow('timeout must be a duration');
  });
});
