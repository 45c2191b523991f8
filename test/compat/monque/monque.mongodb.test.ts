import { once } from 'node:events';
import { inspect } from 'node:util';
import { ObjectId } from 'mongodb';
import { describe, expect, it, vi } from 'vitest';
import {
  AggregationTimeoutError,
  applyJitter,
  calculateBackoff,
  calculateBackoffDelay,
  ConnectionError,
  getNextCronDate,
  InvalidCronError,
  InvalidCursorError,
  InvalidJobIdentifierError,
  isPersistedJob,
  isProcessingJob,
  isRecurringJob,
  isValidJobStatus,
  JobStateError,
  JobStatus,
  Monque,
  MonqueError,
  PayloadTooLargeError,
  ShutdownTimeoutError,
  validateCronExpression,
  validateJobName,
  validateUniqueKey,
  WorkerRegistrationError,
  type Job,
  type PersistedJob,
} from '../../../src/compat/monque/index.js';
import { gate, until } from '../../support/mills.js';
import { freshUri, rawClient } from '../../support/stores.js';
import { Jobs } from '../../../src/jobs/manage/manager.js';
import { aMonque, next } from './a-monque.js';
import { OlderWorker } from './older-worker.js';

const db = () => rawClient(freshUri()).db();

describe('the life of a Monque', () => {
  it('refuses every call before initialize(), and initialize() may be repeated', async () => {
    const monque = new Monque(db(), { logger: false });
    const calls = [
      () => monque.enqueue('x', {}),
      () => monque.now('x', {}),
      () => monque.schedule('* * * * *', 'x', {}),
      () => monque.getJob(new ObjectId()),
      () => monque.getJobs(),
      () => monque.getJobsWithCursor(),
      () => monque.cancelJob('x'),
      () => monque.retryJob('x'),
      () => monque.rescheduleJob('x', new Date()),
      () => monque.deleteJob('x'),
      () => monque.cancelJobs({}),
      () => monque.retryJobs({}),
      () => monque.deleteJobs({}),
      () => monque.getQueueStats(),
      () => monque.getQueueViewSummaries(),
    ];
    for (const call of calls) await expect(call()).rejects.toBeInstanceOf(ConnectionError);
    expect(monque.isHealthy()).toBe(false);
    await Promise.all([monque.initialize(), monque.initialize()]);
    await monque.initialize();
    expect(await monque.getJobs()).toEqual([]);
    await monque.stop();
  });

  it('keeps the cause of a failed initialize()', async () => {
    const monque = new Monque(db(), { logger: false, skipIndexCreation: true });
    const error = await monque.initialize().catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(ConnectionError);
    expect((error as Error).message).toContain('indexes');
    expect((error as Error).cause).toBeInstanceOf(Error);
    await monque.stop();
  });

  it('runs jobs from start() to stop(), and is healthy in between', async () => {
    const { monque } = await aMonque(db());
    const ran: unknown[] = [];
    monque.register<{ n: number }>('x', (job) => void ran.push(job.data.n));
    await monque.enqueue('x', { n: 1 });
    monque.start();
    expect(monque.isHealthy()).toBe(true);
    await until('it ran', () => ran.length === 1);
    await monque.stop();
    expect(monque.isHealthy()).toBe(false);
    await monque.enqueue('x', { n: 2 });
    monque.start();
    await until('the other ran', () => ran.length === 2);
    expect(ran).toEqual([1, 2]);
  });

  it('tells of jobs that outlast the shutdown timeout, and hands them back', async () => {
    const { monque } = await aMonque(db(), { shutdownTimeout: 100 });
    const end = gate();
    monque.register('x', () => end.promise);
    const { _id } = await monque.enqueue('x', {});
    monque.start();
    await next(monque, 'job:start');
    const told = next<{ error: Error }>(monque, 'job:error');
    await monque.stop();
    const { error } = await told;
    end.open();
    expect(error).toBeInstanceOf(ShutdownTimeoutError);
    expect((error as ShutdownTimeoutError<Job>).incompleteJobs.map((job) => job._id)).toEqual([_id]);
    expect(await monque.getJob(_id)).toMatchObject({ status: 'pending', failCount: 0 });
  });

  it('takes old names of options, and warns of them', async () => {
    const warned = once(process, 'warning') as Promise<Error[]>;
    const { monque } = await aMonque(db(), { maxConcurrency: 1, defaultConcurrency: 2 });
    expect((await warned)[0]?.message).toContain('workerConcurrency');
    const end = gate();
    let running = 0;
    monque.register('x', () => {
      running += 1;
      return end.promise;
    });
    await monque.enqueue('x', {});
    await monque.enqueue('x', {});
    monque.start();
    await until('one runs', () => running > 0);
    expect(running).toBe(1);
    end.open();
    await until('both ran', () => running === 2);
  });

  it('refuses a second worker of a name, unless it is to replace the first', async () => {
    const { monque } = await aMonque(db());
    const ran: string[] = [];
    monque.register('x', () => void ran.push('first'));
    const twice = (): void => monque.register('x', () => undefined);
    expect(twice).toThrow(WorkerRegistrationError);
    expect(twice).toThrow(expect.objectContaining({ jobName: 'x' }) as Error);
    monque.register('x', () => void ran.push('second'), { replace: true, concurrency: 1 });
    await monque.now('x', {});
    monque.start();
    await until('it ran', () => ran.length > 0);
    expect(ran).toEqual(['second']);
  });
});

describe('jobs of a Monque', () => {
  it('are records of the old shape: what they are not is absent', async () => {
    const { monque } = await aMonque(db());
    const seen: Job[] = [];
    monque.register('x', (job) => void seen.push(job));
    const runAt = new Date(Date.now() - 1_000);
    const job = await monque.enqueue('x', { a: 1 }, { uniqueKey: 'k', runAt });
    expect(job).toEqual({
      _id: expect.any(ObjectId) as ObjectId,
      name: 'x',
      data: { a: 1 },
      status: JobStatus.PENDING,
      nextRunAt: runAt,
      failCount: 0,
      createdAt: expect.any(Date) as Date,
      updatedAt: expect.any(Date) as Date,
      uniqueKey: 'k',
    });
    monque.start();
    await next(monque, 'job:complete');
    expect(isProcessingJob(seen[0]!)).toBe(true);
    expect(seen[0]).toMatchObject({
      lockedAt: expect.any(Date) as Date,
      claimedBy: expect.any(String) as string,
      lastHeartbeat: expect.any(Date) as Date,
      heartbeatInterval: expect.any(Number) as number,
    });
    const done = (await monque.getJob(job._id))!;
    expect(done.status).toBe('completed');
    expect([done.lockedAt, done.claimedBy, done.lastHeartbeat]).toEqual([undefined, undefined, undefined]);
    expect('lockedAt' in done).toBe(false);
  });

  it('with a unique key are one while they are pending or processing, and return the live one', async () => {
    const { monque } = await aMonque(db());
    const first = await monque.enqueue('x', { n: 1 }, { uniqueKey: 'k' });
    const second = await monque.enqueue('x', { n: 2 }, { uniqueKey: 'k' });
    expect(second).toEqual(first);
    expect((await monque.enqueue('y', { n: 3 }, { uniqueKey: 'k' })).data).toEqual({ n: 3 });
    await monque.cancelJob(String(first._id));
    expect((await monque.enqueue('x', { n: 4 }, { uniqueKey: 'k' }))._id).not.toEqual(first._id);
  });

  it('are tried maxRetries times, and tell each failure', async () => {
    const { monque } = await aMonque(db(), { maxRetries: 3 });
    const told: unknown[] = [];
    monque.on('job:fail', ({ error, willRetry, job }) =>
      told.push([error.message, willRetry, job.failCount]),
    );
    const completed: PersistedJob[] = [];
    monque.on('job:complete', ({ job, duration }) => {
      expect(duration).toBeGreaterThanOrEqual(0);
      completed.push(job);
    });
    monque.register('bad', () => {
      throw new Error('no');
    });
    monque.register('good', () => undefined);
    const { _id } = await monque.enqueue('bad', {});
    await monque.enqueue('good', {});
    monque.start();
    await until('all tries are told', () => told.length === 3);
    await until('the other is done', () => completed.length === 1);
    expect(told).toEqual([
      ['no', true, 1],
      ['no', true, 2],
      ['no', false, 3],
    ]);
    expect(await monque.getJob(_id)).toMatchObject({ status: 'failed', failCount: 3, failReason: 'no' });
  });

  it('refuses names, keys and payloads that Monque refuses', async () => {
    const { monque } = await aMonque(db(), { maxPayloadSize: 40 });
    await expect(monque.enqueue('a b', {})).rejects.toMatchObject({ field: 'name', value: 'a b' });
    await expect(monque.enqueue('x', {}, { uniqueKey: ' ' })).rejects.toBeInstanceOf(
      InvalidJobIdentifierError,
    );
    const error = await monque.enqueue('x', { text: 'x'.repeat(40) }).catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(PayloadTooLargeError);
    // 40 characters, and 27 bytes of BSON around them.
    expect(error).toMatchObject({ actualSize: 67, maxSize: 40 });
    expect(error).toBeInstanceOf(MonqueError);
    expect(await monque.getJobs()).toEqual([]);
  });

  it('ended ones are deleted by jobRetention, cancelled ones never', async () => {
    const { monque, jobs } = await aMonque(db(), { jobRetention: { completed: 1_000, interval: 20 } });
    const old = { updatedAt: new Date(Date.now() - 5_000), nextRunAt: new Date(), createdAt: new Date() };
    await jobs.insertMany(
      ['completed', 'failed', 'cancelled'].map((status) => ({
        name: 'x',
        data: {},
        status,
        failCount: 0,
        ...old,
      })),
    );
    await jobs.insertOne({
      name: 'x',
      data: {},
      status: 'completed',
      failCount: 0,
      ...old,
      updatedAt: new Date(),
    });
    monque.start();
    await until('one is gone', async () => (await jobs.countDocuments({ updatedAt: old.updatedAt })) === 2);
    expect((await monque.getJobs()).map(({ status }) => status).toSorted()).toEqual([
      'cancelled',
      'completed',
      'failed',
    ]);
  });
});

describe('schedules of a Monque', () => {
  it('are one per unique key, or per cron and data', async () => {
    const { monque } = await aMonque(db());
    const yearly = await monque.schedule('0 0 1 1 *', 'report', { a: 1 });
    expect(isRecurringJob(yearly)).toBe(true);
    expect(isPersistedJob(yearly)).toBe(true);
    expect(yearly.nextRunAt).toEqual(new Date(new Date().getFullYear() + 1, 0, 1));
    expect(yearly.uniqueKey).toBeUndefined();
    await monque.schedule('0 0 1 1 *', 'report', { a: 1 });
    await monque.schedule('0 0 1 1 *', 'report', { a: 2 });
    const keyed = await monque.schedule('0 0 1 1 *', 'report', { a: 1 }, { uniqueKey: 'k' });
    expect((await monque.schedule('0 0 1 1 *', 'report', { a: 1 }, { uniqueKey: 'k' }))._id).toEqual(
      keyed._id,
    );
    expect(keyed.uniqueKey).toBe('k');
    expect(await monque.getJobs({ name: 'report' })).toHaveLength(3);
    expect(await monque.getJob(keyed._id)).toMatchObject({ repeatInterval: '0 0 1 1 *' });
    await expect(monque.schedule('each day', 'report', {})).rejects.toBeInstanceOf(InvalidCronError);
  });
});

describe('managing jobs of a Monque', () => {
  it('cancels, retries, reschedules and deletes single jobs, with their events', async () => {
    const { monque } = await aMonque(db());
    const told: unknown[] = [];
    monque.on('job:cancelled', ({ job }) => told.push(['cancelled', job.status]));
    monque.on('job:retried', ({ job, previousStatus }) => told.push(['retried', job.status, previousStatus]));
    monque.on('job:deleted', ({ jobId }) => told.push(['deleted', jobId]));
    const id = String((await monque.enqueue('x', {}))._id);
    expect(await monque.cancelJob(id)).toMatchObject({ status: 'cancelled' });
    expect(await monque.cancelJob(id)).toMatchObject({ status: 'cancelled' });
    await expect(monque.rescheduleJob(id, new Date())).rejects.toBeInstanceOf(JobStateError);
    expect(await monque.retryJob(id)).toMatchObject({ status: 'pending', failCount: 0 });
    await expect(monque.retryJob(id)).rejects.toMatchObject({
      jobId: id,
      currentStatus: 'pending',
      attemptedAction: 'retry',
    });
    const later = new Date('2200-01-01');
    expect(await monque.rescheduleJob(id, later)).toMatchObject({ nextRunAt: later });
    expect(await monque.deleteJob(id)).toBe(true);
    expect(told).toEqual([
      ['cancelled', 'cancelled'],
      ['retried', 'pending', 'cancelled'],
      ['deleted', id],
    ]);
  });

  it.each([new ObjectId().toHexString(), 'no id'])(
    'returns null or false for the unknown id %s',
    async (id) => {
      const { monque } = await aMonque(db());
      const found = [monque.cancelJob(id), monque.retryJob(id), monque.rescheduleJob(id, new Date())];
      expect(await Promise.all(found)).toEqual([null, null, null]);
      expect([await monque.deleteJob(id), await monque.getJob(id)]).toEqual([false, null]);
    },
  );

  it('does not stop a job that begins to run while it is cancelled', async () => {
    const shared = db();
    const { monque, jobs } = await aMonque(shared);
    const { _id } = await monque.enqueue('x', {});
    const begun = vi.spyOn(Jobs.prototype, 'get').mockImplementationOnce(async function (this: Jobs, id) {
      const [found] = (await this.find({ ids: id })).items;
      await new OlderWorker(jobs, 'older').claim('x');
      return found;
    });
    await expect(monque.cancelJob(String(_id))).rejects.toMatchObject({
      name: 'JobStateError',
      currentStatus: 'processing',
    });
    begun.mockRestore();
    const stored = await jobs.findOne({ _id });
    expect(stored).toMatchObject({ status: 'processing' });
    expect(stored?.['cancelRequestedAt'] ?? null).toBeNull();
  });

  it('gives schedules an ObjectId whose text all methods take', async () => {
    const { monque } = await aMonque(db());
    const { _id } = await monque.schedule('0 3 * * *', 'x', {});
    expect(_id).toBeInstanceOf(ObjectId);
    const hex = _id.toHexString();
    expect([_id.equals(hex), _id.equals(new ObjectId()), JSON.parse(JSON.stringify({ _id }))]).toEqual([
      true,
      false,
      { _id: hex },
    ]);
    const same = await monque.getJob(_id);
    expect(same?._id.equals(_id)).toBe(true);
    expect(await monque.rescheduleJob(hex, new Date('2200-01-01'))).toMatchObject({ name: 'x' });
    expect(await monque.deleteJob(hex)).toBe(true);
  });

  it('leaves a running job to its handler', async () => {
    const { monque } = await aMonque(db());
    const end = gate();
    monque.register('x', () => end.promise);
    const id = String((await monque.enqueue('x', {}))._id);
    monque.start();
    await next(monque, 'job:start');
    await expect(monque.cancelJob(id)).rejects.toMatchObject({ currentStatus: 'processing' });
    await expect(monque.deleteJob(id)).rejects.toBeInstanceOf(JobStateError);
    expect(await monque.deleteJobs({ name: 'x' })).toEqual({ count: 0, errors: [] });
    end.open();
    await next(monque, 'job:complete');
  });

  it('changes many jobs by a selector', async () => {
    const { monque } = await aMonque(db());
    const counts: unknown[] = [];
    monque.on('jobs:cancelled', ({ count }) => counts.push(['cancelled', count]));
    monque.on('jobs:retried', ({ count }) => counts.push(['retried', count]));
    monque.on('jobs:deleted', ({ count }) => counts.push(['deleted', count]));
    for (const name of ['a', 'a', 'b']) await monque.enqueue(name, {});
    expect(await monque.cancelJobs({ name: 'a', olderThan: new Date(0) })).toEqual({ count: 0, errors: [] });
    expect(await monque.cancelJobs({ name: 'a', newerThan: new Date(0) })).toEqual({ count: 2, errors: [] });
    expect(await monque.cancelJobs({ status: 'failed' })).toEqual({ count: 0, errors: [] });
    expect(await monque.retryJobs({ status: ['cancelled'] })).toEqual({ count: 2, errors: [] });
    expect(await monque.deleteJobs({})).toEqual({ count: 3, errors: [] });
    expect(counts).toEqual([
      ['cancelled', 2],
      ['retried', 2],
      ['deleted', 3],
    ]);
  });
});

describe('finding jobs of a Monque', () => {
  it('lists by due time, with limit and skip', async () => {
    const { monque } = await aMonque(db());
    for (const n of [3, 1, 2]) await monque.enqueue('x', { n }, { runAt: new Date(4_000_000_000_000 + n) });
    await monque.enqueue('y', { n: 0 });
    const list = async (filter: object): Promise<unknown[]> =>
      (await monque.getJobs<{ n: number }>(filter)).map(({ data }) => data.n);
    expect(await list({})).toEqual([0, 1, 2, 3]);
    expect(await list({ name: 'x', status: 'pending' })).toEqual([1, 2, 3]);
    expect(await list({ skip: 1, limit: 2 })).toEqual([1, 2]);
    expect(await list({ status: ['failed'] })).toEqual([]);
  });

  it('pages in both directions by cursors', async () => {
    const { monque } = await aMonque(db());
    for (const n of [1, 2, 3, 4, 5])
      await monque.enqueue('x', { n }, { runAt: new Date(4_000_000_000_000 + n) });
    const page = async (options: object): Promise<{ ns: number[]; cursor: string; way: boolean[] }> => {
      const { jobs, cursor, hasNextPage, hasPreviousPage } = await monque.getJobsWithCursor<{ n: number }>({
        limit: 2,
        sort: { by: 'nextRunAt', direction: 'desc' },
        ...options,
      });
      return { ns: jobs.map(({ data }) => data.n), cursor: cursor!, way: [hasPreviousPage, hasNextPage] };
    };
    const first = await page({});
    const second = await page({ cursor: first.cursor });
    const third = await page({ cursor: second.cursor, direction: 'forward' });
    const back = await page({ cursor: second.cursor, direction: 'backward' });
    expect([first, second, third, back].map(({ ns, way }) => [ns, way])).toEqual([
      [
        [5, 4],
        [false, true],
      ],
      [
        [3, 2],
        [true, true],
      ],
      [[1], [true, false]],
      [
        [5, 4],
        [false, true],
      ],
    ]);
    expect((await page({ cursor: third.cursor })).ns).toEqual([]);
    const from = new Date(4_000_000_000_004);
    expect((await page({ filter: { nextRunAtFrom: from, statuses: ['pending'] } })).ns).toEqual([5, 4]);
    for (const cursor of ['no cursor', Buffer.from('{}').toString('base64url')])
      await expect(monque.getJobsWithCursor({ cursor })).rejects.toBeInstanceOf(InvalidCursorError);
  });

  it('counts by status and by name', async () => {
    const { monque } = await aMonque(db());
    monque.register('x', () => undefined, { concurrency: 3 });
    await monque.cancelJob(String((await monque.enqueue('x', {}))._id));
    await monque.enqueue('y', {});
    const none = { pending: 0, processing: 0, completed: 0, failed: 0, cancelled: 0, total: 0 };
    expect(await monque.getQueueStats()).toEqual({ ...none, pending: 1, cancelled: 1, total: 2 });
    expect(await monque.getQueueStats({ name: 'x' })).toEqual({ ...none, cancelled: 1, total: 1 });
    expect(await monque.getQueueStats({ name: 'z' })).toEqual(none);
    const summaries = await monque.getQueueViewSummaries();
    expect(Object.isFrozen(summaries)).toBe(true);
    expect(summaries).toEqual([
      { name: 'x', ...none, cancelled: 1, total: 1, worker: { concurrency: 3, active: 0 } },
      { name: 'y', ...none, pending: 1, total: 1 },
    ]);
  });
});

describe('the functions of Monque', () => {
  it('back off by powers of two, with jitter and a cap', () => {
    expect([applyJitter(1_000, 0.25, () => 0), applyJitter(1_000, 0.25, () => 1)]).toEqual([750, 1_250]);
    for (const [failCount, least, most] of [
      [1, 1_500, 2_500],
      [3, 6_000, 10_000],
      [40, 64_800_000, 86_400_000],
    ] as const) {
      const delay = calculateBackoffDelay(failCount);
      expect(delay).toBeGreaterThanOrEqual(least);
      expect(delay).toBeLessThanOrEqual(most);
    }
    expect(calculateBackoffDelay(10, 1, 100)).toBeLessThanOrEqual(100);
    expect(calculateBackoff(1, 10).getTime()).toBeGreaterThan(Date.now());
  });

  it('check names, keys and cron expressions', () => {
    expect(getNextCronDate('0 0 1 1 *', new Date(2026, 5, 1))).toEqual(new Date(2027, 0, 1));
    expect(() => validateCronExpression('0 0 31 2 *')).toThrow(
      expect.objectContaining({ expression: '0 0 31 2 *' }) as Error,
    );
    for (const name of ['', 'a b', 'a\u0000', 'x'.repeat(256)])
      expect(() => validateJobName(name), inspect(name)).toThrow(InvalidJobIdentifierError);
    for (const key of ['', '  ', 'a\n', 'x'.repeat(1_025)])
      expect(() => validateUniqueKey(key), inspect(key)).toThrow(InvalidJobIdentifierError);
    validateJobName('send-email');
    validateUniqueKey('user 1');
  });

  it('tell statuses apart', () => {
    expect(['pending', 'cancelled', 'done', undefined].map(isValidJobStatus)).toEqual([
      true,
      true,
      false,
      false,
    ]);
    expect(new AggregationTimeoutError('late')).toMatchObject({ name: 'AggregationTimeoutError' });
  });
});
