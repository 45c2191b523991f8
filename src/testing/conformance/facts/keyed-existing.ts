import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { ago, ahead, done, present } from '../fixtures.js';
import { EVERYTHING, type Inserted, type NewJob, type Store } from '../../../store/port.js';
import { claimBy, dataOf, FIFO, keyed, sorted } from './keys.js';

const KEEP = () => ({ completed: 1e9, failed: 1e9, cancelled: 1e9 });

/** Inserts with an id, as the enqueuer does. */
async function put({ jobs }: Store, ...given: readonly NewJob[]): Promise<Inserted> {
  const answers = await jobs.insert(given.map((job) => ({ id: jobs.newId(job.createdAt), ...job })));
  return present(answers[0]);
}

const replacing = (limitKey: string, data: string): NewJob =>
  keyed(limitKey, data, 5_000, { uniqueKey: 'k', onExisting: { kind: 'replace' } });

const later = () => ({ status: 'pending', set: { nextRunAt: ahead(400_000), failCount: 1 } }) as const;

export const keyedExisting: Chapter = chapter(
  { title: 'keys of jobs that replace each other', needs: ['limits', 'replacing'] },
  [
    fact(
      'a replaced job takes the key of its new payload, and holds the old one no more',
      async ({ opened }) => {
        const store = await opened();
        await put(store, keyed('a', '1', 3_000, { uniqueKey: 'k' }), keyed('a', '2', 2_000));
        const [first] = (await claimBy(store, FIFO)).jobs;
        await store.jobs.settle([done(present(first), later())]);
        expect((await claimBy(store, FIFO)).jobs).toEqual([]);
        const { outcome, job } = await put(store, replacing('b', '3'));
        expect([outcome, job.limitKey]).toEqual(['replaced', 'b']);
        expect(sorted(dataOf(await claimBy(store, FIFO)))).toEqual(['2', '3']);
      },
    ),

    fact(
      'a successor holds no key while it waits, and has its own when it is released',
      async ({ opened }) => {
        const store = await opened();
        await put(store, keyed('a', '1', 3_000, { uniqueKey: 'k' }));
        const [first] = (await claimBy(store, FIFO)).jobs;
        const { outcome } = await put(store, replacing('b', 'successor'));
        expect(outcome).toBe('created');
        await put(store, keyed('b', '2', 2_000));
        const [second] = (await claimBy(store, FIFO)).jobs;
        expect(second?.data).toBe('2');
        const releases = { name: 'work', uniqueKey: 'k' };
        await store.jobs.settle([done(present(first), { releases })]);
        expect((await claimBy(store, FIFO)).jobs).toEqual([]);
        await store.jobs.settle([done(present(second))]);
        expect(dataOf(await claimBy(store, FIFO))).toEqual(['successor']);
      },
    ),

    fact('a claim by keys takes no job that has expired, and what it held goes on', async ({ opened }) => {
      const store = await opened();
      await put(store, keyed('a', 'late', 3_000, { startBy: ago(1_000) }), keyed('a', '2', 2_000));
      const early = dataOf(await claimBy(store, FIFO));
      await store.jobs.expire?.(KEEP);
      expect([...early, ...dataOf(await claimBy(store, FIFO))]).toEqual(['2']);
    }),

    fact('a claim by keys takes nothing while everything is paused', async ({ opened }) => {
      const store = await opened();
      await put(store, keyed('a', '1'));
      await store.jobs.pauseName(EVERYTHING);
      expect((await claimBy(store, FIFO)).jobs).toEqual([]);
      await store.jobs.resumeName(EVERYTHING);
      expect(dataOf(await claimBy(store, FIFO))).toEqual(['1']);
    }),

    fact('a job that is moved to a later time holds its key no more', async ({ opened }) => {
      const store = await opened();
      await put(store, keyed('a', '1', 3_000), keyed('a', '2', 2_000), keyed('a', '3', 1_000));
      const [first] = (await claimBy(store, FIFO)).jobs;
      await store.jobs.settle([done(present(first), later())]);
      expect((await claimBy(store, FIFO)).jobs).toEqual([]);
      expect((await store.jobs.reschedule(present(first).id, ahead(500_000)))?.outcome).toBe('rescheduled');
      const [second] = (await claimBy(store, FIFO)).jobs;
      expect(second?.data).toBe('2');
      await store.jobs.settle([done(present(second), later())]);
      await store.jobs.update?.(present(second).id, { nextRunAt: ahead(500_000) });
      expect(dataOf(await claimBy(store, FIFO))).toEqual(['3']);
    }),

    fact('an update moves a waiting job to another key', async ({ opened }) => {
      const store = await opened();
      await put(store, keyed('a', '1', 3_000), keyed('a', '2', 2_000));
      const [first] = (await claimBy(store, FIFO)).jobs;
      expect(first?.data).toBe('1');
      const page = { field: 'createdAt', direction: 1, limit: 5 } as const;
      const [second] = (await store.jobs.find({ status: ['pending'] }, page)).jobs;
      const updated = await store.jobs.update?.(present(second).id, { limitKey: 'b' });
      expect([updated?.outcome, updated?.job.limitKey]).toEqual(['updated', 'b']);
      expect(dataOf(await claimBy(store, FIFO))).toEqual(['2']);
    }),
  ],
);
