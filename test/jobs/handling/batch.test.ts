import { expect, it } from 'vitest';
import {
  defineJob,
  FatalError,
  OptionError,
  type BatchJob,
  type Job,
  type Tidemill,
} from '../../../src/index.js';
import { aMill, gate, until } from '../../support/mills.js';
import { eachStore } from '../../support/stores.js';

const imported = defineJob<number>('import', {
  retryPolicy: { type: 'fixed', interval: '1h', maxAttempts: 3 },
});

const enqueue = async (mill: Tidemill, count: number, definition = imported): Promise<Job<number>[]> =>
  mill.enqueueMany(Array.from({ length: count }, (_, data) => ({ job: definition, data })));

const jobOf = async (mill: Tidemill, { id }: { id: string }): Promise<Job> => (await mill.jobs.get(id))!;

/** Resolves when none of the jobs is due or runs. */
const settled = (mill: Tidemill, jobs: readonly { id: string }[]): Promise<unknown> =>
  until('the jobs have ended', async () => {
    const now = await Promise.all(jobs.map((job) => jobOf(mill, job)));
    const isLater = ({ nextRunAt }: Job): boolean => nextRunAt.getTime() > Date.now() + 60_000;
    return now.every((job) => job.status !== 'processing' && (job.status !== 'pending' || isLater(job)));
  });

eachStore('batches of jobs', ({ open }) => {
  it('gives a handler up to `size` jobs of a name in one call', async () => {
    const mill = aMill(open());
    const calls: number[][] = [];
    mill.batch(imported, { size: 4, concurrency: 1 }, (jobs) => {
      calls.push(jobs.map(({ data }) => data));
    });
    const jobs = await enqueue(mill, 10);
    await mill.start();
    await settled(mill, jobs);
    expect(calls.flat().sort((a, b) => a - b)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    expect(Math.max(...calls.map(({ length }) => length))).toBe(4);
    expect(calls.length).toBeLessThanOrEqual(4);
    expect(await mill.jobs.count({ status: 'completed' })).toBe(10);
  });

  it('gives each job the outcome that it was given, and its result', async () => {
    const mill = aMill(open());
    mill.batch(imported, (jobs) => {
      const [first, second, third, fourth] = jobs as [BatchJob, BatchJob, BatchJob, BatchJob];
      first.complete({ stored: 1 });
      second.fail(new Error('no such row'));
      third.defer('2h');
      fourth.fail(new FatalError('never'));
    });
    const jobs = await enqueue(mill, 5);
    await mill.start();
    await settled(mill, jobs);
    const now = await Promise.all(jobs.map((job) => jobOf(mill, job)));
    expect(now.map(({ status, failCount }) => [status, failCount])).toEqual([
      ['completed', 0],
      ['pending', 1],
      ['pending', 0],
      ['failed', 1],
      ['completed', 0],
    ]);
    expect(now[0]!.result).toEqual({ stored: 1 });
    expect(now[1]!.failReason).toBe('no such row');
  });

  it('fails the jobs without an outcome when the handler throws', async () => {
    const mill = aMill(open());
    mill.batch(imported, ([first]) => {
      first!.complete('kept');
      throw new Error('lost connection');
    });
    const jobs = await enqueue(mill, 3);
    await mill.start();
    await settled(mill, jobs);
    const now = await Promise.all(jobs.map((job) => jobOf(mill, job)));
    expect(now.map(({ status, failReason }) => [status, failReason])).toEqual([
      ['completed', undefined],
      ['pending', 'lost connection'],
      ['pending', 'lost connection'],
    ]);
  });

  it('records an outcome while the handler still runs', async () => {
    const mill = aMill(open());
    const end = gate();
    mill.batch(imported, async ([first]) => {
      first!.complete();
      await end.promise;
    });
    const [first, second] = await enqueue(mill, 2);
    await mill.start();
    await until('the first is recorded', async () => (await jobOf(mill, first!)).status === 'completed');
    expect((await jobOf(mill, second!)).status).toBe('processing');
    end.open();
    await settled(mill, [second!]);
  });

  it('lets outcomes stand at a timeout, and fails the rest', async () => {
    const mill = aMill(open());
    const timed = defineJob<number>('timed', {
      timeout: 200,
      retryPolicy: { type: 'fixed', interval: '1h', maxAttempts: 3 },
    });
    const end = gate();
    const aborted: unknown[] = [];
    mill.batch(timed, { wait: 0 }, async ([first, second], { signal }) => {
      first!.complete();
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      aborted.push(signal.reason, second!.signal.reason);
      await end.promise;
      second!.complete();
    });
    const jobs = await enqueue(mill, 2, timed);
    await mill.start();
    await settled(mill, jobs);
    const [first, second] = await Promise.all(jobs.map((job) => jobOf(mill, job)));
    expect(first!.status).toBe('completed');
    expect(second).toMatchObject({
      status: 'pending',
      failReason: expect.stringContaining('timeout') as string,
    });
    expect(aborted.map((reason) => (reason as { code: string }).code)).toEqual(['TIMEOUT', 'TIMEOUT']);
    end.open();
  });

  it('aborts the signal of the cancelled job only', async () => {
    const mill = aMill(open());
    const began = gate();
    const end = gate();
    const seen: boolean[] = [];
    mill.batch(imported, async (jobs, { signal }) => {
      began.open();
      const { signal: own } = jobs[1]!;
      if (!own.aborted) await new Promise((resolve) => own.addEventListener('abort', resolve));
      seen.push(...jobs.map((job) => job.signal.aborted), signal.aborted);
      await end.promise;
    });
    const jobs = await enqueue(mill, 3);
    await mill.start();
    await began.promise;
    await mill.jobs.cancel(jobs[1]!.id);
    await until('the signal has aborted', () => seen.length > 0);
    expect(seen).toEqual([false, true, false, false]);
    end.open();
    await settled(mill, jobs);
    const now = await Promise.all(jobs.map((job) => jobOf(mill, job)));
    expect(now.map(({ status }) => status)).toEqual(['completed', 'cancelled', 'completed']);
  });

  it('completes all jobs of a batch inside one transaction', async () => {
    const mill = aMill(open());
    const rolledBack: boolean[] = [];
    mill.batch(imported, async (jobs, { complete }) => {
      const undone = mill.withTransaction(async (transaction) => {
        await complete({ transaction });
        throw new Error('undo');
      });
      await undone.catch(() => rolledBack.push(true));
      jobs[0]!.complete('alone');
      await mill.withTransaction(async (transaction) => complete({ transaction, result: 'together' }));
    });
    const jobs = await enqueue(mill, 3);
    await mill.start();
    await settled(mill, jobs);
    const now = await Promise.all(jobs.map((job) => jobOf(mill, job)));
    expect(rolledBack).toEqual([true]);
    expect(now.map(({ status, result }) => [status, result])).toEqual([
      ['completed', 'alone'],
      ['completed', 'together'],
      ['completed', 'together'],
    ]);
  });

  it('hands back jobs that wait for a full batch when it stops, without using an attempt', async () => {
    const mill = aMill(open());
    let calls = 0;
    mill.batch(imported, { size: 10, wait: '1m' }, () => {
      calls += 1;
    });
    const jobs = await enqueue(mill, 3);
    await mill.start();
    await until('the jobs are claimed', async () => (await jobOf(mill, jobs[2]!)).status === 'processing');
    await mill.stop();
    const now = await Promise.all(jobs.map((job) => jobOf(mill, job)));
    expect(now.map(({ status, failCount }) => [status, failCount])).toEqual(
      Array.from({ length: 3 }, () => ['pending', 0]),
    );
    expect(calls).toBe(0);
  });

  it('starts a batch that waits as soon as it is full', async () => {
    const mill = aMill(open());
    const sizes: number[] = [];
    mill.batch(imported, { size: 3, wait: '1m' }, (jobs) => void sizes.push(jobs.length));
    await mill.start();
    const jobs = await enqueue(mill, 2);
    await until('two wait', async () => (await jobOf(mill, jobs[1]!)).status === 'processing');
    expect(sizes).toEqual([]);
    jobs.push(...(await enqueue(mill, 1)));
    await settled(mill, jobs);
    expect(sizes).toEqual([3]);
  });

  it('cancels a job that waits for a full batch', async () => {
    const mill = aMill(open());
    const sizes: number[] = [];
    mill.batch(imported, { size: 10, wait: '2s' }, (jobs) => void sizes.push(jobs.length));
    await mill.start();
    const jobs = await enqueue(mill, 2);
    await until('two wait', async () => (await jobOf(mill, jobs[1]!)).status === 'processing');
    await mill.jobs.cancel(jobs[0]!.id);
    await settled(mill, jobs);
    expect((await jobOf(mill, jobs[0]!)).status).toBe('cancelled');
    expect(sizes).toEqual([1]);
  });

  it('keeps progress and log lines of each job', async () => {
    const mill = aMill(open());
    mill.batch(imported, (jobs) => {
      for (const { data, progress, log, complete } of jobs) {
        progress({ row: data });
        log(`row ${String(data)}`);
        complete();
      }
    });
    const jobs = await enqueue(mill, 2);
    await mill.start();
    await settled(mill, jobs);
    const now = await Promise.all(jobs.map((job) => jobOf(mill, job)));
    expect(now.map(({ progress }) => progress)).toEqual([{ row: 0 }, { row: 1 }]);
    expect(now.map(({ logs }) => logs?.map(({ message }) => message))).toEqual([['row 0'], ['row 1']]);
  });

  it('retries a job when its error says so, whether it was given or thrown', async () => {
    const mill = aMill(open());
    const busy = (retryAfter: string): Error => Object.assign(new Error('busy'), { retryAfter });
    mill.batch(imported, ([first]) => {
      first!.fail(busy('3h'));
      throw busy('5h');
    });
    const jobs = await enqueue(mill, 3);
    await mill.start();
    await settled(mill, jobs);
    const now = await Promise.all(jobs.map((job) => jobOf(mill, job)));
    const hours = now.map(({ nextRunAt }) => Math.round((nextRunAt.getTime() - Date.now()) / 3_600_000));
    expect(hours).toEqual([3, 5, 5]);
    expect(now.map(({ failCount }) => failCount)).toEqual([1, 1, 1]);
  });

  it('counts jobs, not calls, for limits and rates, each until its outcome is recorded', async () => {
    const mill = aMill(open());
    const limits = { concurrency: 3, rate: { limit: 5, per: '1h', burst: 5 } };
    const limited = defineJob<number>('limited', { limits });
    const [one, all] = [gate(), gate()];
    let [started, running, most] = [0, 0, 0];
    mill.batch(limited, { size: 10 }, async (jobs) => {
      started += jobs.length;
      running += jobs.length;
      most = Math.max(most, running);
      await one.promise;
      running -= 1;
      jobs[0]!.complete();
      await all.promise;
    });
    await enqueue(mill, 8, limited);
    await mill.start();
    // In one call, or in several if another claim found the first of them.
    await until('three run', () => started === 3);
    one.open();
    // Each outcome makes room for one more, until the rate is used up.
    await until('the rate is used up', () => started === 5);
    expect(most).toBe(3);
    all.open();
    await until('all five have ended', async () => (await mill.jobs.count({ status: 'completed' })) === 5);
    expect(await mill.jobs.count({ status: 'pending' })).toBe(3);
  });

  it('refuses a second outcome for a job, and the first one stands', async () => {
    const mill = aMill(open());
    const refused: unknown[] = [];
    mill.batch(imported, ([only]) => {
      only!.complete('first');
      try {
        only!.fail(new Error('second'));
      } catch (error) {
        refused.push(error);
      }
    });
    const jobs = await enqueue(mill, 1);
    await mill.start();
    await settled(mill, jobs);
    expect(await jobOf(mill, jobs[0]!)).toMatchObject({ status: 'completed', result: 'first' });
    expect(refused).toEqual([expect.any(OptionError)]);
  });

  it('waits at a stop for a handler whose jobs all have their outcomes', async () => {
    const mill = aMill(open());
    const end = gate();
    let isOver = false;
    mill.batch(imported, async ([only]) => {
      only!.complete();
      await end.promise;
      isOver = true;
    });
    const jobs = await enqueue(mill, 1);
    await mill.start();
    await until('it is recorded', async () => (await jobOf(mill, jobs[0]!)).status === 'completed');
    const stopped = mill.stop();
    end.open();
    await stopped;
    expect(isOver).toBe(true);
  });
});
