import { describe, expect, it } from 'vitest';
import { Scheduler, type DocumentJob, type JobStore } from '../../src/documents/index.js';
import { Tidemill } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';
import { virtualClock } from '../../src/testing/virtual-clock.js';
import { aTestScheduler, at, open } from './test-scheduler.js';

describe('documents with ids that JSON cannot represent', () => {
  const circular: { self?: unknown } = {};
  circular.self = circular;
  const odd = [5n, { n: 7n }, Symbol('id'), circular, undefined, Object.create(null) as object];

  it.each([1, 10])(
    'runs documents with unserializable ids in a three-method store, %i at a time',
    async (concurrency) => {
      const seen: unknown[] = [];
      const { store, scheduler, clock, errors } = aTestScheduler({
        concurrency,
        onDocument: (_document, { job }) => void seen.push(job.id),
      });
      for (const id of odd) store.insert({ id });
      await scheduler.start();
      await clock.advance('1s');
      expect(seen).toEqual(odd);
      expect([...store.jobs.values()].map(({ sleepUntil }) => sleepUntil)).toEqual(odd.map(() => null));
      expect(errors).toEqual([]);
    },
  );

  it('runs, lists and makes due documents with bigint ids in the memory store', async () => {
    const clock = virtualClock('2026-03-02T12:00:00.000Z');
    const store = memory({ clock });
    const documents = store.collection('reminders');
    const mill = new Tidemill({ store, logger: false });
    const seen: unknown[] = [];
    const schedule = mill.documents({
      collection: 'reminders',
      onDocument: (_document, { job }) => void seen.push(job.id),
    });
    documents.insert({ _id: 5n, sleepUntil: at('11:00:00.000') });
    documents.insert({ _id: '5', sleepUntil: null });
    await schedule.start();
    await clock.advance('1s');
    expect(seen).toEqual([5n]);
    expect(documents.get(5n)?.['sleepUntil']).toBeNull();
    const { items } = await schedule.find({ state: 'parked' });
    expect(items.map(({ title }) => title)).toEqual(['5', '5']);
    const [big] = items.filter(({ document }) => document?.['_id'] === 5n);
    expect(await schedule.runNow(big?.id ?? '')).toBe('due');
    await clock.advance('1s');
    expect(seen).toEqual([5n, 5n]);
    await schedule.stop();
  });
});

describe('a store that returns null among locked documents', () => {
  it('runs the other documents of a batch and reports the null', async () => {
    const { store: own, clock } = aTestScheduler();
    const jobs = ['a', 'b'].map((id) => own.insert({ id }));
    const store: JobStore = {
      lockNext: (until) => own.lockNext(until),
      update: (id, changes, options) => own.update(id, changes, options),
      remove: (id, options) => own.remove(id, options),
      lockMany: async (until) => {
        const due = jobs.filter(({ sleepUntil }) => sleepUntil instanceof Date && +sleepUntil <= clock.now());
        const before = due.map((job) => ({ ...job }));
        for (const job of due) job.sleepUntil = until;
        return before.length === 0 ? [] : ([null, ...before] as unknown as DocumentJob[]);
      },
    };
    const seen: unknown[] = [];
    const errors: string[] = [];
    const scheduler = new Scheduler({
      store,
      clock,
      concurrency: 5,
      logger: false,
      onDocument: (_document, { job }) => void seen.push(job.id),
      onError: (_error, { where }) => void errors.push(where),
    });
    open.push(scheduler);
    await scheduler.start();
    await clock.advance('5s');
    expect(seen).toEqual(['a', 'b']);
    expect(jobs.map(({ sleepUntil }) => sleepUntil)).toEqual([null, null]);
    expect(errors).toEqual(['lock']);
  });
});

describe('a custom document store with revisions', () => {
  /**
   * What a user adds to the three methods: a revision with each document, a comparison in each write, and a method to
   * read one.
   */
  function revised(own: ReturnType<typeof aTestScheduler>['store']): JobStore {
    const revision = ({ interval, autoRemove }: Partial<DocumentJob>): string =>
      JSON.stringify([interval, autoRemove]);
    const fits = (id: unknown, ifRevision: unknown): boolean =>
      ifRevision === undefined || revision(own.jobs.get(id) ?? {}) === ifRevision;
    return {
      lockNext: async (until) => {
        const job = await own.lockNext(until);
        return job === null ? null : { ...job, revision: revision(job) };
      },
      update: async (id, changes, options) =>
        fits(id, options.ifRevision) && own.update(id, changes, options),
      remove: async (id, options) => fits(id, options.ifRevision) && own.remove(id, options),
      current: async (id) => {
        const job = own.jobs.get(id);
        return job === undefined ? null : { ...job, revision: revision(job) };
      },
    };
  }

  it('settles a run by the schedule as it is at the end of the run in a custom store', async () => {
    const { store: own, clock } = aTestScheduler();
    const scheduler = new Scheduler({
      store: revised(own),
      clock,
      logger: false,
      onDocument: (_document, { job }) =>
        void Object.assign(own.jobs.get(job.id) ?? {}, { autoRemove: false }),
    });
    open.push(scheduler);
    own.insert({ autoRemove: true });
    await scheduler.start();
    await clock.advance('1s');
    expect(own.jobs.get('job-1')?.sleepUntil).toBeNull();
  });
});
