import type { StandardSchemaV1 } from '@standard-schema/spec';
import { CancelledError } from '../../../core/errors.js';
import { defineJob } from '../../../index.js';
import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { aRunningJob, gate, until } from '../fixtures.js';

const addressed: StandardSchemaV1<{ to: string }> = {
  '~standard': {
    version: 1,
    vendor: 'tidemill',
    validate: (value) => {
      const { to } = Object(value) as { to?: unknown };
      return typeof to === 'string'
        ? { value: { to } }
        : { issues: [{ message: 'expected a string', path: ['to'] }] };
    },
  },
};

export const managing: Chapter = chapter('management', [
  fact('cancels a pending job at once, and returns finished or missing for others', async ({ aMill }) => {
    const mill = aMill();
    const job = await mill.enqueue('x', {}, { delay: '1h' });
    expect(await mill.jobs.cancel(job.id)).toMatchObject({
      outcome: 'cancelled',
      job: { status: 'cancelled' },
    });
    expect(await mill.jobs.cancel(job.id)).toMatchObject({ outcome: 'finished' });
    expect(await mill.jobs.cancel('nowhere')).toEqual({ outcome: 'missing', job: undefined });
  }),

  fact('aborts the signal of a handler on another instance when its job is cancelled', async ({ aMill }) => {
    const [worker, other] = [aMill(), aMill()];
    const [running, reason] = [gate(), gate<unknown>()];
    worker.job('slow', async (job) => {
      running.open();
      await new Promise((_resolve, reject) => {
        job.signal.addEventListener('abort', () => {
          reason.open(job.signal.reason);
          reject(new Error('gave up'));
        });
      });
    });
    await worker.start();
    const cancelled = gate<{ job: { id: string } }>();
    worker.on('job:cancel', cancelled.open);
    const job = await other.enqueue('slow', {});
    await running.promise;
    expect(await other.jobs.cancel(job.id, { wait: true })).toMatchObject({
      outcome: 'cancelled',
      job: { status: 'cancelled' },
    });
    expect(await reason.promise).toBeInstanceOf(CancelledError);
    expect((await cancelled.promise).job.id).toBe(job.id);
    expect(await other.jobs.get(job.id)).toMatchObject({ status: 'cancelled', failCount: 0 });
  }),

  fact('completes a job whose handler ignores the cancellation and returns', async ({ aMill }) => {
    const mill = aMill();
    const [running, finish] = [gate(), gate()];
    mill.job('stubborn', async (job) => {
      job.signal.addEventListener('abort', () => finish.open());
      running.open();
      await finish.promise;
      return 'done all the same';
    });
    await mill.start();
    const job = await mill.enqueue('stubborn', {});
    await running.promise;
    expect(await mill.jobs.cancel(job.id)).toMatchObject({ outcome: 'requested' });
    expect(await mill.jobs.cancel(job.id, { wait: true })).toMatchObject({
      outcome: 'finished',
      job: { status: 'completed' },
    });
  }),

  fact(
    'cancels a job instead of retrying it if its handler fails after the cancellation',
    async ({ aMill }) => {
      const mill = aMill();
      const [running, finish] = [gate(), gate()];
      mill.job('failing', async () => {
        running.open();
        await finish.promise;
        throw new Error('by itself');
      });
      await mill.start();
      const job = await mill.enqueue('failing', {});
      await running.promise;
      await mill.jobs.cancel(job.id);
      finish.open();
      await until('it has ended', async () => (await mill.jobs.get(job.id))?.status === 'cancelled');
    },
  ),

  fact('retries failed and cancelled jobs with a fresh sequence of attempts', async ({ aMill }) => {
    const mill = aMill();
    let fail = true;
    mill.job('x', { retryPolicy: { type: 'fixed', interval: 0, maxAttempts: 2 } }, (job) => {
      if (fail) throw new Error('not yet');
      return job.attempt;
    });
    await mill.start();
    const job = await mill.enqueue('x', {});
    await expect(mill.jobs.result(job.id)).rejects.toThrow('failed after 2 attempts: not yet');
    fail = false;
    expect(await mill.jobs.retry(job.id)).toMatchObject({
      outcome: 'retried',
      job: { status: 'pending', failCount: 0 },
    });
    expect(await mill.jobs.result(job.id)).toBe(1);
    expect(await mill.jobs.retry(job.id)).toMatchObject({ outcome: 'finished' });
    const waiting = await mill.enqueue('x', {}, { delay: '1h' });
    expect(await mill.jobs.retry(waiting.id)).toMatchObject({ outcome: 'unfinished' });
    expect(await mill.jobs.retry('nowhere')).toEqual({ outcome: 'missing', job: undefined });
  }),

  fact('replaces the payload on a retry of a failed or cancelled job, and of no other', async ({ aMill }) => {
    const mill = aMill();
    const job = await mill.enqueue('x', { to: 'ada', at: new Date(0) }, { delay: '1h' });
    expect(await mill.jobs.retry(job.id, { data: { to: 'eve' } })).toMatchObject({ outcome: 'unfinished' });
    expect((await mill.jobs.get(job.id))?.data).toEqual({ to: 'ada', at: new Date(0) });
    await mill.jobs.cancel(job.id);
    const data = { to: 'grace', at: new Date(1), nested: [{ $set: 'kept', 'a.b': null }] };
    expect(await mill.jobs.retry(job.id, { data })).toMatchObject({
      outcome: 'retried',
      job: { status: 'pending', data },
    });
    await mill.jobs.cancel(job.id);
    expect((await mill.jobs.retry(job.id)).job?.data).toEqual(data);
    await mill.jobs.cancel(job.id);
    expect((await mill.jobs.retry(job.id, { data: null })).job?.data).toBeNull();
    await mill.jobs.cancel(job.id);
    await expect(mill.jobs.retry(job.id, { data: { n: NaN } })).rejects.toThrow('data.n');
    expect(await mill.jobs.get(job.id)).toMatchObject({ status: 'cancelled', data: null });
    expect(await mill.jobs.retry('nowhere', { data })).toEqual({ outcome: 'missing', job: undefined });
  }),

  fact('refuses a retry whose payload does not match the schema of the job', async ({ aMill }) => {
    const mill = aMill();
    mill.work(defineJob('mail', { schema: addressed }), () => undefined);
    const job = await mill.enqueue('mail', { to: 'ada' }, { delay: '1h' });
    await mill.jobs.cancel(job.id);
    await expect(mill.jobs.retry(job.id, { data: { to: 5 } })).rejects.toThrow('to: expected a string');
    expect(await mill.jobs.get(job.id)).toMatchObject({ status: 'cancelled', data: { to: 'ada' } });
    expect(await mill.jobs.retry(job.id, { data: { to: 'eve' } })).toMatchObject({ outcome: 'retried' });
  }),

  fact('removes a job that is not running, and returns running for one that is', async ({ aMill }) => {
    const mill = aMill();
    const { job, finish } = await aRunningJob(mill);
    expect(await mill.jobs.remove(job.id)).toMatchObject({ outcome: 'running' });
    finish.open();
    await mill.jobs.result(job.id);
    expect(await mill.jobs.remove(job.id)).toMatchObject({ outcome: 'removed' });
    expect(await mill.jobs.get(job.id)).toBeUndefined();
    expect(await mill.jobs.remove(job.id)).toEqual({ outcome: 'missing', job: undefined });
  }),

  fact('reschedules a pending job, and runs it at its new time', async ({ aMill }) => {
    const mill = aMill();
    mill.job('x', () => 'ran');
    await mill.start();
    const job = await mill.enqueue('x', {}, { delay: '1d' });
    expect(await mill.jobs.reschedule(job.id, '30ms')).toMatchObject({ outcome: 'rescheduled' });
    expect(await mill.jobs.result(job.id)).toBe('ran');
    expect(await mill.jobs.reschedule(job.id, new Date())).toMatchObject({ outcome: 'finished' });
  }),

  fact(
    'changes many jobs in batches, only with an explicit filter, and returns the count',
    async ({ aMill }) => {
      const mill = aMill();
      await mill.enqueueMany(
        Array.from({ length: 1_234 }, (_, n) => ({
          name: n % 2 === 0 ? 'even' : 'odd',
          data: n,
          delay: '1h',
        })),
      );
      expect(await mill.jobs.cancelMany({ name: 'even' })).toEqual({ count: 617 });
      expect(await mill.jobs.retryMany({ name: ['even', 'odd'] })).toEqual({ count: 617 });
      expect(await mill.jobs.cancelMany({ all: true })).toEqual({ count: 1_234 });
      expect(await mill.jobs.removeMany({ status: 'cancelled', name: 'odd' })).toEqual({ count: 617 });
      expect(await mill.jobs.removeMany({ status: 'processing' })).toEqual({ count: 0 });
      expect(await mill.jobs.count()).toBe(617);
      await expect(mill.jobs.removeMany({})).rejects.toThrow('{ all: true }');
      await expect(mill.jobs.removeMany({ nme: 'even' } as never)).rejects.toThrow('Did you mean "name"?');
      await expect(mill.jobs.cancelMany({ name: { $ne: '' } } as never)).rejects.toThrow('filter.name');
      expect(await mill.jobs.count()).toBe(617);
    },
  ),

  fact('pages through jobs in both directions, stable under inserts', async ({ aMill }) => {
    const mill = aMill();
    for (let n = 0; n < 25; n += 1) await mill.enqueue('x', n, { delay: '1h' });
    const first = await mill.jobs.find({ name: 'x' }, { limit: 10 });
    expect(first.items.map((job) => job.data)).toEqual([24, 23, 22, 21, 20, 19, 18, 17, 16, 15]);
    expect(first.previous).toBeNull();
    await mill.enqueue('x', 'new', { delay: '1h' });
    const second = await mill.jobs.find({ name: 'x' }, { limit: 10, cursor: first.next ?? '' });
    expect(second.items.map((job) => job.data)).toEqual([14, 13, 12, 11, 10, 9, 8, 7, 6, 5]);
    const third = await mill.jobs.find({ name: 'x' }, { limit: 10, cursor: second.next ?? '' });
    expect(third.items.map((job) => job.data)).toEqual([4, 3, 2, 1, 0]);
    expect(third.next).toBeNull();
    const back = await mill.jobs.find({ name: 'x' }, { limit: 10, cursor: third.previous ?? '' });
    expect(back.items.map((job) => job.data)).toEqual(second.items.map((job) => job.data));
    const newest = await mill.jobs.find({ name: 'x' }, { limit: 50, cursor: second.previous ?? '' });
    expect(newest.items.map((job) => job.data)).toEqual(['new', ...first.items.map((job) => job.data)]);
    expect(newest.previous).toBeNull();
  }),

  fact('orders jobs of the same time by id', async ({ aMill }) => {
    const mill = aMill();
    const ids = (
      await mill.enqueueMany(Array.from({ length: 20 }, (_, n) => ({ name: 'x', data: n, delay: '1h' })))
    ).map((job) => job.id);
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const page: Awaited<ReturnType<typeof mill.jobs.find>> = await mill.jobs.find(
        { status: 'pending' },
        cursor === null ? { limit: 3, sort: { createdAt: 1 } } : { limit: 3, cursor },
      );
      seen.push(...page.items.map((job) => job.id));
      cursor = page.next;
    } while (cursor !== null);
    expect(seen.sort()).toEqual(ids.sort());
  }),

  fact('finds jobs by every key of the filter', async ({ aMill }) => {
    const mill = aMill();
    const a = await mill.enqueue('a', 1, { uniqueKey: 'k', runAt: new Date('2030-01-01') });
    const b = await mill.enqueue('b', 2, { runAt: new Date('2031-01-01') });
    const found = async (filter: Parameters<typeof mill.jobs.find>[0]): Promise<string[]> =>
      (await mill.jobs.find(filter)).items.map((job) => job.id).sort();
    expect(await found({ ids: a.id })).toEqual([a.id]);
    expect(await found({ ids: [a.id, b.id] })).toEqual([a.id, b.id].sort());
    expect(await found({ uniqueKey: 'k' })).toEqual([a.id]);
    expect(await found({ nextRunAt: { from: new Date('2030-06-01') } })).toEqual([b.id]);
    expect(await found({ nextRunAt: { from: new Date('2029-06-01'), to: new Date('2030-06-01') } })).toEqual([
      a.id,
    ]);
    expect(await found({ createdAt: { to: new Date(0) } })).toEqual([]);
    expect(await found({ error: 'a.*' })).toEqual([]);
    expect(await mill.jobs.count({ status: ['pending', 'failed'], name: 'b' })).toBe(1);
  }),

  fact('counts jobs by name and status', async ({ aMill }) => {
    const mill = aMill();
    await mill.enqueueMany([{ name: 'a' }, { name: 'a', delay: '1h' }, { name: 'b', delay: '1h' }]);
    mill.job('a', () => undefined);
    await mill.start();
    await until('one has run', async () => (await mill.jobs.stats()).completed === 1);
    expect(await mill.jobs.stats()).toMatchObject({
      pending: 2,
      completed: 1,
      total: 3,
      capped: [],
      names: { a: { pending: 1, completed: 1, failed: 0 }, b: { pending: 1, completed: 0 } },
    });
  }),

  fact('pauses and resumes a name for every instance', async ({ aMill }) => {
    const [worker, operator] = [aMill(), aMill()];
    worker.job('x', () => 'ran');
    worker.job('probe', () => 'ran');
    await worker.start();
    await operator.jobs.pause('x');
    const job = await operator.enqueue('x', {});
    const probe = await operator.enqueue('probe', {});
    await operator.jobs.result(probe.id);
    expect(await operator.jobs.get(job.id)).toMatchObject({ status: 'pending' });
    await operator.jobs.resume('x');
    expect(await operator.jobs.result(job.id)).toBe('ran');
  }),
]);
