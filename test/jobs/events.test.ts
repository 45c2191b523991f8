import { describe, expect, it, vi } from 'vitest';
import { type MillEvents, type Tidemill } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';
import { virtualClock } from '../../src/testing/index.js';
import { aMill, gate } from '../support/mills.js';

const NAMES = [
  'job:start',
  'job:complete',
  'job:fail',
  'job:retry',
  'job:cancel',
  'job:progress',
  'stale:recovered',
  'lease:lost',
  'error',
] as const satisfies readonly (keyof MillEvents)[];

type Seen = { [K in keyof MillEvents]: readonly [K, MillEvents[K]] }[keyof MillEvents];

function listen(mill: Tidemill): Seen[] {
  const seen: Seen[] = [];
  for (const name of NAMES) mill.on(name, (event) => void seen.push([name, event] as unknown as Seen));
  return seen;
}

function aHeardMill(options: Parameters<typeof aMill>[1] = {}) {
  const clock = virtualClock('2025-01-01T00:00:00Z');
  const mill = aMill(memory({ clock }), { instanceId: 'me', ...options });
  return { clock, mill, seen: listen(mill) };
}

describe('job events', () => {
  it('a successful job emits start, progress and complete', async () => {
    const { clock, mill, seen } = aHeardMill();
    const type = mill.job('a', async (job) => {
      job.progress({ done: 1 });
      await new Promise<void>((resolve) => void clock.timer(250, resolve));
      return 'yes';
    });
    await mill.start();
    const { id } = await type.enqueue({ n: 1 });
    await clock.advance('1s');
    expect(seen.map(([name]) => name)).toEqual(['job:start', 'job:progress', 'job:complete']);
    const [start, progress, complete] = seen.map(([, event]) => event);
    expect(start).toEqual({
      job: expect.objectContaining({ id, status: 'processing' }) as unknown,
      instanceId: 'me',
    });
    expect(progress).toMatchObject({ job: { id }, progress: { done: 1 }, instanceId: 'me' });
    expect(complete).toMatchObject({
      job: { id, name: 'a', data: { n: 1 }, status: 'completed', result: 'yes' },
      result: 'yes',
      durationMs: 250,
      instanceId: 'me',
    });
  });

  it('a job that fails twice emits each failure and retry, and willRetry: false at the end', async () => {
    const { clock, mill, seen } = aHeardMill();
    const error = new Error('no');
    const type = mill.job('a', { retryPolicy: { type: 'fixed', interval: '1m', maxAttempts: 2 } }, () => {
      throw error;
    });
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance('5m');
    expect(seen.map(([name]) => name)).toEqual([
      'job:start',
      'job:fail',
      'job:retry',
      'job:start',
      'job:fail',
    ]);
    expect(seen[1]![1]).toMatchObject({ job: { id }, error, attempt: 1, willRetry: true, instanceId: 'me' });
    expect(seen[2]![1]).toMatchObject({
      job: { id, status: 'pending', failCount: 1 },
      runAt: new Date('2025-01-01T00:01:00Z'),
      instanceId: 'me',
    });
    expect(seen[4]![1]).toMatchObject({
      job: { id, status: 'failed', failCount: 2, failReason: 'no' },
      error,
      attempt: 2,
      willRetry: false,
    });
  });

  it('a timeout emits job:fail with an AttemptTimeoutError', async () => {
    const { clock, mill, seen } = aHeardMill();
    const retryPolicy = { type: 'fixed', interval: 1, maxAttempts: 1 } as const;
    const type = mill.job('a', { timeout: '1s', retryPolicy }, () => new Promise(() => undefined));
    await mill.start();
    await type.enqueue({});
    await clock.advance('2s');
    expect(seen.at(-1)).toMatchObject([
      'job:fail',
      { error: { name: 'AttemptTimeoutError' }, willRetry: false },
    ]);
  });

  it('a job cancelled while it runs emits start and cancel', async () => {
    const { clock, mill, seen } = aHeardMill();
    const type = mill.job(
      'a',
      ({ signal }) =>
        new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason as Error));
        }),
    );
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance(0);
    expect((await mill.jobs.cancel(id)).outcome).toBe('requested');
    await clock.advance('1s');
    expect(seen.map(([name]) => name)).toEqual(['job:start', 'job:cancel']);
    expect(seen[1]![1]).toMatchObject({ job: { id, status: 'cancelled' }, instanceId: 'me' });
  });

  it('a job cancelled while it waits emits cancel only', async () => {
    const { clock, mill, seen } = aHeardMill();
    const { id } = await mill.enqueue('nobody-runs-it', {}, { delay: '1h' });
    expect((await mill.jobs.cancel(id)).outcome).toBe('cancelled');
    await mill.jobs.cancel(id);
    await clock.advance('2h');
    expect(seen).toEqual([
      [
        'job:cancel',
        { job: expect.objectContaining({ id, status: 'cancelled' }) as unknown, instanceId: 'me' },
      ],
    ]);
  });

  it('a deferred job emits start only', async () => {
    const { clock, mill, seen } = aHeardMill();
    const type = mill.job('a', (job) => job.defer('1h'));
    await mill.start();
    await type.enqueue({});
    await clock.advance('1s');
    expect(seen.map(([name]) => name)).toEqual(['job:start']);
  });

  it('a listener removed with off() is no longer called, and on() and off() return the mill', async () => {
    const { clock, mill } = aHeardMill();
    const listener = vi.fn();
    expect(mill.on('job:start', listener)).toBe(mill);
    expect(mill.off('job:start', listener)).toBe(mill);
    const type = mill.job('a', () => 1);
    await mill.start();
    await type.enqueue({});
    await clock.advance('1s');
    expect(listener).not.toHaveBeenCalled();
  });
});

describe('broken listeners and loggers', () => {
  const broken = (): never => {
    throw new Error('broken listener');
  };
  const rejecting = (): Promise<never> => Promise.reject(new Error('rejecting listener'));

  async function works(mill: Tidemill, clock: ReturnType<typeof virtualClock>): Promise<void> {
    const type = mill.job<number>('a', ({ data, attempt, progress }) => {
      progress(1);
      if (data === 1 && attempt === 1) throw new Error('once');
      return data;
    });
    await mill.start();
    const jobs = await type.enqueueMany([{ data: 1 }, { data: 2 }, { data: 3 }]);
    await clock.advance('1m');
    for (const { id, data } of jobs) {
      expect(await mill.jobs.get(id)).toMatchObject({
        status: 'completed',
        result: data,
        failCount: data === 1 ? 1 : 0,
      });
    }
    expect(mill.isHealthy()).toBe(true);
  }

  it.each([
    ['throws', broken],
    ['rejects', rejecting],
  ])('a listener that %s does not disturb the engine', async (_what, listener) => {
    const unhandled = vi.fn();
    process.on('unhandledRejection', unhandled);
    const clock = virtualClock('2025-01-01');
    const mill = aMill(memory({ clock }));
    for (const name of NAMES) mill.on(name, listener);
    await works(mill, clock);
    await mill.stop();
    process.off('unhandledRejection', unhandled);
    expect(unhandled).not.toHaveBeenCalled();
  });

  it('a listener that throws is reported as an error event that names it', async () => {
    const clock = virtualClock('2025-01-01');
    const mill = aMill(memory({ clock }));
    mill.on('job:start', broken);
    const reported = gate<MillEvents['error']>();
    mill.on('error', reported.open);
    const type = mill.job('a', () => 1);
    await mill.start();
    await type.enqueue({});
    await clock.advance('1s');
    expect(await reported.promise).toMatchObject({
      error: { message: 'broken listener' },
      where: 'listener of job:start',
      instanceId: mill.instanceId,
    });
  });

  it('a listener that throws is logged if no error listener exists or that one throws', async () => {
    const clock = virtualClock('2025-01-01');
    const error = vi.fn();
    const quiet = (): undefined => undefined;
    const mill = aMill(memory({ clock }), { logger: { debug: quiet, info: quiet, warn: quiet, error } });
    mill.on('job:start', broken);
    const type = mill.job('a', () => 1);
    await mill.start();
    await type.enqueue({});
    await clock.advance('1s');
    expect(error).toHaveBeenCalledWith(
      expect.objectContaining({ where: 'listener of job:start' }),
      'listener of job:start: broken listener',
    );
    mill.on('error', broken);
    await type.enqueue({});
    await clock.advance('1s');
    expect(error).toHaveBeenCalledWith(expect.anything(), 'listener of error: broken listener');
  });

  it.each([
    ['throws', broken],
    ['rejects', rejecting],
  ])('a logger that %s does not disturb the engine', async (_what, line) => {
    const unhandled = vi.fn();
    process.on('unhandledRejection', unhandled);
    const clock = virtualClock('2025-01-01');
    const logger = { debug: line, info: line, warn: line, error: line };
    const mill = aMill(memory({ clock }), { logger });
    mill.on('job:start', broken);
    await works(mill, clock);
    await mill.stop();
    process.off('unhandledRejection', unhandled);
    expect(unhandled).not.toHaveBeenCalled();
  });
});
