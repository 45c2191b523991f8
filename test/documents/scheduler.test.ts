import { describe, expect, it } from 'vitest';
import { StoreError } from '../../src/core/errors.js';
import { gate } from '../support/mills.js';
import { aTestScheduler, at, times } from './test-scheduler.js';

describe('kinds of documents on a store of three methods', () => {
  it('runs a one-time document once and parks it', async () => {
    const { store, scheduler, seen, clock } = aTestScheduler();
    const { id } = store.insert({});
    await scheduler.start();
    await clock.advance('1h');
    expect(seen).toEqual([id]);
    expect(store.jobs.get(id)?.sleepUntil).toBeNull();
  });

  it('runs a deferred document when it is due, and not before', async () => {
    const { store, scheduler, seen, clock } = aTestScheduler({
      onDocument: () => void seen.push(times(clock)),
    });
    store.insert({ sleepUntil: at('12:30:00.000') });
    await scheduler.start();
    await clock.advance('29m59s');
    expect(seen).toEqual([]);
    await clock.advance('2s');
    expect(seen).toHaveLength(1);
  });

  it('runs a recurring document at each of its times', async () => {
    const { store, scheduler, seen, clock } = aTestScheduler({
      onDocument: () => void seen.push(times(clock)),
    });
    store.insert({ interval: '*/15 * * * *' });
    await scheduler.start();
    await clock.advance('46m');
    expect(seen).toEqual(['12:00:00.000', '12:15:00.000', '12:30:00.000', '12:45:00.000']);
  });

  it('removes a document with autoRemove once no run is left', async () => {
    const { store, scheduler, seen, clock } = aTestScheduler();
    store.insert({ autoRemove: true });
    store.insert({ autoRemove: true, interval: '* * * * *', repeatUntil: at('12:02:00.000') });
    await scheduler.start();
    await clock.advance('1m30s');
    expect([...store.jobs.keys()]).toEqual(['job-2']);
    await clock.advance('1m');
    expect(store.jobs.size).toBe(0);
    expect(seen).toEqual(['job-1', 'job-2', 'job-2', 'job-2']);
  });

  it('passes the handler the document, its schedule before the lock, and its other fields', async () => {
    const given = gate<unknown[]>();
    const { store, scheduler } = aTestScheduler({ onDocument: (...args) => given.open(args) });
    store.insert({ interval: '@daily', data: { text: 'hello' } });
    await scheduler.start();
    const [document, context] = await given.promise;
    expect(document).toEqual({
      id: 'job-1',
      sleepUntil: at('12:00:00.000'),
      interval: '@daily',
      text: 'hello',
    });
    expect(context).toMatchObject({ job: { sleepUntil: at('12:00:00.000'), data: { text: 'hello' } } });
    expect((context as { signal: AbortSignal }).signal.aborted).toBe(false);
  });
});

describe('the loop of a document scheduler', () => {
  it('locks, runs and records one document after the other', async () => {
    const { store, scheduler, clock } = aTestScheduler({ onDocument: () => void store.calls.push('run') });
    store.insert({});
    store.insert({ autoRemove: true });
    await scheduler.start();
    await clock.advance(50);
    expect(store.calls).toEqual(['lockNext', 'run', 'update', 'lockNext', 'run', 'remove', 'lockNext']);
  });

  it('waits for onStart before the first poll', async () => {
    const started = gate();
    const { store, scheduler, clock } = aTestScheduler({ onStart: () => started.promise });
    const starting = scheduler.start();
    await clock.advance('1m');
    expect(store.calls).toEqual([]);
    expect(scheduler.isRunning()).toBe(true);
    started.open();
    await starting;
    await clock.advance('1m');
    expect(store.calls).toContain('lockNext');
  });

  it('rolls back a start whose onStart fails, and can be started again', async () => {
    let fails = true;
    const { store, scheduler, clock, seen } = aTestScheduler({
      onStart: () => {
        if (fails) throw new Error('not today');
      },
      onStop: () => void seen.push('stopped'),
    });
    store.insert({});
    await expect(scheduler.start()).rejects.toThrow('not today');
    expect(scheduler.isRunning()).toBe(false);
    await scheduler.stop();
    await clock.advance('1m');
    expect([seen, store.calls]).toEqual([[], []]);
    fails = false;
    await scheduler.start();
    await clock.advance('1m');
    expect(seen).toEqual(['job-1']);
  });

  it('calls onIdle once per idle period, and isIdle() returns true', async () => {
    const { store, scheduler, clock, seen } = aTestScheduler({ onIdle: () => void seen.push('idle') });
    store.insert({});
    await scheduler.start();
    await clock.advance('1m');
    expect(seen).toEqual(['job-1', 'idle']);
    expect(scheduler.isIdle()).toBe(true);
    store.insert({});
    await clock.advance('1m');
    expect(seen).toEqual(['job-1', 'idle', 'job-2', 'idle']);
  });

  it.each([
    ['no delay', { idleDelay: 0 }, 70],
    ['a delay of its own', { idleDelay: '10s' }, 8],
  ])('does not spin while idle, with %s', async (_name, delays, most) => {
    const { store, scheduler, clock } = aTestScheduler(delays);
    await scheduler.start();
    await clock.advance('1m');
    expect(store.calls.length).toBeGreaterThan(3);
    expect(store.calls.length).toBeLessThan(most);
  });

  it('waits nextDelay before each poll, and idleDelay after one that found nothing', async () => {
    const looks: string[] = [];
    const { store, scheduler, clock } = aTestScheduler({ nextDelay: '1s', idleDelay: '10s' });
    store.before = (method) => {
      if (method === 'lockNext') looks.push(times(clock));
    };
    store.insert({});
    await scheduler.start();
    await clock.advance('30s');
    expect(looks).toEqual(['12:00:01.000', '12:00:02.000', '12:00:13.000', '12:00:24.000']);
  });

  it('isRunning, isProcessing and isIdle are right during a run, after it and after an error', async () => {
    const states: unknown[] = [];
    const { store, scheduler, clock } = aTestScheduler({
      onDocument: () => {
        states.push([scheduler.isRunning(), scheduler.isProcessing(), scheduler.isIdle()]);
        throw new Error('no');
      },
    });
    const state = (): unknown => [scheduler.isRunning(), scheduler.isProcessing(), scheduler.isIdle()];
    expect(state()).toEqual([false, false, false]);
    store.insert({});
    await scheduler.start();
    await clock.advance('1s');
    expect(states).toEqual([[true, true, false]]);
    expect(state()).toEqual([true, false, true]);
    await scheduler.stop();
    expect(state()).toEqual([false, false, false]);
  });

  it('continues after errors of the store, and reports each', async () => {
    const { store, scheduler, clock, seen, errors } = aTestScheduler();
    let failures = 3;
    store.before = () => {
      if ((failures -= 1) >= 0) throw new Error('connection refused');
    };
    store.insert({});
    await scheduler.start();
    await clock.advance('10s');
    expect(seen).toEqual(['job-1']);
    expect(errors.map(({ where }) => where)).toEqual(['lock', 'lock', 'lock']);
    expect(errors[0]?.error).toBeInstanceOf(StoreError);
  });

  it('continues if onError throws, or if there is none, and logs the error', async () => {
    const worse = (): never => {
      throw new Error('worse');
    };
    for (const hooks of [{ onError: worse }, { onError: undefined as unknown as typeof worse }]) {
      const lines: string[] = [];
      const log = (_fields: object, message: string): void => void lines.push(message);
      const { store, scheduler, clock, seen } = aTestScheduler({
        ...hooks,
        logger: { debug: log, info: log, warn: log, error: log },
        onDocument: (_document, { job }) => {
          seen.push(String(job.id));
          throw new Error('bad');
        },
      });
      store.insert({});
      store.insert({});
      await scheduler.start();
      await clock.advance('1s');
      expect(seen).toEqual(['job-1', 'job-2']);
      expect(lines).toHaveLength(2);
      await scheduler.stop();
    }
  });

  it('reports errors of onIdle and onStop to onError', async () => {
    const hook = (): never => {
      throw new Error('hook');
    };
    const { scheduler, clock, errors } = aTestScheduler({ onIdle: hook, onStop: hook });
    await scheduler.start();
    await clock.advance('1s');
    await scheduler.stop();
    expect(errors.map(({ where }) => where)).toEqual(['onIdle', 'onStop']);
  });
});

describe('start and stop of a document scheduler', () => {
  it('starts once, however often start() is called', async () => {
    const { scheduler, seen, clock } = aTestScheduler({ onStart: () => void seen.push('start') });
    await Promise.all([scheduler.start(), scheduler.start()]);
    await scheduler.start();
    await clock.advance('1s');
    expect(seen).toEqual(['start']);
  });

  it('stops once, after the current document and onStop', async () => {
    const end = gate();
    const { store, scheduler, seen, clock } = aTestScheduler({
      onDocument: async () => {
        await end.promise;
        seen.push('ran');
      },
      onStop: () => void seen.push('stopped'),
    });
    store.insert({});
    store.insert({});
    await scheduler.start();
    await clock.advance(10);
    const stops = Promise.all([scheduler.stop(), scheduler.stop()]).then(() => seen.push('resolved'));
    expect([scheduler.isRunning(), scheduler.isProcessing()]).toEqual([false, true]);
    end.open();
    await stops;
    await scheduler.stop();
    expect(seen).toEqual(['ran', 'stopped', 'resolved']);
    expect([...store.jobs.values()].map(({ sleepUntil }) => sleepUntil)).toEqual([null, at('12:00:00.000')]);
  });

  it('stops at once while it waits, and can start again', async () => {
    const { store, scheduler, seen, clock } = aTestScheduler({ idleDelay: '1h', nextDelay: '10m' });
    await scheduler.start();
    await scheduler.stop();
    store.insert({});
    await scheduler.start();
    await clock.advance('11m');
    expect(seen).toEqual(['job-1']);
  });

  it('stops when the signal given to start() aborts, and refuses an aborted one', async () => {
    const stopped = gate();
    const { scheduler } = aTestScheduler({ onStop: () => stopped.open() });
    const end = new AbortController();
    await scheduler.start({ signal: end.signal });
    end.abort(new Error('enough'));
    await stopped.promise;
    expect(scheduler.isRunning()).toBe(false);
    await expect(scheduler.start({ signal: end.signal })).rejects.toThrow('enough');
  });

  it('releases a document whose handler outlasts the timeout of stop()', async () => {
    const reasons: unknown[] = [];
    const { store, scheduler, clock } = aTestScheduler({
      onDocument: (_document, { signal }) => {
        signal.addEventListener('abort', () => reasons.push((signal.reason as Error).name));
        return new Promise(() => undefined);
      },
    });
    store.insert({});
    await scheduler.start();
    await clock.advance(10);
    const stopping = scheduler.stop({ timeout: '5s' });
    await clock.advance('6s');
    await stopping;
    expect(reasons).toEqual(['StoppingError']);
    expect(store.jobs.get('job-1')?.sleepUntil).toEqual(at('12:00:00.000'));
  });

  it('releases a document that is locked while the scheduler stops', async () => {
    const answered = gate();
    const { store, scheduler, seen, clock } = aTestScheduler();
    store.insert({});
    store.after = () => answered.promise;
    await scheduler.start();
    await clock.advance(10);
    const stopping = scheduler.stop();
    answered.open();
    await stopping;
    expect(seen).toEqual([]);
    expect(store.jobs.get('job-1')?.sleepUntil).toEqual(at('12:00:00.000'));
  });

  it('stop() waits no longer than the shortest of several calls, or until a signal aborts', async () => {
    for (const second of [{ timeout: 0 }, { signal: AbortSignal.abort() }]) {
      const { store, scheduler, clock } = aTestScheduler({ onDocument: () => new Promise(() => undefined) });
      store.insert({});
      await scheduler.start();
      await clock.advance(10);
      const first = scheduler.stop();
      const stopped = Promise.all([first, scheduler.stop(second)]);
      await clock.advance('1s');
      await stopped;
      expect(scheduler.isProcessing()).toBe(false);
    }
  });
});

describe('concurrency of a document scheduler', () => {
  it('runs exactly as many documents at once as its concurrency', async () => {
    let running = 0;
    let most = 0;
    const { store, scheduler, clock, seen } = aTestScheduler({
      concurrency: 4,
      onDocument: async (_document, { job }) => {
        most = Math.max(most, (running += 1));
        await new Promise((resolve) => setImmediate(resolve));
        running -= 1;
        seen.push(String(job.id));
      },
    });
    for (let count = 0; count < 20; count += 1) store.insert({});
    await scheduler.start();
    await clock.advance('5s');
    expect(most).toBe(4);
    expect(new Set(seen).size).toBe(20);
    expect([...store.jobs.values()].every(({ sleepUntil }) => sleepUntil === null)).toBe(true);
  });

  it('is idle only after the last of several concurrent documents has ended', async () => {
    const end = gate();
    const { store, scheduler, clock, seen } = aTestScheduler({
      concurrency: 4,
      onDocument: () => end.promise,
      onIdle: () => void seen.push('idle'),
    });
    store.insert({});
    await scheduler.start();
    await clock.advance('5s');
    expect(seen).toEqual([]);
    end.open();
    await clock.advance('1s');
    expect(seen).toEqual(['idle']);
  });
});
