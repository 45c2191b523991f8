import { FatalError, OptionError } from '../../../index.js';
import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { gate, present, until } from '../fixtures.js';

export const insight: Chapter = chapter('inspection', [
  fact('lists live instances with their names and slots, and none after a stop', async ({ aMill }) => {
    const worker = aMill({ instanceId: 'worker', concurrency: 7 });
    worker.job('mail', { concurrency: 3 }, () => undefined);
    await worker.start();
    const viewer = aMill({ instanceId: 'viewer' });
    const [only, ...others] = await viewer.instances();
    expect(others).toEqual([]);
    expect([typeof only?.host, typeof only?.leaseLeftMs]).toEqual(['string', 'number']);
    expect({ ...only, host: '', leaseLeftMs: 0 }).toEqual({
      instanceId: 'worker',
      host: '',
      pid: process.pid,
      names: ['mail'],
      tasks: [],
      alive: true,
      leader: false,
      leaseLeftMs: 0,
      slots: 7,
    });
    const told: string[] = [];
    worker.on('stop', () => told.push('stop'));
    await worker.stop();
    expect(told).toEqual(['stop']);
    expect(await viewer.instances()).toEqual([]);
  }),

  fact('explains why a job waits: paused, not due, no instance, or limit reached', async ({ aMill }) => {
    const mill = aMill();
    const why = async (id: string): Promise<string[]> =>
      (await mill.why({ kind: 'jobs', id })).map(({ code }) => code);
    const later = await mill.enqueue('mail', {}, { delay: '1h' });
    expect(await why(later.id)).toEqual(['not-due', 'no-instance']);
    const [begun, release] = [gate<string>(), gate()];
    mill.job('mail', { concurrency: 1 }, (job) => {
      begun.open(job.id);
      return release.promise;
    });
    await mill.start();
    await mill.jobs.pause('mail');
    expect(await mill.jobs.paused()).toEqual(['mail']);
    expect(await why(later.id)).toEqual(['paused', 'not-due']);
    await mill.jobs.resume('mail');
    const first = await mill.enqueue('mail');
    // Its status would not do: a claim that was begun during the pause hands it back once more.
    expect(await begun.promise).toBe(first.id);
    expect(await why(first.id)).toEqual([]);
    const second = await mill.enqueue('mail');
    await until('the second one waits', async () => (await why(second.id))[0] === 'limit-reached');
    release.open();
    await mill.jobs.result(second.id);
    expect(await why(second.id)).toEqual([]);
    await expect(mill.why({ kind: 'jobs', id: 'nobody' })).rejects.toThrow('there is no job');
  }),

  fact(
    'pages through audit entries, amends them in place, and stores a stop request',
    ['audit'],
    async ({ aMill }) => {
      const mill = aMill();
      const made = [];
      for (const target of ['one', 'two', 'three'])
        made.push(await mill.audit.append({ actor: 'ada', action: 'retry', target, outcome: 'asked for' }));
      const [first] = made;
      const amended = await mill.audit.amend(present(first).id, {
        outcome: 'done',
        details: { done: 5, of: ['a'] },
      });
      expect(amended).toMatchObject({
        outcome: 'done',
        details: { done: 5, of: ['a'] },
        stopRequested: false,
      });
      expect(await mill.audit.amend(present(first).id, { stopRequested: true })).toMatchObject({
        stopRequested: true,
      });
      expect(await mill.audit.get(present(first).id)).toMatchObject({
        actor: 'ada',
        outcome: 'done',
        details: { done: 5 },
      });
      expect(await mill.audit.amend('0'.repeat(24), { outcome: 'x' })).toBeUndefined();
      const page = await mill.audit.list({ limit: 2 });
      const rest = await mill.audit.list({ limit: 2, cursor: page.next ?? '' });
      const targets = [...page.items, ...rest.items].map(({ target }) => target);
      expect(targets.sort()).toEqual(['one', 'three', 'two']);
      expect(rest.next).toBeNull();
      await expect(mill.audit.list({ cursor: 'rubbish' })).rejects.toThrow(OptionError);
    },
  ),

  fact(
    'groups errors that differ only in ids and numbers, with a search text that finds them all',
    async ({ aMill }) => {
      const mill = aMill();
      mill.job<{ n: number }>('mail', { concurrency: 5 }, ({ data }) => {
        throw new FatalError(
          data.n < 3 ? `No mailbox ${String(data.n)} for user 6f0c${String(data.n)}aa11bb22` : 'Full',
        );
      });
      const jobs = await mill.enqueueMany([0, 1, 2, 3].map((n) => ({ name: 'mail', data: { n } })));
      await mill.start();
      await until(
        'all have failed',
        async () => (await mill.jobs.count({ status: 'failed' })) === jobs.length,
      );
      const { groups, partial } = await mill.jobs.errors();
      expect(partial).toBe(false);
      expect(groups.map(({ count, pattern }) => [count, pattern]).sort()).toEqual([
        [1, 'Full'],
        [3, 'No mailbox … for user …'],
      ]);
      const search = groups.find(({ count }) => count === 3)?.search ?? '';
      expect(await mill.jobs.count({ error: search })).toBe(3);
      expect(await mill.jobs.count({ error: search.toUpperCase() })).toBe(3);
      expect((await mill.jobs.errors({ name: 'nobody' })).groups).toEqual([]);
      expect((await mill.jobs.errors({ limit: 2 })).partial).toBe(true);
    },
  ),

  fact(
    'filters by payload fields as plain values, also inside lists, and never as operators',
    async ({ aMill }) => {
      const mill = aMill();
      const data = [
        { user: { id: 5, tags: ['a', 'b'] }, lines: [{ sku: 'x' }, { sku: 'y' }] },
        { user: { id: '5', tags: [] }, gone: null },
        { 'we ird"key': true },
      ];
      const jobs = await mill.enqueueMany(data.map((one) => ({ name: 'mail', data: one })));
      const found = async (fields: Record<string, string | number | boolean | null>): Promise<number[]> => {
        const { items } = await mill.jobs.find({ data: fields });
        return items.map(({ id }) => jobs.findIndex((job) => job.id === id)).sort();
      };
      expect(await found({ 'user.id': 5 })).toEqual([0]);
      expect(await found({ 'user.id': '5' })).toEqual([1]);
      expect(await found({ 'user.tags': 'b' })).toEqual([0]);
      expect(await found({ 'lines.sku': 'y', 'user.id': 5 })).toEqual([0]);
      expect(await found({ gone: null })).toEqual([1]);
      expect(await found({ 'we ird"key': true })).toEqual([2]);
      expect(await found({ missing: 1 })).toEqual([]);
      expect(await mill.jobs.count({ data: { 'user.id': 5 } })).toBe(1);
      const { items, next } = await mill.jobs.find({ data: { 'user.id': 5 } }, { limit: 1 });
      expect([items.length, next]).toEqual([1, null]);
      for (const wrong of [
        { $where: '1' },
        { 'a.$gt': 1 },
        { '': 1 },
        { 'a..b': 1 },
        { a: { $gt: 1 } },
        { a: [1] },
      ])
        await expect(mill.jobs.find({ data: wrong as never })).rejects.toThrow('filter.data');
      await expect(mill.jobs.find({ data: JSON.parse('{"__proto__": 1}') as never })).rejects.toThrow(
        'filter.data',
      );
    },
  ),

  fact(
    'stops a count at its limit, and a bulk action reports progress and stops on its signal',
    async ({ aMill }) => {
      const mill = aMill();
      await mill.enqueueMany(Array.from({ length: 1_200 }, (_, n) => ({ name: 'mail', data: n })));
      expect(await mill.jobs.count({}, { limit: 100 })).toBe(100);
      const told: number[] = [];
      const stop = new AbortController();
      const { count } = await mill.jobs.removeMany(
        { name: 'mail' },
        { signal: stop.signal, onProgress: (done) => told.push(done) === 1 && stop.abort() },
      );
      expect([count, told]).toEqual([500, [500]]);
      expect(await mill.jobs.count()).toBe(700);
      expect((await mill.jobs.removeMany({ all: true })).count).toBe(700);
    },
  ),

  fact('lists the next runs of a schedule and its last one', ['schedules'], async ({ aMill }) => {
    const mill = aMill();
    mill.job('report', () => undefined);
    await mill.schedule('0 3 * * *', 'report', {}, { timezone: 'Europe/Prague' });
    const [schedule] = await mill.schedules.list(undefined, { runs: 10 });
    expect(schedule?.runs).toHaveLength(10);
    expect(schedule?.runs).toEqual(await mill.schedules.next('report', 10));
    await mill.start();
    await mill.schedules.runNow('report');
    const last = await until('it has run', async () => (await mill.schedules.list())[0]?.last);
    expect(last).toMatchObject({ status: 'completed', attempt: 1 });
    await mill.schedules.pause('report');
    expect((await mill.schedules.list('report', { runs: 10 }))[0]?.runs).toEqual([]);
  }),
]);
