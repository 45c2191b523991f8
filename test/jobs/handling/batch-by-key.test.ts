import fc from 'fast-check';
import { expect, it } from 'vitest';
import { StoreError } from '../../../src/core/errors.js';
import { defineJob, OptionError, type BatchOptions, type Job, type Tidemill } from '../../../src/index.js';
import { memory } from '../../../src/memory/index.js';
import { aMill, gate, until } from '../../support/mills.js';
import { eachStore } from '../../support/stores.js';

interface Row {
  readonly key: string;
  readonly n: number;
}

const retryPolicy = { type: 'fixed', interval: '1h', maxAttempts: 3 } as const;
const imported = defineJob<Row>('import', { retryPolicy, limits: { perKey: { key: 'key' } } });

/** One job for each character, which is its key. */
const enqueue = async (mill: Tidemill, keys: string, definition = imported): Promise<Job<Row>[]> =>
  mill.enqueueMany(Array.from(keys, (key, n) => ({ job: definition, data: { key, n } })));

const statusOf = async (mill: Tidemill, { id }: { id: string }): Promise<string> =>
  (await mill.jobs.get(id))!.status;

const allEnded = (mill: Tidemill): Promise<unknown> =>
  until(
    'all jobs have ended',
    async () => (await mill.jobs.count({ status: ['pending', 'processing'] })) === 0,
  );

/** A mill whose calls are noted, each as its keys. */
function noting(mill: Tidemill, options: BatchOptions): string[] {
  const calls: string[] = [];
  mill.batch(imported, { byKey: true, ...options }, (jobs, { limitKey }) => {
    expect(jobs.map((job) => job.limitKey)).toEqual(jobs.map(() => limitKey));
    calls.push(jobs.map(({ data }) => data.key).join(''));
  });
  return calls;
}

eachStore('batches by key', ({ open }) => {
  it('gives a handler jobs of one key in one call, though other keys lie between them', async () => {
    const mill = aMill(open());
    const calls = noting(mill, { size: 3, concurrency: 2 });
    await enqueue(mill, 'abcd'.repeat(4));
    await mill.start();
    await allEnded(mill);
    expect(calls.sort()).toEqual(['a', 'aaa', 'b', 'bbb', 'c', 'ccc', 'd', 'ddd']);
  });

  it('tells the key of each job, whether it has a path or was given at enqueue', async () => {
    const mill = aMill(open());
    const plain = defineJob<number>('plain');
    const seen: unknown[] = [];
    mill.batch(plain, { byKey: true }, (jobs, { limitKey }) => {
      seen.push([limitKey, jobs.map((job) => [job.data, job.limitKey])]);
    });
    await mill.enqueue(plain, 1, { key: 'acme' });
    await mill.enqueue(plain, 2);
    await mill.enqueue(plain, 3, { key: 'acme' });
    await mill.enqueue(plain, 4);
    await mill.start();
    await allEnded(mill);
    expect(seen.sort()).toEqual([
      [
        '',
        [
          [2, ''],
          [4, ''],
        ],
      ],
      [
        'acme',
        [
          [1, 'acme'],
          [3, 'acme'],
        ],
      ],
    ]);
  });

  it('lets a key with few jobs have its turn beside a flood of another', async () => {
    const mill = aMill(open());
    const calls = noting(mill, { size: 10, concurrency: 1 });
    await enqueue(mill, 'f'.repeat(200));
    await enqueue(mill, 'x');
    await mill.start();
    await allEnded(mill);
    expect(calls.indexOf('x')).toBeLessThan(5);
    expect(calls).toHaveLength(21);
  });

  it('gathers each key until its call is full, and keeps the others waiting', async () => {
    const mill = aMill(open());
    const calls = noting(mill, { size: 2, wait: '1m', concurrency: 1 });
    await mill.start();
    const [first, other] = await enqueue(mill, 'ab');
    await until('both wait', async () => (await statusOf(mill, other!)) === 'processing');
    expect(await statusOf(mill, first!)).toBe('processing');
    expect(calls).toEqual([]);
    await enqueue(mill, 'a');
    await until('a key is called', () => calls.length > 0);
    expect(calls).toEqual(['aa']);
    await mill.stop();
    expect(await mill.jobs.get(other!.id)).toMatchObject({ status: 'pending', failCount: 0 });
  });

  it('calls a key with what it has once its first job has waited', async () => {
    const mill = aMill(open());
    const calls = noting(mill, { size: 10, wait: 200 });
    await mill.start();
    await enqueue(mill, 'aab');
    await allEnded(mill);
    expect(calls.sort()).toEqual(['aa', 'b']);
  });

  it('holds no more keys than it has slots, so that other instances can run them', async () => {
    const store = open();
    const mill = aMill(store);
    const end = gate();
    mill.batch(imported, { byKey: true, size: 100, concurrency: 2 }, () => end.promise);
    await enqueue(mill, 'abcdefghijklmnopqrstuvwxyz'.repeat(2));
    await mill.start();
    await until('it runs', () => mill.health().running === 2);
    expect(await mill.jobs.count({ status: 'processing' })).toBe(4);
    const other = aMill(store);
    const calls = noting(other, { concurrency: 2 });
    await other.start();
    await until('the rest has ended', async () => (await mill.jobs.count({ status: 'completed' })) === 48);
    expect(calls.sort().every((keys) => keys.length <= 2)).toBe(true);
    end.open();
    await allEnded(mill);
  });

  it('keeps the concurrency of a key, and waits for no more jobs than it allows', async () => {
    const mill = aMill(open());
    const few = defineJob<Row>('few', { limits: { perKey: { key: 'key', concurrency: 2 } } });
    const calls: string[] = [];
    mill.batch(few, { byKey: true, size: 100, wait: '1m' }, (jobs) => {
      calls.push(jobs.map(({ data }) => data.key).join(''));
    });
    await enqueue(mill, 'aabbaabb', few);
    await mill.start();
    await allEnded(mill);
    expect(calls.sort()).toEqual(['aa', 'aa', 'bb', 'bb']);
  });

  it('cancels a job that waits for its key, and aborts the signal of one that runs', async () => {
    const mill = aMill(open());
    const [began, end] = [gate(), gate()];
    const seen: unknown[] = [];
    mill.batch(imported, { byKey: true, size: 2, wait: '1m' }, async (jobs, { signal }) => {
      began.open();
      await until('one is cancelled', () => jobs.some((job) => job.signal.aborted));
      seen.push(
        jobs.map((job) => job.signal.aborted),
        signal.aborted,
      );
      await end.promise;
    });
    await mill.start();
    const jobs = await enqueue(mill, 'aab');
    await began.promise;
    await until('the other waits', async () => (await statusOf(mill, jobs[2]!)) === 'processing');
    await mill.jobs.cancel(jobs[2]!.id);
    await mill.jobs.cancel(jobs[0]!.id);
    await until('the handler saw it', () => seen.length > 0);
    await until(
      'the one that waits is cancelled',
      async () => (await statusOf(mill, jobs[2]!)) === 'cancelled',
    );
    end.open();
    await allEnded(mill);
    expect(seen[1]).toBe(false);
    expect(await Promise.all(jobs.map((job) => statusOf(mill, job)))).toEqual([
      'cancelled',
      'completed',
      'cancelled',
    ]);
  });

  it('fails the jobs of a key alone when its call throws or runs past the timeout', async () => {
    const mill = aMill(open());
    const timed = defineJob<Row>('timed', { timeout: 150, retryPolicy, limits: { perKey: { key: 'key' } } });
    mill.batch(timed, { byKey: true }, async ([first], { limitKey, signal }) => {
      if (limitKey === 'a') throw new Error('no such customer');
      first!.complete();
      if (limitKey === 'b') await new Promise((resolve) => signal.addEventListener('abort', resolve));
    });
    const jobs = await enqueue(mill, 'aabbcc', timed);
    await mill.start();
    await until('the calls have ended', async () => (await mill.jobs.count({ status: 'completed' })) === 3);
    await until('the others wait', async () => (await mill.jobs.count({ status: 'pending' })) === 3);
    const now = await Promise.all(jobs.map(async ({ id }) => (await mill.jobs.get(id))!.failReason ?? ''));
    expect(now[0]).toBe('no such customer');
    expect(now[1]).toBe('no such customer');
    expect(now.filter((reason) => reason.includes('timeout'))).toHaveLength(1);
    expect(now.slice(4)).toEqual(['', '']);
  });

  it('refuses what does not go together before anything is written', async () => {
    const mill = aMill(open());
    const ordered = defineJob<Row>('ordered', { limits: { perKey: { key: 'key', order: 'fifo' } } });
    expect(() => mill.batch(ordered, { byKey: true }, () => undefined)).toThrow(
      /byKey does not go with perKey.order/u,
    );
    const misspelt = { bykey: true } as BatchOptions;
    expect(() => mill.batch(imported, misspelt, () => undefined)).toThrow(/Did you mean "?byKey/u);
    const wrong = { byKey: 'customer' } as unknown as BatchOptions;
    expect(() => mill.batch(imported, wrong, () => undefined)).toThrow(OptionError);
    expect(mill.names).toEqual([]);
  });

  it('never mixes keys in a call, and runs each job once, on several instances', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.string({ unit: fc.constantFrom('a', 'b', 'c', 'd'), minLength: 1, maxLength: 60 }),
        fc.integer({ min: 1, max: 6 }),
        fc.constantFrom(0, 20),
        async (keys, size, wait) => {
          const store = open();
          const mills = [aMill(store), aMill(store)] as const;
          const calls = mills.map((mill) => noting(mill, { size, wait, concurrency: 2 }));
          await Promise.all(mills.map((mill) => mill.start()));
          await enqueue(mills[0], keys);
          await allEnded(mills[0]);
          const all = calls.flat();
          for (const call of all) {
            expect(new Set(call).size).toBe(1);
            expect(call.length).toBeLessThanOrEqual(size);
          }
          expect(Array.from(all.join('')).sort()).toEqual(Array.from(keys).sort());
          await Promise.all(mills.map((mill) => mill.stop()));
        },
      ),
      { numRuns: 3 },
    );
  });
});

it('aborts every call by key when the lease is lost, and runs its jobs again without using an attempt', async () => {
  const store = memory();
  const mill = aMill(store, { leaseDuration: 600 });
  const renew = store.instances.renew.bind(store.instances);
  const codes: unknown[] = [];
  let calls = 0;
  mill.batch(imported, { byKey: true }, async (jobs, { signal }) => {
    calls += 1;
    if (calls > 2) return;
    await new Promise((resolve) => signal.addEventListener('abort', resolve));
    codes.push((signal.reason as { code: string }).code, ...jobs.map((job) => job.signal.aborted));
  });
  const jobs = await enqueue(mill, 'aab');
  await mill.start();
  await until('both keys are called', () => calls === 2);
  store.instances.renew = () => Promise.reject(new StoreError('away', { transient: true }));
  await until('both calls have ended', () => codes.length === 5);
  store.instances.renew = renew;
  await allEnded(mill);
  expect(codes.sort()).toEqual(['LEASE_LOST', 'LEASE_LOST', true, true, true]);
  for (const { id } of jobs)
    expect(await mill.jobs.get(id)).toMatchObject({ status: 'completed', failCount: 0 });
});
