import { describe, expect, it, vi } from 'vitest';
import { AttemptTimeoutError, defineJob, FatalError, type Job, type JobContext } from '../../../src/index.js';
import { memory } from '../../../src/memory/index.js';
import { virtualClock } from '../../../src/testing/index.js';
import { aMill, gate } from '../../support/mills.js';

const START = Date.parse('2025-01-01T00:00:00Z');
const SECOND = 1_000;

/** A mill on its own clock, with the seconds since its start. */
function aVirtualMill(options: Parameters<typeof aMill>[1] = {}) {
  const clock = virtualClock(START);
  const mill = aMill(memory({ clock }), options);
  return { clock, mill, seconds: () => (clock.now() - START) / SECOND };
}

const once = { retryPolicy: { type: 'fixed', interval: 1, maxAttempts: 1 } } as const;

describe('when a job runs', () => {
  it('runs a job at once, after a delay, or at a given time', async () => {
    const { clock, mill, seconds } = aVirtualMill();
    const ran: [string, number][] = [];
    const type = mill.job<string>('a', ({ data }) => void ran.push([data, seconds()]));
    await mill.start();
    await type.enqueue('delay', { delay: '10s' });
    await type.enqueue('runAt', { runAt: new Date(START + 5 * SECOND) });
    await type.enqueue('past', { runAt: new Date(START - 5 * SECOND) });
    await type.now('now');
    await clock.advance('1m');
    expect(ran.sort((a, b) => a[1] - b[1])).toEqual([
      ['past', 0],
      ['now', 0],
      ['runAt', 5],
      ['delay', 10],
    ]);
  });

  it('runs jobs by priority, then by due time, then by age', async () => {
    const { clock, mill } = aVirtualMill();
    const ran: string[] = [];
    const type = mill.job<string>('a', { concurrency: 1 }, ({ data }) => void ran.push(data));
    await type.enqueue('old');
    await type.enqueue('low', { priority: -10 });
    await type.enqueue('earlier', { runAt: new Date(START - 1) });
    await type.enqueue('high', { priority: 10 });
    await type.enqueue('young');
    await mill.start();
    await clock.advance('1s');
    expect(ran).toEqual(['high', 'earlier', 'old', 'young', 'low']);
  });

  it('runs as many jobs at once as the concurrency of the name and of the mill allow', async () => {
    const { clock, mill } = aVirtualMill({ concurrency: 3 });
    const end = gate();
    let [running, most] = [0, 0];
    const handler = async (): Promise<void> => {
      running += 1;
      most = Math.max(most, running);
      await end.promise;
      running -= 1;
    };
    const a = mill.job('a', { concurrency: 2 }, handler);
    const b = mill.job('b', { concurrency: 2 }, handler);
    await a.enqueueMany([{ data: 1 }, { data: 2 }, { data: 3 }]);
    await mill.start();
    await clock.advance('1s');
    expect(running).toBe(2);
    await b.enqueueMany([{ data: 1 }, { data: 2 }, { data: 3 }]);
    await clock.advance('1s');
    expect(running).toBe(3);
    end.open();
    await clock.advance('1s');
    expect(most).toBe(3);
    expect(await mill.jobs.count({ status: 'completed' })).toBe(6);
  });

  it('never runs a job without a handler for its name', async () => {
    const { clock, mill } = aVirtualMill();
    mill.job('known', () => 1);
    const { id } = await mill.enqueue('unknown', {});
    await mill.start();
    await clock.advance('1h');
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'pending', failCount: 0 });
  });

  it('runs waiting jobs soon after their handler was added to a running mill', async () => {
    const { clock, mill } = aVirtualMill();
    await mill.start();
    const { id } = await mill.enqueue('late', {});
    await clock.advance('1m');
    mill.job('late', () => 'here');
    await clock.advance('1s');
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'completed', result: 'here' });
  });

  it('runs a job with the handler that replaced the first one', async () => {
    const { clock, mill } = aVirtualMill();
    mill.job('a', () => 'first');
    expect(() => mill.job('a', () => 'second')).toThrow(
      '"a" already has a handler; use another name, or { replace: true }',
    );
    mill.job('a', { replace: true }, () => 'third');
    await mill.start();
    const { id } = await mill.enqueue('a', {});
    await clock.advance('1s');
    expect(await mill.jobs.get(id)).toMatchObject({ result: 'third' });
  });
});

describe('retries of jobs', () => {
  async function failures(options: object, advance = '20d', error: () => unknown = () => new Error('no')) {
    const { clock, mill, seconds } = aVirtualMill({ leaseDuration: '1d' });
    const ran: number[] = [];
    const type = mill.job('a', options, (job) => {
      ran.push(seconds());
      expect(job).toMatchObject({ attempt: ran.length, failCount: ran.length - 1 });
      throw error();
    });
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance(advance);
    return { ran, job: (await mill.jobs.get(id))! };
  }

  it('retries a failed job after 2 s, 4 s, 8 s … by default, up to ten attempts', async () => {
    const { ran, job } = await failures({}, '1h');
    expect(ran).toEqual([0, 2, 6, 14, 30, 62, 126, 254, 510, 1_022]);
    expect(job).toMatchObject({ status: 'failed', failCount: 10, failReason: 'no' });
  });

  it.each([
    [{ type: 'fixed', interval: '10s', maxAttempts: 3 }, [0, 10, 20]],
    [{ type: 'linear', interval: '10s', maxAttempts: 4 }, [0, 10, 30, 60]],
    [{ type: 'exponential', min: '1s', max: '5s', factor: 3, maxAttempts: 5 }, [0, 1, 4, 9, 14]],
    [{ type: 'series', intervals: ['1s', '1m'], maxAttempts: 4 }, [0, 1, 61, 121]],
    [{ type: 'cron', expression: '0 * * * *', maxAttempts: 3 }, [0, 3_600, 7_200]],
    [{ type: 'fixed', interval: '10s', maxDuration: '35s' }, [0, 10, 20, 30, 40]],
  ] as const)('retries a failed job by the policy %j at exact times', async (retryPolicy, expected) => {
    const { ran, job } = await failures({ retryPolicy });
    expect(ran).toEqual(expected);
    expect(job).toMatchObject({ status: 'failed', failCount: expected.length });
  });

  it("an error's retryAfter overrides the retry policy", async () => {
    const retryPolicy = { type: 'fixed', interval: '1h', maxAttempts: 3 };
    const { ran } = await failures({ retryPolicy }, '1d', () =>
      Object.assign(new Error('busy'), { retryAfter: '7s' }),
    );
    expect(ran).toEqual([0, 7, 14]);
    const at = new Date(START + 100 * SECOND);
    const dated = await failures({ retryPolicy: { ...retryPolicy, maxAttempts: 2 } }, '1d', () =>
      Object.assign(new Error('busy'), { retryAfter: at }),
    );
    expect(dated.ran).toEqual([0, 100]);
  });

  it('does not retry a job after a FatalError', async () => {
    const { ran, job } = await failures({}, '1d', () => new FatalError('pointless'));
    expect(ran).toEqual([0]);
    expect(job).toMatchObject({ status: 'failed', failCount: 1, failReason: 'pointless' });
  });

  it.each(['text', undefined, null, 5, { code: 1 }])(
    'fails a job whose handler throws %j',
    async (thrown) => {
      const { job } = await failures(once, '1m', () => thrown);
      expect(job).toMatchObject({ status: 'failed', failCount: 1, failReason: expect.any(String) as string });
    },
  );

  it('a retry policy given with the job overrides that of its definition', async () => {
    const { clock, mill, seconds } = aVirtualMill();
    const ran: number[] = [];
    const type = mill.job('a', { retryPolicy: { type: 'fixed', interval: '1h' } }, () => {
      ran.push(seconds());
      throw new Error('no');
    });
    await mill.start();
    await type.enqueue({}, { retryPolicy: { type: 'fixed', interval: '3s', maxAttempts: 3 } });
    await clock.advance('1d');
    expect(ran).toEqual([0, 3, 6]);
  });

  it('keeps a history of the last attempts with error and stack', async () => {
    const { clock, mill } = aVirtualMill({ executionHistoryLimit: 2, instanceId: 'me' });
    const type = mill.job('a', (job) => {
      if (job.attempt < 4) throw new RangeError(`no ${String(job.attempt)}`);
      return 'yes';
    });
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance('1m');
    const job = (await mill.jobs.get(id))!;
    expect(job).toMatchObject({ status: 'completed', failCount: 3, failReason: 'no 3' });
    expect(job.history).toHaveLength(2);
    expect(job.history![0]).toMatchObject({
      attempt: 3,
      status: 'failed',
      instanceId: 'me',
      startedAt: new Date(START + 6 * SECOND),
      error: {
        name: 'RangeError',
        message: 'no 3',
        stack: expect.stringContaining('running.test') as string,
      },
    });
    expect(job.history![1]).toMatchObject({ attempt: 4, status: 'completed' });
  });

  it('retrying a failed job by hand restarts its attempts', async () => {
    const { clock, mill, seconds } = aVirtualMill();
    const attempts: [number, number][] = [];
    const type = mill.job('a', { retryPolicy: { type: 'fixed', interval: '1s', maxAttempts: 2 } }, (job) => {
      attempts.push([seconds(), job.attempt]);
      throw new Error('no');
    });
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance('1m');
    expect((await mill.jobs.retry(id)).outcome).toBe('retried');
    await clock.advance('1m');
    expect(attempts).toEqual([
      [0, 1],
      [1, 2],
      [60, 1],
      [61, 2],
    ]);
  });
});

describe('timeouts of jobs', () => {
  it('a timeout fails the attempt on time and aborts the signal with the reason', async () => {
    const { clock, mill, seconds } = aVirtualMill();
    let reason: unknown;
    const type = mill.job('slow', { ...once, timeout: '30s' }, ({ signal }) => {
      return new Promise((_resolve, reject) => {
        signal.addEventListener('abort', () => {
          reason = signal.reason;
          expect(seconds()).toBe(30);
          reject(signal.reason as Error);
        });
      });
    });
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance('29s');
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'processing' });
    await clock.advance('1s');
    expect(reason).toBeInstanceOf(AttemptTimeoutError);
    expect(await mill.jobs.get(id)).toMatchObject({
      status: 'failed',
      failReason: expect.stringContaining('timeout of 30000 ms') as string,
      finishedAt: new Date(START + 30 * SECOND),
    });
    expect(mill.health()).toMatchObject({ running: 0, abandoned: 0 });
  });

  it('a timeout given with the job overrides that of its definition', async () => {
    const { clock, mill } = aVirtualMill();
    const type = mill.job('slow', { ...once, timeout: '1h' }, () => new Promise(() => undefined));
    await mill.start();
    const { id } = await type.enqueue({}, { timeout: '5s' });
    await clock.advance('6s');
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'failed' });
  });

  it("a timeout of the producer's definition overrides that of the worker", async () => {
    const clock = virtualClock(START);
    const store = memory({ clock });
    const [producer, worker] = [aMill(store), aMill(store)];
    const definition = defineJob('slow', {
      timeout: '5s',
      retryPolicy: { type: 'fixed', interval: 1, maxAttempts: 1 },
    });
    const { id } = await producer.enqueue(definition, {});
    worker.job('slow', { timeout: '1h' }, () => new Promise(() => undefined));
    await worker.start();
    await clock.advance('6s');
    expect(await producer.jobs.get(id)).toMatchObject({ status: 'failed', failCount: 1 });
  });
});

describe('defer', () => {
  it('defer puts a job back for a while without using an attempt', async () => {
    const { clock, mill, seconds } = aVirtualMill();
    const ran: [number, number, number][] = [];
    const type = mill.job('a', ({ attempt, failCount, defer }) => {
      ran.push([seconds(), attempt, failCount]);
      if (ran.length < 3) defer('1m');
      return 'done';
    });
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance('1s');
    expect(await mill.jobs.get(id)).toMatchObject({
      status: 'pending',
      nextRunAt: new Date(START + 60 * SECOND),
    });
    await clock.advance('1h');
    expect(ran).toEqual([
      [0, 1, 0],
      [60, 1, 0],
      [120, 1, 0],
    ]);
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'completed', result: 'done', failCount: 0 });
  });

  it('defer takes a date, and the last call wins', async () => {
    const { clock, mill } = aVirtualMill();
    const at = new Date(START + 90 * SECOND);
    const type = mill.job('a', (job) => {
      job.defer('1h');
      job.defer(at);
    });
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance('1s');
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'pending', nextRunAt: at });
  });

  it('defer keeps the attempts that were used before', async () => {
    const { clock, mill } = aVirtualMill();
    const attempts: number[] = [];
    const type = mill.job('a', (job) => {
      attempts.push(job.attempt);
      if (attempts.length === 1) throw new Error('no');
      if (attempts.length === 2) job.defer('1m');
    });
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance('1h');
    expect(attempts).toEqual([1, 2, 2]);
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'completed', failCount: 1 });
  });

  it('defer followed by a throw is a failure', async () => {
    const { clock, mill } = aVirtualMill();
    const type = mill.job('a', (job) => {
      job.defer('1h');
      throw new Error('after all');
    });
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance(0);
    expect(await mill.jobs.get(id)).toMatchObject({
      status: 'pending',
      failCount: 1,
      failReason: 'after all',
      nextRunAt: new Date(START + 2 * SECOND),
    });
  });

  it.each(['soon', -1, new Date(Number.NaN), null, undefined])(
    'defer(%s) fails the attempt',
    async (until) => {
      const { clock, mill } = aVirtualMill();
      const type = mill.job('a', once, (job) => job.defer(until as string));
      await mill.start();
      const { id } = await type.enqueue({});
      await clock.advance('1s');
      expect(await mill.jobs.get(id)).toMatchObject({
        status: 'failed',
        failReason: expect.stringContaining('defer must be a') as string,
      });
    },
  );
});

describe('what a handler gets', () => {
  it('a handler gets the job, with methods that can be destructured', async () => {
    const { clock, mill } = aVirtualMill();
    let seen: Omit<JobContext, 'signal'> | undefined;
    mill.job<{ n: number }>('a', ({ signal, ...rest }) => {
      seen = rest;
      expect(signal).toBeInstanceOf(AbortSignal);
      const { progress, log } = rest;
      progress(0.5);
      log('half way', { n: rest.data.n });
      return rest.data.n * 2;
    });
    await mill.start();
    const { id } = await mill.enqueue('a', { n: 21 }, { uniqueKey: 'k' });
    await clock.advance('1s');
    expect(seen).toMatchObject({ id, name: 'a', data: { n: 21 }, attempt: 1, failCount: 0, uniqueKey: 'k' });
    expect(await mill.jobs.get(id)).toMatchObject({
      status: 'completed',
      result: 42,
      progress: 0.5,
      logs: [{ at: new Date(START), message: 'half way', fields: { n: 21 } }],
    });
  });

  it('progress and log lines are readable while the job runs, up to the last 100 lines', async () => {
    const { clock, mill } = aVirtualMill();
    const end = gate();
    const type = mill.job('a', async ({ progress, log }) => {
      for (let n = 1; n <= 150; n += 1) log(`line ${String(n)}`);
      progress({ done: 1 });
      await end.promise;
      log('last');
      progress(null);
    });
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance('1s');
    const running = (await mill.jobs.get(id))!;
    expect(running).toMatchObject({ status: 'processing', progress: { done: 1 } });
    expect(running.logs).toHaveLength(100);
    end.open();
    await clock.advance('1s');
    const ended = (await mill.jobs.get(id))!;
    expect(ended.progress).toBeNull();
    expect(ended.logs!.map(({ message }) => message)).toEqual([
      ...Array.from({ length: 99 }, (_, n) => `line ${String(n + 52)}`),
      'last',
    ]);
  });

  it("a handler's changes to its data reach neither the caller nor the next attempt", async () => {
    const { clock, mill } = aVirtualMill();
    const seen: unknown[] = [];
    const type = mill.job<{ list: number[] }>('a', (job) => {
      seen.push(structuredClone(job.data));
      job.data.list.push(99);
      if (job.attempt === 1) throw new Error('again');
    });
    await mill.start();
    const given = { list: [1] };
    const { id } = await type.enqueue(given);
    given.list.push(2);
    await clock.advance('1m');
    expect(seen).toEqual([{ list: [1] }, { list: [1] }]);
    expect((await mill.jobs.get(id))!.data).toEqual({ list: [1] });
  });
});

describe('complete() in a transaction', () => {
  it("complete() commits the job's end together with the other writes", async () => {
    const { clock, mill } = aVirtualMill();
    const type = mill.job('a', (job) =>
      mill.withTransaction(async (transaction) => {
        await mill.enqueue('follow-up', {}, { transaction });
        await job.complete({ transaction, result: 'both' });
      }),
    );
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance('1s');
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'completed', result: 'both' });
    expect(await mill.jobs.count({ name: 'follow-up' })).toBe(1);
  });

  it('complete() has no effect if the transaction fails', async () => {
    const { clock, mill } = aVirtualMill();
    const type = mill.job('a', once, (job) =>
      mill.withTransaction(async (transaction) => {
        await mill.enqueue('follow-up', {}, { transaction });
        await job.complete({ transaction });
        throw new Error('rolled back');
      }),
    );
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance('1s');
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'failed', failReason: 'rolled back' });
    expect(await mill.jobs.count({ name: 'follow-up' })).toBe(0);
  });

  it('complete() rejects a handle that is not a transaction of the store', async () => {
    const { clock, mill } = aVirtualMill();
    const type = mill.job('a', once, (job) => job.complete({ transaction: {} }));
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance('1s');
    expect(await mill.jobs.get(id)).toMatchObject({
      status: 'failed',
      failReason: 'complete() needs { transaction }: the handle of a memory transaction.',
    });
  });
});

describe('jobs.result', () => {
  it('result resolves to what the handler returned, before and after the run', async () => {
    const { clock, mill } = aVirtualMill();
    const type = mill.job<number>('double', ({ data }) => data * 2);
    const { id } = await type.enqueue(4, { delay: '1m' });
    const waiting = mill.jobs.result(id);
    await mill.start();
    await clock.advance('2m');
    expect(await waiting).toBe(8);
    expect(await mill.jobs.result(id)).toBe(8);
  });

  it('by its definition answers the result, and refuses a job of another name', async () => {
    const { clock, mill } = aVirtualMill();
    const double = defineJob<number, number>('double');
    mill.work(double, ({ data }) => data * 2);
    await mill.start();
    const [one, other] = await mill.enqueueMany([
      { job: double, data: 4 },
      { name: 'double', data: 5 },
    ]);
    const waiting = mill.jobs.result(double, one.id, { timeout: '1m' });
    await clock.advance('1s');
    expect((await waiting).toFixed(1)).toBe('8.0');
    expect(await mill.jobs.result(double, other.id)).toBe(10);
    await expect(mill.jobs.result(defineJob('triple'), one.id)).rejects.toThrow(
      `jobs.result: job ${one.id} is a "double", not a "triple".`,
    );
  });

  it('result resolves to undefined if the handler returned nothing', async () => {
    const { clock, mill } = aVirtualMill();
    const type = mill.job('quiet', () => undefined);
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance('1s');
    expect(await mill.jobs.result(id)).toBeUndefined();
  });

  it('result resolves for a job that another instance ran', async () => {
    const clock = virtualClock(START);
    const store = memory({ clock });
    const [asker, worker] = [aMill(store), aMill(store)];
    worker.job('far', () => 'away');
    await worker.start();
    const { id } = await asker.enqueue('far', {});
    const waiting = asker.jobs.result(id);
    await clock.advance('5s');
    expect(await waiting).toBe('away');
  });

  it('result rejects if the job failed, was cancelled or does not exist', async () => {
    const { clock, mill } = aVirtualMill();
    const type = mill.job('bad', once, () => {
      throw new Error('the reason');
    });
    await mill.start();
    const failed = await type.enqueue({});
    const cancelled = await type.enqueue({}, { delay: '1h' });
    await mill.jobs.cancel(cancelled.id);
    await clock.advance('1s');
    await expect(mill.jobs.result(failed.id)).rejects.toMatchObject({
      code: 'JOB_FAILED',
      message: expect.stringContaining('the reason') as string,
    });
    await expect(mill.jobs.result(cancelled.id)).rejects.toMatchObject({ code: 'JOB_CANCELLED' });
    await expect(mill.jobs.result('nobody')).rejects.toMatchObject({ code: 'JOB_MISSING' });
  });

  it('result rejects after its timeout, on its signal, and when the mill stops', async () => {
    const { clock, mill } = aVirtualMill();
    const { id } = await mill.enqueue('never', {});
    const limited = expect(mill.jobs.result(id, { timeout: '10s' })).rejects.toMatchObject({
      code: 'TIMEOUT',
    });
    await clock.advance('10s');
    await limited;
    const abort = new AbortController();
    const aborted = expect(mill.jobs.result(id, { signal: abort.signal })).rejects.toThrow('enough');
    abort.abort(new Error('enough'));
    await aborted;
    await expect(
      mill.jobs.result(id, { signal: AbortSignal.abort(new Error('never began')) }),
    ).rejects.toThrow('never began');
    const stopped = expect(mill.jobs.result(id)).rejects.toMatchObject({ code: 'STOPPED' });
    await clock.advance('1s');
    await mill.stop();
    await stopped;
  });

  it('result resolves for a job that is deleted as soon as it ends', async () => {
    const { clock, mill } = aVirtualMill();
    const type = mill.job('gone', { retention: { completed: 0 } }, () => 'seen');
    await mill.start();
    const { id } = await type.enqueue({});
    const waiting = mill.jobs.result(id);
    await clock.advance('1s');
    expect(await waiting).toBe('seen');
    expect(await mill.jobs.get(id)).toBeUndefined();
  });
});

describe('retention of jobs', () => {
  it('deletes finished jobs once the retention of their status has passed', async () => {
    const { clock, mill } = aVirtualMill({
      leaseDuration: '1d',
      retention: { completed: '1d', failed: '2d', cancelled: '3d' },
    });
    mill.job('ok', () => 1);
    mill.job('bad', once, () => {
      throw new Error('no');
    });
    await mill.start();
    const ids: Record<string, string> = {};
    for (const name of ['ok', 'bad', 'idle']) ids[name] = (await mill.enqueue(name, {})).id;
    await mill.jobs.cancel(ids['idle']!);
    const left = async (): Promise<string[]> => {
      const found: string[] = [];
      for (const [name, id] of Object.entries(ids))
        if ((await mill.jobs.get(id)) !== undefined) found.push(name);
      return found;
    };
    await clock.advance('23h');
    expect(await left()).toEqual(['ok', 'bad', 'idle']);
    await clock.advance('2h');
    expect(await left()).toEqual(['bad', 'idle']);
    await clock.advance('1d');
    expect(await left()).toEqual(['idle']);
    await clock.advance('1d');
    expect(await left()).toEqual([]);
  });

  it('keeps completed jobs for 7 days and failed ones for 30 by default', async () => {
    const clock = virtualClock(START);
    const store = memory({ clock });
    const mill = aMill(store, { leaseDuration: '1d' });
    mill.job('ok', () => 1);
    mill.job('bad', once, () => {
      throw new Error('no');
    });
    await mill.start();
    const [ok, bad] = [await mill.enqueue('ok', {}), await mill.enqueue('bad', {})];
    await clock.advance('1s');
    await mill.stop();
    const after = async (days: number, id: string): Promise<Job | undefined> => {
      await store.jobs.sweep?.(new Date(START + days * 86_400_000));
      return mill.jobs.get(id);
    };
    expect(await after(6.9, ok.id)).toBeDefined();
    expect(await after(7.1, ok.id)).toBeUndefined();
    expect(await after(29.9, bad.id)).toBeDefined();
    expect(await after(30.1, bad.id)).toBeUndefined();
  });

  it("a definition's retention overrides that of the mill, and 0 deletes at once", async () => {
    const { clock, mill } = aVirtualMill({ retention: { completed: '1d' } });
    const type = mill.job('a', { retention: { completed: 0 } }, () => 1);
    await mill.start();
    const { id } = await type.enqueue({});
    await clock.advance('1s');
    expect(await mill.jobs.get(id)).toBeUndefined();
  });
});

describe('wake-ups for other instances', () => {
  it('wake-ups resume after a burst although the wall clock was set back', async () => {
    const clock = virtualClock(START);
    let backMs = 0;
    const store = memory({
      clock: {
        now: () => clock.now() - backMs,
        monotonic: () => clock.monotonic(),
        timer: (delayMs, callback) => clock.timer(delayMs, callback),
      },
    });
    const insert = vi.spyOn(store.jobs, 'insert');
    const wakes = (): boolean | undefined => insert.mock.lastCall?.[0].some(({ wake }) => wake !== undefined);
    const mill = aMill(store);
    const past = { runAt: new Date(0) };
    for (let n = 0; n < 30; n += 1) await mill.enqueueMany([{ name: 'a', ...past }]);
    expect(wakes()).toBe(false);
    backMs = 3_600_000;
    await mill.enqueueMany([{ name: 'a', ...past }]);
    await clock.advance('1s');
    await mill.enqueueMany([{ name: 'a', ...past }]);
    expect(wakes()).toBe(true);
  });
});
