import { AttemptTimeoutError, StoppingError } from '../../../core/errors.js';
import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { aRunningJob, gate, once, until } from '../fixtures.js';

export const life: Chapter = chapter('the life of an attempt', [
  fact('retries a failed job, and records each attempt with its error', async ({ aMill }) => {
    const mill = aMill();
    mill.job('flaky', { retryPolicy: { type: 'fixed', interval: 0 } }, function unlucky(job) {
      if (job.attempt < 3) throw new Error(`no luck ${String(job.attempt)}`);
      return job.failCount;
    });
    await mill.start();
    const job = await mill.enqueue('flaky', {});
    expect(await mill.jobs.result(job.id)).toBe(2);
    const after = await mill.jobs.get(job.id);
    expect(after).toMatchObject({ status: 'completed', failCount: 2, failReason: 'no luck 2' });
    expect(after?.history?.map((entry) => [entry.attempt, entry.status, entry.error?.message])).toEqual([
      [1, 'failed', 'no luck 1'],
      [2, 'failed', 'no luck 2'],
      [3, 'completed', undefined],
    ]);
    expect(after?.history?.[0]?.error?.stack).toContain('unlucky');
  }),

  fact(
    'fails an attempt at its timeout and frees its slot, even if the handler ignores the signal',
    async ({ aMill }) => {
      const mill = aMill({ concurrency: 1 });
      const [reason, never] = [gate<unknown>(), gate()];
      mill.job('deaf', { timeout: 50, retryPolicy: once }, async (job) => {
        job.signal.addEventListener('abort', () => reason.open(job.signal.reason));
        await never.promise;
      });
      mill.job('next', () => 'ran');
      await mill.start();
      const deaf = await mill.enqueue('deaf', {});
      await expect(mill.jobs.result(deaf.id)).rejects.toThrow('ran past its timeout of 50 ms');
      expect(await reason.promise).toBeInstanceOf(AttemptTimeoutError);
      expect(mill.health()).toMatchObject({ abandoned: 1, running: 0 });
      never.open();
      await until('it is no longer counted', () => mill.health().abandoned === 0);
      expect(await mill.jobs.result((await mill.enqueue('next', {})).id)).toBe('ran');
    },
  ),

  fact(
    'stops claiming at maxAbandoned, reports it, and continues when abandoned handlers end',
    async ({ aMill }) => {
      const mill = aMill({ maxAbandoned: 1 });
      const never = gate();
      mill.job('deaf', { timeout: 30, retryPolicy: once }, () => never.promise);
      mill.job('next', () => 'ran');
      await mill.start();
      const deaf = await mill.enqueue('deaf', {});
      await expect(mill.jobs.result(deaf.id)).rejects.toThrow('timeout');
      expect(mill.isHealthy()).toBe(false);
      expect(mill.health().reasons).toEqual(['1 handlers ignore their timeout (maxAbandoned)']);
      const next = await mill.enqueue('next', {});
      await expect(mill.jobs.result(next.id, { timeout: 200 })).rejects.toMatchObject({ code: 'TIMEOUT' });
      never.open();
      expect(await mill.jobs.result(next.id)).toBe('ran');
      expect(mill.isHealthy()).toBe(true);
    },
  ),

  fact('waits for running handlers during a stop', async ({ aMill }) => {
    const mill = aMill();
    const { job, finish } = await aRunningJob(mill);
    const [first, second] = [mill.stop(), mill.stop()];
    expect(first).toBe(second);
    finish.open();
    await first;
    expect(await mill.jobs.get(job.id)).toMatchObject({ status: 'completed', result: 'done' });
  }),

  fact(
    'releases jobs that did not end before the stop timeout, without using an attempt, and reports them',
    async ({ aMill }) => {
      const lines: string[] = [];
      const line = (_fields: object, message: string): void => void lines.push(message);
      const mill = aMill({ logger: { debug: line, info: line, warn: line, error: line } });
      const [running, reason] = [gate(), gate<unknown>()];
      mill.job('slow', async (job) => {
        running.open();
        await new Promise((resolve) => job.signal.addEventListener('abort', resolve));
        reason.open(job.signal.reason);
        throw new Error('interrupted');
      });
      mill.job('deaf', () => new Promise(() => undefined));
      await mill.start();
      const [slow, deaf] = await mill.enqueueMany([{ name: 'slow' }, { name: 'deaf' }]);
      await running.promise;
      await until('both run', () => mill.health().running === 2);
      await mill.stop({ timeout: 20 });
      expect(await reason.promise).toBeInstanceOf(StoppingError);
      for (const id of [slow.id, deaf.id]) {
        expect(await mill.jobs.get(id)).toMatchObject({ status: 'pending', failCount: 0, lockedAt: null });
        expect(lines.join('\n')).toContain(id);
      }
      const other = aMill();
      other.job('slow', (job) => job.attempt);
      await other.start();
      expect(await other.jobs.result(slow.id)).toBe(1);
    },
  ),

  fact('releases prefetched jobs on stop', async ({ aMill }) => {
    const mill = aMill({ concurrency: 2 });
    const [enough, stopNow] = [gate(), gate()];
    let runs = 0;
    const quick = mill.job<number>('quick', { concurrency: 2 }, async () => {
      runs += 1;
      // Short ones first, until more is taken ahead; then some that last.
      if (mill.health().buffered === 0) return;
      enough.open();
      await stopNow.promise;
    });
    await quick.enqueueMany(Array.from({ length: 2_000 }, (_, data) => ({ data })));
    await mill.start();
    await enough.promise;
    const stopped = mill.stop();
    stopNow.open();
    await stopped;
    const { pending, processing, completed } = await mill.jobs.stats();
    expect(processing).toBe(0);
    expect(pending + completed).toBe(2_000);
    expect(completed).toBe(runs);
    expect((await mill.jobs.find({ status: 'pending' }, { limit: 1 })).items[0]).toMatchObject({
      failCount: 0,
    });
  }),

  fact('runs jobs again when started after a stop', async ({ aMill }) => {
    const mill = aMill();
    mill.job('x', () => 'ran');
    await mill.start();
    await mill.start();
    await mill.stop();
    await mill.stop();
    const job = await mill.enqueue('x', {});
    await mill.start();
    expect(await mill.jobs.result(job.id)).toBe('ran');
  }),

  fact(
    'defers a job without using an attempt, and fails it if the handler throws after a defer',
    async ({ aMill }) => {
      const mill = aMill();
      let runs = 0;
      mill.job('later', ({ defer, attempt }) => {
        runs += 1;
        if (runs > 1) return attempt;
        defer(20);
        return undefined;
      });
      mill.job('torn', { retryPolicy: once }, ({ defer }) => {
        defer('1h');
        throw new Error('after all');
      });
      await mill.start();
      const [later, torn] = await mill.enqueueMany([{ name: 'later' }, { name: 'torn' }]);
      expect(await mill.jobs.result(later.id)).toBe(1);
      await expect(mill.jobs.result(torn.id)).rejects.toThrow('after all');
    },
  ),

  fact('stores progress and log lines during a job and after it', async ({ aMill }) => {
    const mill = aMill();
    const [halfway, finish] = [gate(), gate()];
    mill.job('steps', async ({ progress, log }) => {
      progress({ done: 1, of: 2 });
      log('first half', { $rows: 10 });
      halfway.open();
      await finish.promise;
      progress({ done: 2, of: 2 });
      log('second half');
    });
    await mill.start();
    const seen: unknown[] = [];
    mill.on('job:progress', (event) => seen.push(event.progress));
    const job = await mill.enqueue('steps', {});
    await halfway.promise;
    await until('others can see it', async () => (await mill.jobs.get(job.id))?.progress !== undefined);
    finish.open();
    await mill.jobs.result(job.id);
    const after = await mill.jobs.get(job.id);
    expect(after).toMatchObject({ progress: { done: 2, of: 2 } });
    expect(after?.logs?.map((line) => [line.message, line.fields])).toEqual([
      ['first half', { $rows: 10 }],
      ['second half', undefined],
    ]);
    expect(seen).toEqual([
      { done: 1, of: 2 },
      { done: 2, of: 2 },
    ]);
  }),

  fact('deletes a job when it ends if its retention is zero', async ({ aMill }) => {
    const mill = aMill({ retention: { completed: 0 } });
    const ran = gate();
    mill.on('job:complete', () => ran.open());
    mill.job('x', () => 'ran');
    await mill.start();
    const job = await mill.enqueue('x', {});
    await ran.promise;
    expect(await mill.jobs.get(job.id)).toBeUndefined();
  }),

  fact(
    "completes a job inside a transaction, together with the handler's own writes",
    ['transactions'],
    async ({ aMill }) => {
      const mill = aMill();
      let tries = 0;
      const completed = gate<{ result: unknown }>();
      mill.on('job:complete', completed.open);
      mill.job('exact', async (job) => {
        await mill.withTransaction(async (transaction) => {
          tries += 1;
          await mill.enqueue('effect', { of: job.id }, { transaction });
          await job.complete({ transaction, result: 'together' });
        });
      });
      await mill.start();
      const job = await mill.enqueue('exact', {});
      expect(await mill.jobs.result(job.id)).toBe('together');
      expect((await completed.promise).result).toBe('together');
      expect(tries).toBe(1);
      expect(await mill.jobs.get(job.id)).toMatchObject({
        status: 'completed',
        result: 'together',
        failCount: 0,
      });
      expect(await mill.jobs.count({ name: 'effect' })).toBe(1);
    },
  ),

  fact(
    'stores progress and log lines of a handler that completes inside a transaction',
    ['transactions'],
    async ({ aMill }) => {
      const mill = aMill();
      mill.job('exact', { transactional: true }, async (job) => {
        job.log('one');
        await mill.withTransaction(async (transaction) => {
          job.log('two');
          job.progress({ done: 2 });
          await job.complete({ transaction });
        });
      });
      await mill.start();
      const { id } = await mill.enqueue('exact', {});
      await mill.jobs.result(id);
      const job = await mill.jobs.get(id);
      expect(job).toMatchObject({ status: 'completed', progress: { done: 2 } });
      expect(job?.logs?.map(({ message }) => message)).toEqual(['one', 'two']);
    },
  ),

  fact(
    'completes a scheduled run inside a transaction when its schedule changed during the run',
    ['transactions', 'schedules'],
    async ({ aMill }) => {
      const mill = aMill();
      const [changed, ended] = [gate<unknown>(), gate()];
      mill.on('job:complete', () => ended.open());
      mill.on('job:fail', ({ error }) => changed.open(error));
      let runs = 0;
      mill.job('nightly', async (job) => {
        runs += 1;
        await mill.schedule('0 4 * * *', 'nightly', { version: 2 });
        await mill.withTransaction((transaction) => job.complete({ transaction, result: 'together' }));
        changed.open('done');
      });
      await mill.start();
      await mill.schedule('0 3 * * *', 'nightly', { version: 1 });
      await mill.schedules.runNow('nightly');
      expect(await changed.promise).toBe('done');
      await ended.promise;
      expect(runs).toBe(1);
      expect((await mill.schedules.list())[0]).toMatchObject({ data: { version: 2 }, cron: '0 4 * * *' });
    },
  ),

  fact(
    'neither completes a job nor writes anything when its transaction is rolled back',
    ['transactions'],
    async ({ aMill }) => {
      const mill = aMill();
      mill.job('exact', { retryPolicy: { type: 'fixed', interval: 0, maxAttempts: 2 } }, async (job) => {
        await mill.withTransaction(async (transaction) => {
          await mill.enqueue('effect', { attempt: job.attempt }, { transaction });
          await job.complete({ transaction });
          if (job.attempt === 1) throw new Error('rolled back');
        });
      });
      await mill.start();
      const job = await mill.enqueue('exact', {});
      await mill.jobs.result(job.id);
      expect(await mill.jobs.get(job.id)).toMatchObject({
        status: 'completed',
        failCount: 1,
        failReason: 'rolled back',
      });
      expect((await mill.jobs.find({ name: 'effect' })).items.map((effect) => effect.data)).toEqual([
        { attempt: 2 },
      ]);
    },
  ),

  fact('refuses to start a second process with the same instanceId', async ({ aMill }) => {
    const [first, second] = [aMill({ instanceId: 'one' }), aMill({ instanceId: 'one' })];
    await first.start();
    await expect(second.start()).rejects.toThrow(`pid ${String(process.pid)}`);
    await first.stop();
    await second.start();
    expect(second.isHealthy()).toBe(true);
  }),

  fact('runs jobs of a handler that is added after the start', async ({ aMill }) => {
    const mill = aMill();
    await mill.start();
    const job = await mill.enqueue('late', {});
    mill.job('late', () => 'ran');
    expect(await mill.jobs.result(job.id)).toBe('ran');
  }),

  fact(
    'does not let a flood of one name starve another name, even when it fills every slot',
    async ({ aMill }) => {
      const mill = aMill({ concurrency: 5 });
      let flooded = 0;
      const flood = mill.job('flood', { concurrency: 50 }, () => {
        flooded += 1;
      });
      mill.job('trickle', () => flooded);
      await flood.enqueueMany(Array.from({ length: 5_000 }, () => ({ data: {} })));
      const trickle = await mill.enqueue('trickle', {});
      await mill.start();
      expect(await mill.jobs.result(trickle.id)).toBeLessThan(2_500);
    },
  ),
]);
