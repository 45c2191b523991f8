import type { JobRecord } from '../../../core/records/job.js';
import { leaseOf, type Settlement, type Store } from '../../../store/port.js';
import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { aClaim, aJob, anInstance, done } from '../fixtures.js';

async function claimed(store: Store, data: unknown = {}): Promise<JobRecord> {
  await store.jobs.insert([aJob({ data })]);
  const [job] = (await store.jobs.claim(aClaim(anInstance()))).jobs;
  if (job === undefined) throw new Error('nothing was claimed');
  return job;
}

export const settle: Chapter = chapter('settlement', [
  fact('refuses to settle for a holder whose job another instance has claimed', async ({ opened }) => {
    const store = await opened();
    const stale = await claimed(store);
    await store.jobs.settle([done(stale, { status: 'pending', set: {}, by: 'reclaimer' })]);
    const [current] = (await store.jobs.claim(aClaim(anInstance()))).jobs;
    expect(current?.id).toBe(stale.id);
    expect(await store.jobs.settle([done(stale)])).toEqual(['lost']);
    expect(await store.jobs.settle([done(current as JobRecord)])).toEqual(['settled']);
  }),

  fact('tells two leases of one job apart when both settle in one batch', async ({ opened }) => {
    const store = await opened();
    const stale = await claimed(store);
    await store.jobs.settle([done(stale, { status: 'pending', set: {}, by: 'reclaimer' })]);
    const [current] = (await store.jobs.claim(aClaim(anInstance()))).jobs;
    const batch = [
      done(stale, { set: { result: 'first' } }),
      done(current as JobRecord, { set: { result: 'second' } }),
    ];
    expect(await store.jobs.settle(batch)).toEqual(['lost', 'settled']);
    expect(await store.jobs.get(stale.id)).toMatchObject({ status: 'completed', result: 'second' });
  }),

  fact('refuses to settle for a holder whose job was reclaimed and is pending', async ({ opened }) => {
    const store = await opened();
    const stale = await claimed(store);
    await store.jobs.settle([done(stale, { status: 'pending', set: {}, by: 'reclaimer' })]);
    expect(await store.jobs.settle([done(stale)])).toEqual(['lost']);
    expect(await store.jobs.get(stale.id)).toMatchObject({ status: 'pending', lockedAt: null });
  }),

  fact(
    'returns settled again when a settlement is repeated after its response was lost',
    async ({ opened }) => {
      const store = await opened();
      const job = await claimed(store);
      const settlement = done(job, { set: { result: 1 } });
      expect(await store.jobs.settle([settlement])).toEqual(['settled']);
      expect(await store.jobs.settle([settlement])).toEqual(['settled']);
      expect(await store.jobs.settle([{ ...settlement, remove: true }])).toEqual(['settled']);
    },
  ),

  fact('records different outcomes in one batch, and returns lost for a lost lease', async ({ opened }) => {
    const store = await opened();
    const [one, two, three, four] = [
      await claimed(store),
      await claimed(store),
      await claimed(store),
      await claimed(store),
    ];
    await store.jobs.settle([done(three, { status: 'pending', set: {}, by: 'reclaimer' })]);
    const next = new Date(Date.now() + 60_000);
    const answers = await store.jobs.settle([
      done(one, { set: { result: { $set: 'x' } } }),
      done(two, { status: 'pending', set: { nextRunAt: next, failCount: 1, failReason: '$broken' } }),
      done(three),
      done(four, { remove: true }),
    ]);
    expect(answers).toEqual(['settled', 'settled', 'lost', 'settled']);
    expect(await store.jobs.get(one.id)).toMatchObject({ status: 'completed', result: { $set: 'x' } });
    expect(await store.jobs.get(two.id)).toMatchObject({
      status: 'pending',
      nextRunAt: next,
      failCount: 1,
      failReason: '$broken',
    });
    expect(await store.jobs.get(four.id)).toBeUndefined();
  }),

  fact('does not release a job whose cancellation was requested', async ({ opened }) => {
    const store = await opened();
    const job = await claimed(store);
    await store.jobs.cancel(job.id, () => ({ completed: 1e6, failed: 1e6, cancelled: 1e6 }));
    expect(await store.jobs.settle([done(job, { status: 'pending', set: {} })])).toEqual(['changed']);
    expect(await store.jobs.settle([done(job)])).toEqual(['settled']);
  }),

  fact('keeps the last attempts and log lines of a job, in order', async ({ opened }) => {
    const store = await opened();
    let job = await claimed(store);
    for (let attempt = 1; attempt <= 4; attempt += 1) {
      const at = new Date();
      const entry = {
        attempt,
        status: 'failed' as const,
        startedAt: at,
        finishedAt: at,
        durationMs: attempt,
        instanceId: 'x',
      };
      const logs = [{ at, message: `line ${String(attempt)}` }];
      await store.jobs.settle([
        done(job, { status: 'pending', set: { nextRunAt: new Date() }, entry, historyLimit: 2, logs }),
      ]);
      job = (await store.jobs.claim(aClaim(anInstance()))).jobs[0] as JobRecord;
    }
    expect(job.history?.map((entry) => entry.attempt)).toEqual([3, 4]);
    expect(job.logs?.map((line) => line.message)).toEqual(['line 1', 'line 2', 'line 3', 'line 4']);
  }),

  fact('writes progress and log lines only for the current holder', async ({ opened }) => {
    const store = await opened();
    const stale = await claimed(store);
    await store.jobs.note([
      {
        lease: leaseOf(stale),
        progress: { value: { done: '$all' } },
        logs: [{ at: new Date(), message: 'hello' }],
      },
    ]);
    expect(await store.jobs.get(stale.id)).toMatchObject({
      progress: { done: '$all' },
      logs: [{ message: 'hello' }],
    });
    await store.jobs.settle([done(stale, { status: 'pending', set: {}, by: 'reclaimer' })]);
    await store.jobs.note([{ lease: leaseOf(stale), progress: { value: 'late' } }]);
    expect((await store.jobs.get(stale.id))?.progress).toEqual({ done: '$all' });
  }),

  fact('begins an attempt only for the current holder', async ({ opened }) => {
    const store = await opened();
    const job = await claimed(store);
    expect(await store.jobs.begin(leaseOf(job))).toBe('begun');
    await store.jobs.settle([done(job, { status: 'pending', set: {}, by: 'reclaimer' })]);
    expect(await store.jobs.begin(leaseOf(job))).toBe('lost');
  }),

  fact(
    'stores the dead letter of a failure with the failure, once however often it is sent',
    async ({ opened }) => {
      const store = await opened();
      const job = await claimed(store, { to: 'ada' });
      const failure = failed(job, aLetter('letter-1', { n: 1, at: new Date(0) }));
      expect(await store.jobs.settle([failure])).toEqual(['settled']);
      expect(await store.jobs.settle([failure])).toEqual(['settled']);
      expect(await store.jobs.get('letter-1')).toMatchObject({
        name: 'dead',
        status: 'pending',
        data: { n: 1, at: new Date(0) },
      });
      expect((await store.jobs.get(job.id))?.status).toBe('failed');
      expect(await store.jobs.count({ name: ['dead'] })).toBe(1);
      const letters = await store.jobs.claim(aClaim(anInstance(), { names: ['dead'] }));
      expect(letters.jobs.map(({ id }) => id)).toEqual(['letter-1']);
    },
  ),

  fact('stores no dead letter for a holder whose lease is lost', async ({ opened }) => {
    const store = await opened();
    const stale = await claimed(store);
    await store.jobs.settle([done(stale, { status: 'pending', set: {}, by: 'reclaimer' })]);
    expect(await store.jobs.settle([failed(stale, aLetter('letter-2'))])).toEqual(['lost']);
    expect(await store.jobs.get('letter-2')).toBeUndefined();
  }),

  fact(
    'stores dead letters beside plain settlements, of a reclaimer and of jobs that are deleted',
    async ({ opened }) => {
      const store = await opened();
      const [one, two, three] = [await claimed(store), await claimed(store), await claimed(store)];
      const removed = { ...failed(two, aLetter('letter-4', { kept: 4 })), remove: true };
      expect(await store.jobs.settle([done(one), removed])).toEqual(['settled', 'settled']);
      expect(await store.jobs.settle([removed])).toEqual(['settled']);
      const reclaimed = { ...failed(three, aLetter('letter-5')), by: 'reclaimer' as const };
      expect(await store.jobs.settle([reclaimed])).toEqual(['settled']);
      expect(await store.jobs.settle([reclaimed])).toEqual(['lost']);
      expect((await store.jobs.get(one.id))?.status).toBe('completed');
      expect(await store.jobs.get(two.id)).toBeUndefined();
      expect((await store.jobs.get('letter-4'))?.data).toEqual({ kept: 4 });
      expect(await store.jobs.count({ name: ['dead'] })).toBe(2);
    },
  ),
]);

const aLetter = (id: string, data: unknown = {}): NonNullable<Settlement['letter']> => ({
  ...aJob({ name: 'dead', data, wake: 1 }),
  id,
});

const failed = (job: JobRecord, letter: NonNullable<Settlement['letter']>): Settlement =>
  done(job, { status: 'failed', set: { finishedAt: new Date(), failCount: 1 }, letter });
