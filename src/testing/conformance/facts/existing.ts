import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { aClaim, aJob, ago, ahead, anInstance, done, gate, present, until } from '../fixtures.js';
import { NEVER, type JobRecord } from '../../../core/records/job.js';
import type { Inserted, NewJob, Store } from '../../../store/port.js';

const replacing = (fields: Partial<NewJob> = {}): NewJob =>
  aJob({ uniqueKey: 'k', onExisting: { kind: 'replace' }, nextRunAt: ago(1_000), ...fields });

/** Inserts one job with an id, as the enqueuer does. */
async function put({ jobs }: Store, job: NewJob): Promise<Inserted> {
  return present((await jobs.insert([{ id: jobs.newId(job.createdAt), ...job }]))[0]);
}

async function claimed({ jobs }: Store): Promise<JobRecord> {
  return present((await jobs.claim(aClaim(anInstance()))).jobs[0]);
}

const KEPT = (): { completed: number; failed: number; cancelled: number } => ({
  completed: 1e9,
  failed: 1e9,
  cancelled: 1e9,
});

const expire = ({ jobs }: Store, ids?: readonly string[]): Promise<readonly JobRecord[]> =>
  present(jobs.expire?.(KEPT, ids));

/** What is due now, by payload. */
async function due({ jobs }: Store): Promise<unknown[]> {
  return (await jobs.claim(aClaim(anInstance()))).jobs.map(({ data }) => data);
}

export const existing: Chapter = chapter({ title: 'jobs that replace each other', needs: ['replacing'] }, [
  fact(
    'replace gives a pending job the new payload, options and a fresh sequence of attempts',
    async ({ aMill }) => {
      const mill = aMill();
      const first = await mill.enqueue('x', 1, { uniqueKey: 'k', delay: '1h', priority: 3, timeout: '5s' });
      const second = await mill.enqueue('x', 2, { uniqueKey: 'k', onExisting: 'replace', delay: '2h' });
      expect([second.outcome, second.id, second.data]).toEqual(['replaced', first.id, 2]);
      const job = present(await mill.jobs.get(first.id));
      expect([job.priority, job.timeoutMs, job.failCount]).toEqual([0, undefined, 0]);
      expect(job.runAt.getTime()).toBeGreaterThan(first.runAt.getTime());
      expect(await mill.jobs.count({ name: 'x' })).toBe(1);
    },
  ),

  fact('reschedule moves the due time of a pending job only', async ({ aMill }) => {
    const mill = aMill();
    const first = await mill.enqueue('x', 1, { uniqueKey: 'k', delay: '1h', priority: 3 });
    const runAt = ahead(7_200_000);
    const moved = await mill.enqueue('x', 2, { uniqueKey: 'k', onExisting: 'reschedule', runAt });
    expect([moved.outcome, moved.id, moved.data, moved.priority]).toEqual(['rescheduled', first.id, 1, 3]);
    expect((await mill.jobs.get(first.id))?.runAt).toEqual(runAt);
    const kept = await mill.enqueue('x', 3, { uniqueKey: 'k', onExisting: 'keep' });
    expect([kept.outcome, kept.data]).toEqual(['existing', 1]);
  }),

  fact(
    'replace of a running job stores one successor, which starts when that has ended',
    async ({ aMill }) => {
      const mill = aMill();
      const [running, finish] = [gate(), gate()];
      const ran: number[] = [];
      const job = mill.job<number>('x', { concurrency: 5 }, async ({ data }) => {
        ran.push(data);
        if (data === 1) {
          running.open();
          await finish.promise;
        }
        return data;
      });
      await mill.start();
      const first = await job.enqueue(1, { uniqueKey: 'k' });
      await running.promise;
      const second = await job.enqueue(2, { uniqueKey: 'k', onExisting: 'replace' });
      const third = await job.enqueue(3, { uniqueKey: 'k', onExisting: 'replace' });
      const kept = await job.enqueue(4, { uniqueKey: 'k' });
      const moved = await job.enqueue(5, { uniqueKey: 'k', onExisting: 'reschedule' });
      expect([second.outcome, third.outcome, kept.outcome, moved.outcome]).toEqual([
        'created',
        'replaced',
        'existing',
        'existing',
      ]);
      expect([third.id, kept.id, moved.id]).toEqual([second.id, first.id, first.id]);
      expect(await mill.jobs.get(second.id)).toMatchObject({ status: 'pending', uniqueKey: 'k' });
      const ofKey = await mill.jobs.find({ uniqueKey: 'k', status: 'pending' });
      expect(ofKey.items.map(({ id }) => id)).toEqual([second.id]);
      finish.open();
      expect(await mill.jobs.result(second.id)).toBe(3);
      expect(await mill.jobs.result(first.id)).toBe(1);
      expect(ran).toEqual([1, 3]);
    },
  ),

  fact('a successor waits for the retries of the job before it', async ({ opened }) => {
    const store = await opened();
    await put(store, replacing({ data: 1 }));
    const first = await claimed(store);
    const successor = await put(store, replacing({ data: 2 }));
    expect([successor.outcome, successor.job.nextRunAt]).toEqual(['created', NEVER]);
    const retrying = { status: 'pending', set: { failCount: 1, nextRunAt: ago(1_000) } } as const;
    expect(await store.jobs.settle([done(first, retrying)])).toEqual(['settled']);
    const newer = await put(store, replacing({ data: 3 }));
    expect([newer.outcome, newer.job.id]).toEqual(['replaced', successor.job.id]);
    const second = await claimed(store);
    expect([second.id, second.followed]).toEqual([first.id, true]);
    expect(await due(store)).toEqual([]);
    const releases = { name: 'work', uniqueKey: 'k' };
    expect(await store.jobs.settle([done(second, { status: 'failed', releases })])).toEqual(['settled']);
    expect(await due(store)).toEqual([3]);
  }),

  fact('answers changed if a job with a successor is to end without releasing it', async ({ opened }) => {
    const store = await opened();
    await put(store, replacing({ data: 1 }));
    const job = await claimed(store);
    await put(store, replacing({ data: 2 }));
    expect(await store.jobs.settle([done(job)])).toEqual(['changed']);
    expect(await store.jobs.settle([done(job, { remove: true, set: {} })])).toEqual(['changed']);
    const [held] = await store.jobs.held([done(job).lease]);
    expect(held?.followed).toBe(true);
    const settlement = done(job, { releases: { name: 'work', uniqueKey: 'k' } });
    expect(await store.jobs.settle([settlement])).toEqual(['settled']);
    // The answer was lost: the same again.
    expect(await store.jobs.settle([settlement])).toEqual(['settled']);
    expect(await due(store)).toEqual([2]);
  }),

  fact('releases the successor of a job that is deleted at its end', async ({ opened }) => {
    const store = await opened();
    await put(store, replacing({ data: 1 }));
    const job = await claimed(store);
    await put(store, replacing({ data: 2 }));
    const releases = { name: 'work', uniqueKey: 'k' };
    expect(await store.jobs.settle([done(job, { remove: true, set: {}, releases })])).toEqual(['settled']);
    expect(await due(store)).toEqual([2]);
  }),

  fact('releases the successor if its job crashed, and a reclaimer ends it', async ({ opened }) => {
    const store = await opened();
    await put(store, replacing({ data: 1 }));
    const job = await claimed(store);
    await put(store, replacing({ data: 2 }));
    expect(await store.jobs.settle([done(job, { status: 'failed', by: 'reclaimer' })])).toEqual(['changed']);
    const releases = { name: 'work', uniqueKey: 'k' };
    const ending = done(job, { status: 'failed', by: 'reclaimer', releases });
    expect(await store.jobs.settle([ending])).toEqual(['settled']);
    expect(await store.jobs.settle([done(job)])).toEqual(['lost']);
    expect(await due(store)).toEqual([2]);
  }),

  fact('releases the successor of a waiting job that is cancelled or removed', async ({ opened }) => {
    const store = await opened();
    const { jobs } = store;
    const ways = [
      (job: JobRecord) => jobs.cancel(job.id, KEPT),
      (job: JobRecord) => jobs.remove(job.id),
      (job: JobRecord) => jobs.cancelBatch([job], KEPT),
      (job: JobRecord) => jobs.removeBatch([job]),
    ];
    for (const end of ways) {
      await put(store, replacing({ data: 1 }));
      const job = await claimed(store);
      await put(store, replacing({ data: 2 }));
      const back = { status: 'pending', set: { nextRunAt: ahead(3_600_000) } } as const;
      expect(await jobs.settle([done(job, back)])).toEqual(['settled']);
      await end(job);
      const next = await claimed(store);
      expect([next.data, next.uniqueKey]).toEqual([2, 'k']);
      expect(await jobs.settle([done(next)])).toEqual(['settled']);
    }
  }),

  fact('cancels, moves, changes and removes a successor like any other pending job', async ({ opened }) => {
    const store = await opened();
    const { jobs } = store;
    await put(store, replacing({ data: 1 }));
    const job = await claimed(store);
    const { id } = (await put(store, replacing({ data: 2 }))).job;
    expect(await jobs.reschedule(id, ago(500))).toMatchObject({ outcome: 'rescheduled' });
    expect(await jobs.update?.(id, { data: { value: 3 }, nextRunAt: ago(400) })).toMatchObject({
      outcome: 'updated',
    });
    expect(await due(store)).toEqual([]);
    expect(await jobs.cancel(id, KEPT)).toMatchObject({ outcome: 'cancelled', job: { uniqueKey: 'k' } });
    expect(await jobs.retry(id, ago(100))).toMatchObject({ outcome: 'live' });
    const another = await put(store, replacing({ data: 4 }));
    expect([another.outcome, another.job.id === id]).toEqual(['created', false]);
    expect(await jobs.remove(another.job.id)).toMatchObject({ outcome: 'removed' });
    const releases = { name: 'work', uniqueKey: 'k' };
    expect(await jobs.settle([done(job, { releases })])).toEqual(['settled']);
    expect(await jobs.retry(id, ago(100))).toMatchObject({ outcome: 'retried' });
    expect(await due(store)).toEqual([3]);
  }),

  fact(
    'of many producers at once, the successor is stored once and the last payload runs',
    async ({ opened }) => {
      const store = await opened();
      await put(store, replacing({ data: -1 }));
      const job = await claimed(store);
      const answers = await Promise.all(
        Array.from({ length: 20 }, (_none, data) => put(store, replacing({ data }))),
      );
      expect(answers.filter(({ outcome }) => outcome === 'created')).toHaveLength(1);
      expect(new Set(answers.map((one) => one.job.id)).size).toBe(1);
      const last = await put(store, replacing({ data: 'last' }));
      expect(last.outcome).toBe('replaced');
      const releases = { name: 'work', uniqueKey: 'k' };
      expect(await store.jobs.settle([done(job, { releases })])).toEqual(['settled']);
      expect(await due(store)).toEqual(['last']);
    },
  ),

  fact('a job that ends while it is replaced loses no payload', async ({ opened }) => {
    const store = await opened();
    for (let round = 0; round < 10; round += 1) {
      await put(store, replacing({ data: 'old' }));
      const job = await claimed(store);
      const ending = async (): Promise<void> => {
        const releases = { name: 'work', uniqueKey: 'k' };
        const [answer] = await store.jobs.settle([done(job)]);
        if (answer === 'changed')
          expect(await store.jobs.settle([done(job, { releases })])).toEqual(['settled']);
      };
      await Promise.all([ending(), put(store, replacing({ data: round }))]);
      const next = await claimed(store);
      expect([next.data, next.uniqueKey]).toEqual([round, 'k']);
      expect(await store.jobs.settle([done(next)])).toEqual(['settled']);
    }
  }),

  fact('stores nothing twice if an insert is repeated with its id', async ({ opened }) => {
    const store = await opened();
    const job = { ...replacing({ data: 1 }), id: store.jobs.newId() };
    expect(present((await store.jobs.insert([job]))[0]).outcome).toBe('created');
    await store.jobs.insert([job]);
    expect(await store.jobs.count({ name: ['work'] })).toBe(1);
    const running = await claimed(store);
    const next = { ...replacing({ data: 2 }), id: store.jobs.newId() };
    await store.jobs.insert([next]);
    await store.jobs.insert([next]);
    expect(await store.jobs.count({ name: ['work'] })).toBe(2);
    expect((await store.jobs.held([done(running).lease]))[0]?.data).toBe(1);
  }),

  fact('replaces within one call of enqueueMany, in its order', async ({ aMill }) => {
    const mill = aMill();
    const options = { uniqueKey: 'k', onExisting: 'replace', delay: '1h' } as const;
    const jobs = await mill.enqueueMany([
      { name: 'x', data: 1, ...options },
      { name: 'x', data: 2, ...options },
      { name: 'y', data: 3, ...options },
    ]);
    expect(jobs.map(({ outcome }) => outcome)).toEqual(['created', 'replaced', 'created']);
    expect((await mill.jobs.get(present(jobs[0]).id))?.data).toBe(2);
  }),

  fact('replaces inside a transaction if and only if that commits', ['transactions'], async ({ aMill }) => {
    const mill = aMill();
    const first = await mill.enqueue('x', 1, { uniqueKey: 'k', delay: '1h' });
    const replace = { uniqueKey: 'k', onExisting: 'replace', delay: '1h' } as const;
    const failing = mill.withTransaction(async (transaction) => {
      const inside = await mill.enqueue('x', 2, { ...replace, transaction });
      expect([inside.outcome, inside.data]).toEqual(['replaced', 2]);
      throw new Error('rolled back');
    });
    await expect(failing).rejects.toThrow('rolled back');
    expect((await mill.jobs.get(first.id))?.data).toBe(1);
    await mill.withTransaction(async (transaction) => {
      await mill.enqueue('x', 3, { ...replace, transaction });
      const new1 = await mill.enqueue('y', 4, { ...replace, transaction });
      const new2 = await mill.enqueue('y', 5, { ...replace, transaction });
      expect([new1.outcome, new2.outcome, new2.id === new1.id]).toEqual(['created', 'replaced', true]);
    });
    expect((await mill.jobs.get(first.id))?.data).toBe(3);
    expect((await mill.jobs.find({ name: 'y' })).items.map(({ data }) => data)).toEqual([5]);
  }),

  fact('debounce moves the job with each call, up to maxWait after the first', async ({ opened }) => {
    const store = await opened();
    const debounced = (at: Date, data: number): NewJob =>
      aJob({
        uniqueKey: 'k',
        data,
        createdAt: at,
        nextRunAt: new Date(at.getTime() + 10_000),
        onExisting: { kind: 'debounce', waitMs: 10_000, maxWaitMs: 25_000 },
      });
    const begun = ahead(60_000).getTime();
    const offsets: number[] = [];
    for (const after of [0, 5_000, 14_000, 20_000]) {
      const { job } = await put(store, debounced(new Date(begun + after), after));
      offsets.push(job.nextRunAt.getTime() - begun);
    }
    expect(offsets).toEqual([10_000, 15_000, 24_000, 25_000]);
    expect(await store.jobs.count({ name: ['work'] })).toBe(1);
  }),

  fact('debounce runs the newest payload once', async ({ aMill }) => {
    const mill = aMill();
    const ran: unknown[] = [];
    const job = mill.job<number>('x', ({ data }) => void ran.push(data));
    await mill.start();
    const options = { uniqueKey: 'k', debounce: { wait: '300ms' } } as const;
    const jobs = await Promise.all([1, 2, 3, 4].map((data) => job.enqueue(data, options)));
    expect(new Set(jobs.map(({ id }) => id)).size).toBe(1);
    await mill.jobs.result(present(jobs[0]).id);
    expect(ran).toEqual([4]);
  }),

  fact(
    'refuses debounce and onExisting without a unique key, or beside what they exclude',
    async ({ aMill }) => {
      const mill = aMill();
      const refused = async (options: object): Promise<string> =>
        mill.enqueue('x', {}, options).then(
          () => 'accepted',
          (error: unknown) => (error as Error).message,
        );
      expect(await refused({ onExisting: 'replace' })).toContain('uniqueKey');
      expect(await refused({ debounce: { wait: '1s' } })).toContain('uniqueKey');
      expect(await refused({ uniqueKey: 'k', onExisting: 'update' })).toContain('keep, replace, reschedule');
      const debounce = { wait: '1s' };
      for (const other of [{ delay: '1s' }, { runAt: new Date() }, { onExisting: 'keep' }])
        expect(await refused({ uniqueKey: 'k', debounce, ...other })).toContain(Object.keys(other)[0]);
      expect(await refused({ uniqueKey: 'k', debounce: {} })).toContain('wait');
      expect(await refused({ uniqueKey: 'k', debounce: { wait: '2s', maxWait: '1s' } })).toContain('maxWait');
      expect(await refused({ uniqueKey: 'k', debounce: { wiat: '2s' } })).toContain('wait');
      expect(await refused({ expireIn: 0 })).toContain('expireIn');
      expect(await mill.jobs.count()).toBe(0);
    },
  ),
]);

export const expiring: Chapter = chapter({ title: 'jobs that expire', needs: ['replacing'] }, [
  fact('cancels a job that did not start in time as expired, and tells of it', async ({ aMill }) => {
    const mill = aMill({ pollInterval: { min: '20ms', max: '100ms' } });
    mill.job('busy', () => undefined);
    const expired = gate<{ job: { id: string; error?: string } }>();
    mill.on('job:expire', expired.open);
    await mill.start();
    const job = await mill.enqueue('nobody', {}, { expireIn: '50ms' });
    expect(job.startBy).toBeInstanceOf(Date);
    expect((await expired.promise).job).toMatchObject({ id: job.id, error: 'expired', status: 'cancelled' });
    expect(await mill.jobs.get(job.id)).toMatchObject({ status: 'cancelled', failReason: 'expired' });
  }),

  fact('counts expireIn from the due time, and takes it from the definition', async ({ aMill }) => {
    const mill = aMill();
    const job = mill.job('x', { expireIn: '10m' }, () => undefined);
    const later = await job.enqueue({}, { delay: '1h' });
    expect(present(later.startBy).getTime() - later.runAt.getTime()).toBe(600_000);
    const own = await job.enqueue({}, { delay: '1h', expireIn: '5m' });
    expect(present(own.startBy).getTime() - own.runAt.getTime()).toBe(300_000);
    const moved = (await mill.jobs.reschedule(own.id, '3h')).job;
    expect(present(moved?.startBy).getTime() - present(moved).runAt.getTime()).toBe(300_000);
  }),

  fact('never claims a job after its time, and finds what has expired', async ({ opened }) => {
    const store = await opened();
    const { job } = await put(store, aJob({ nextRunAt: ago(2_000), startBy: ago(1_000) }));
    await put(store, aJob({ nextRunAt: ahead(1_000), startBy: ahead(3_600_000) }));
    expect(await due(store)).toEqual([]);
    expect((await store.jobs.peek(['work'])).expiresAt).toEqual(job.startBy);
    expect(await expire(store, ['another'])).toEqual([]);
    const [expired, ...rest] = await expire(store);
    expect(rest).toEqual([]);
    expect(expired).toMatchObject({ id: job.id, status: 'cancelled', failReason: 'expired' });
    expect(await expire(store)).toEqual([]);
  }),

  fact('two instances expire a job once', async ({ opened }) => {
    const store = await opened();
    for (let n = 0; n < 10; n += 1) await put(store, aJob({ startBy: ago(1_000), nextRunAt: ago(2_000) }));
    const answers = await Promise.all([1, 2, 3].map(() => expire(store)));
    const ids = answers.flat().map(({ id }) => id);
    expect(new Set(ids).size).toBe(ids.length);
    await until('all have expired', async () => {
      ids.push(...(await expire(store)).map(({ id }) => id));
      return ids.length === 10;
    });
  }),

  fact('a job that has started once does not expire', async ({ aMill }) => {
    const mill = aMill();
    const options = { retryPolicy: { type: 'fixed', interval: '1h' }, expireIn: '1h' } as const;
    const job = mill.job('x', options, () => {
      throw new Error('again');
    });
    const { id, startBy } = await job.enqueue({}, { delay: 1 });
    expect(startBy).toBeDefined();
    await mill.start();
    await until('it has failed once', async () => (await mill.jobs.get(id))?.failCount === 1);
    const waiting = await mill.jobs.get(id);
    expect([waiting?.status, waiting?.startBy]).toEqual(['pending', undefined]);
  }),

  fact('an expired job does not keep its unique key', async ({ aMill }) => {
    const mill = aMill();
    const options = { uniqueKey: 'k', expireIn: 1, runAt: ago(1_000) } as const;
    const first = await mill.enqueue('x', 1, options);
    const second = await mill.enqueue('x', 2, { uniqueKey: 'k' });
    expect([second.outcome, second.id === first.id]).toEqual(['created', false]);
    expect(await mill.jobs.get(first.id)).toMatchObject({ status: 'cancelled', failReason: 'expired' });
  }),

  fact('a manual retry of an expired job has no time limit', async ({ opened }) => {
    const store = await opened();
    const { job } = await put(store, aJob({ data: 1, startBy: ago(1_000), nextRunAt: ago(2_000) }));
    await expire(store);
    expect(await store.jobs.retry(job.id, ago(100))).toMatchObject({ outcome: 'retried' });
    expect(await due(store)).toEqual([1]);
  }),
]);

export const updating: Chapter = chapter({ title: 'jobs that are changed', needs: ['replacing'] }, [
  fact('changes payload, priority and due time of a pending job', async ({ aMill }) => {
    const mill = aMill();
    const { id } = await mill.enqueue('x', { a: 1 }, { delay: '1h' });
    const runAt = ahead(7_200_000);
    expect(await mill.jobs.update(id, { data: { b: null }, priority: 5, runAt })).toMatchObject({
      outcome: 'updated',
      job: { id, data: { b: null }, priority: 5, runAt },
    });
    expect(await mill.jobs.update(id, { data: null })).toMatchObject({ job: { data: null, priority: 5 } });
    expect((await mill.jobs.get(id))?.data).toBe(null);
  }),

  fact('leaves a job alone that runs or has ended', async ({ opened, aMill }) => {
    const mill = aMill();
    const store = await opened();
    await put(store, aJob({ data: 1, nextRunAt: ago(1_000) }));
    const job = await claimed(store);
    expect(await mill.jobs.update(job.id, { data: 2 })).toMatchObject({
      outcome: 'running',
      job: { data: 1 },
    });
    await store.jobs.settle([done(job)]);
    expect(await mill.jobs.update(job.id, { data: 2 })).toMatchObject({
      outcome: 'finished',
      job: { data: 1 },
    });
    expect(await mill.jobs.update('nowhere', { data: 2 })).toEqual({ outcome: 'missing', job: undefined });
    expect(await mill.jobs.update('nowhere', { priority: 2 })).toEqual({
      outcome: 'missing',
      job: undefined,
    });
  }),

  fact('refuses an update of nothing, and one that enqueue would refuse', async ({ aMill }) => {
    const mill = aMill();
    const { id } = await mill.enqueue('x', 1, { delay: '1h' });
    await expect(mill.jobs.update(id, {})).rejects.toThrow('nothing to change');
    await expect(mill.jobs.update(id, { priority: 11 })).rejects.toThrow('priority');
    await expect(mill.jobs.update(id, { data: () => 1 })).rejects.toThrow('data');
    await expect(mill.jobs.update(id, { runAt: new Date(NaN) })).rejects.toThrow('runAt');
    expect((await mill.jobs.get(id))?.data).toBe(1);
  }),
]);
