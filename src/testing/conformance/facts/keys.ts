import { orderOf } from '../../../core/records/limit-order.js';
import type { JobRecord } from '../../../core/records/job.js';
import type { ClaimAnswer, Instance, KeyRule, NameLimit, NewJob, Store } from '../../../store/port.js';
import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { aClaim, aJob, ago, ahead, anInstance, aRegistration, done, present, until } from '../fixtures.js';
import { limitsOf } from './limits.js';

const KEEP = () => ({ completed: 1e9, failed: 1e9, cancelled: 1e9 });

/** A job of a key that was due `dueMs` ago. */
export function keyed(
  limitKey: string,
  data: unknown = limitKey,
  dueMs = 1_000,
  fields: Partial<NewJob> = {},
): NewJob {
  const at = ago(dueMs);
  return aJob({ limitKey, data, nextRunAt: at, limitOrder: orderOf(at.getTime(), Date.now()), ...fields });
}

export async function claimBy(
  store: Store,
  keys: KeyRule,
  max = 10,
  fields: Partial<NameLimit> = {},
  instance: Instance = anInstance(),
): Promise<ClaimAnswer> {
  const limits = new Map([['work', { max, rank: 0, of: 1, keys, ...fields }]]);
  return store.jobs.claim(aClaim(instance, { limits, total: max }));
}

export const dataOf = ({ jobs }: ClaimAnswer): unknown[] => jobs.map(({ data }) => data);
export const sorted = (texts: unknown[]): string[] => texts.map(String).sort();
export const FIFO: KeyRule = { order: 'fifo', whileRetrying: 'hold' };
const PASS: KeyRule = { order: 'fifo', whileRetrying: 'pass' };

export const keys: Chapter = chapter({ title: 'limits per key', needs: ['limits'] }, [
  fact('takes nothing after the time that a limit ends', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert([aJob(), keyed('a')]);
    const plain = new Map([['work', { max: 5, rank: 0, of: 1, notAfter: ago(60_000) }]]);
    expect((await store.jobs.claim(aClaim(anInstance(), { limits: plain }))).jobs).toEqual([]);
    expect((await claimBy(store, {}, 5, { notAfter: ago(60_000) })).jobs).toEqual([]);
    expect((await claimBy(store, {}, 5, { notAfter: ahead(60_000) })).jobs).toHaveLength(2);
  }),

  fact('lets keys take turns, the one that waits longest first', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert([
      ...Array.from({ length: 20 }, (_one, n) => keyed('flood', 'flood', 9_000 + n)),
      ...['a', 'b', 'c'].map((key, n) => keyed(key, key, 3_000 - n)),
    ]);
    expect(dataOf(await claimBy(store, {}, 4))).toContain('flood');
    const next = [...dataOf(await claimBy(store, {}, 4))];
    expect(next.filter((data) => data === 'flood').length).toBeGreaterThanOrEqual(1);
    const running = await store.jobs.find(
      { status: ['processing'] },
      { field: 'createdAt', direction: 1, limit: 50 },
    );
    expect(new Set(running.jobs.map(({ limitKey }) => limitKey)).size).toBe(4);
  }),

  fact('takes much of each of a few keys if a claim has turns', async ({ opened }) => {
    const store = await opened();
    const jobs = (key: string, count: number, dueMs: number): NewJob[] =>
      Array.from({ length: count }, (_none, n) => keyed(key, `${key}${String(n)}`, dueMs - n));
    await store.jobs.insert([...jobs('a', 7, 3_000), ...jobs('b', 4, 2_000), ...jobs('c', 1, 1_000)]);
    const turns = { each: 3, most: 2 };
    const first = await claimBy(store, {}, 10, { turns });
    expect(sorted(dataOf(first))).toEqual(['a0', 'a1', 'a2', 'b0', 'b1', 'b2']);
    expect(first.more).toBe(true);
    let left = 6;
    while (left > 0) {
      const answer = await claimBy(store, {}, 10, { turns });
      const taken = new Set(answer.jobs.map(({ limitKey }) => limitKey));
      expect(answer.jobs.length).toBeGreaterThan(0);
      expect(answer.jobs.length).toBeLessThanOrEqual(6);
      expect(taken.size).toBeLessThanOrEqual(2);
      left -= answer.jobs.length;
    }
  }),

  fact(
    'takes no more in a turn than the limit of the key, or the claim, lets through',
    async ({ opened }) => {
      const store = await opened();
      await store.jobs.insert(['a', 'b', 'c'].flatMap((key) => Array.from({ length: 6 }, () => keyed(key))));
      const turns = { each: 5, most: 3 };
      const limited = await claimBy(store, { concurrency: 2 }, 10, { turns });
      expect(sorted(dataOf(limited))).toEqual(['a', 'a', 'b', 'b', 'c', 'c']);
      await store.jobs.settle(limited.jobs.map((job) => done(job)));
      expect((await claimBy(store, {}, 4, { turns })).jobs).toHaveLength(4);
    },
  ),

  fact('takes the first job of a key by priority, due time and id', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert([
      keyed('a', 'late', 1_000),
      keyed('a', 'early', 2_000),
      keyed('a', 'high', 500, { priority: 5 }),
    ]);
    expect(dataOf(await claimBy(store, { concurrency: 1 }))).toEqual(['high']);
  }),

  fact(
    'never runs more of a key than its limit, whatever many instances claim at once',
    async ({ opened }) => {
      const store = await opened();
      await store.jobs.insert(['a', 'b', 'c'].flatMap((key) => Array.from({ length: 8 }, () => keyed(key))));
      let left = 24;
      await Promise.all(
        Array.from({ length: 5 }, async () => {
          while (left > 0) {
            const { jobs } = await claimBy(store, { concurrency: 2 }, 4);
            const running = await store.jobs.find(
              { status: ['processing'] },
              { field: 'createdAt', direction: 1, limit: 50 },
            );
            for (const key of ['a', 'b', 'c'])
              expect(running.jobs.filter(({ limitKey }) => limitKey === key).length).toBeLessThanOrEqual(2);
            await store.jobs.settle(jobs.map((job) => done(job)));
            left -= jobs.length;
          }
        }),
      );
      expect(left).toBe(0);
    },
  ),

  fact('frees a key when its job ends, is handed back or is taken over', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert(Array.from({ length: 4 }, () => keyed('a')));
    const one: KeyRule = { concurrency: 1 };
    const next = async (): Promise<JobRecord> => present((await claimBy(store, one)).jobs[0]);
    const first = await next();
    const blocked = await claimBy(store, one);
    expect(blocked).toMatchObject({ jobs: [], more: false });
    expect(blocked.heldUp?.get('work')).toBeNull();
    await store.jobs.settle([done(first)]);
    await store.jobs.settle([done(await next(), { status: 'pending', set: {} })]);
    await store.jobs.settle([done(await next(), { status: 'failed', by: 'reclaimer' })]);
    await store.jobs.settle([done(await next(), { remove: true })]);
    expect((await next()).limitKey).toBe('a');
  }),

  fact('finds the one key that can run among many that cannot', async ({ opened }) => {
    const store = await opened();
    const many = Array.from({ length: 60 }, (_one, n) => `key-${String(n)}`);
    await store.jobs.insert(many.flatMap((key) => [keyed(key, key, 5_000), keyed(key, key, 4_000)]));
    expect((await claimBy(store, { concurrency: 1 }, 60)).jobs).toHaveLength(60);
    await store.jobs.insert([keyed('other', 'other', 0)]);
    expect(dataOf(await claimBy(store, { concurrency: 1 }, 5))).toEqual(['other']);
    const after = await claimBy(store, { concurrency: 1 }, 5);
    expect(after).toMatchObject({ jobs: [], more: false });
  }),

  fact('counts jobs without a key as those of one key', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert([
      aJob({ data: 'none' }),
      aJob({ data: 'none' }),
      keyed('', 'none'),
      keyed('a', 'a'),
    ]);
    expect(sorted(dataOf(await claimBy(store, { concurrency: 1 })))).toEqual(['a', 'none']);
  }),

  fact('keeps keys apart that differ in any character', async ({ opened }) => {
    const store = await opened();
    const texts = [
      'a',
      'A',
      'a ',
      '$a',
      'a.b',
      "'",
      '"',
      '\\',
      '\u017e',
      'e\u0301',
      '\u00e9',
      '1',
      'null',
      'x'.repeat(1_024),
    ];
    await store.jobs.insert(texts.flatMap((text) => [keyed(text), keyed(text)]));
    const { jobs } = await claimBy(store, { concurrency: 1 }, 100);
    expect(sorted(jobs.map(({ limitKey }) => limitKey))).toEqual(sorted([...texts]));
  }),

  fact('starts no more of a key than its rate, and says when the next one may start', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert([...Array.from({ length: 5 }, () => keyed('a')), keyed('b')]);
    const rule: KeyRule = { rate: { limit: 2, perMs: 700, burst: 2 } };
    const first = await claimBy(store, rule);
    expect(sorted(dataOf(first))).toEqual(['a', 'a', 'b']);
    const second = await claimBy(store, rule);
    expect(second).toMatchObject({ jobs: [], more: false });
    const free = second.heldUp?.get('work')?.getTime() ?? 0;
    expect(free).toBeGreaterThan(second.cluster.now.getTime());
    const next = await until('the rate lets more through', async () => {
      const answer = await claimBy(store, rule);
      return answer.jobs.length > 0 && answer;
    });
    expect(
      (next.jobs[0]?.lockedAt?.getTime() ?? 0) - (first.jobs[0]?.lockedAt?.getTime() ?? 0),
    ).toBeGreaterThanOrEqual(700);
  }),

  fact('gives the start of a key back once if its job did not start', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert(['1', '2', '3'].map((data, n) => keyed('a', data, 3_000 - n)));
    const rule: KeyRule = { rate: { limit: 2, perMs: 600_000, burst: 2 } };
    const instance = anInstance();
    const first = await claimBy(store, rule, 10, {}, instance);
    expect(dataOf(first)).toEqual(['1', '2']);
    const [one, two] = first.jobs.map(present);
    const back = done(present(one), { status: 'pending', set: {}, unstarted: true });
    expect(await store.jobs.settle([back])).toEqual(['settled']);
    // After a lost answer.
    expect(await store.jobs.settle([back])).toEqual(['settled']);
    const again = await until('the start is granted again', async () => {
      const answer = await claimBy(store, rule);
      return answer.jobs.length > 0 && answer;
    });
    expect(dataOf(again)).toEqual(['1']);
    const none = await claimBy(store, rule);
    expect(none.jobs).toEqual([]);
    expect(none.heldUp?.get('work')?.getTime()).toBeGreaterThan(none.cluster.now.getTime());
    // This one did start.
    await store.jobs.settle([done(present(two), { status: 'pending', set: {} })]);
    expect((await claimBy(store, rule)).jobs).toEqual([]);
    const over = done(present(again.jobs[0]), { status: 'cancelled', set: {}, unstarted: true });
    expect(await store.jobs.settle([over])).toEqual(['settled']);
    const last = await until('it is granted once more', async () => {
      const answer = await claimBy(store, rule);
      return answer.jobs.length > 0 && answer;
    });
    expect(last.jobs).toHaveLength(1);
  }),

  fact('offers a key whose last job ends while another one is enqueued', async ({ opened }) => {
    const store = await opened();
    for (let round = 0; round < 15; round += 1) {
      const key = `key-${String(round)}`;
      await store.jobs.insert([keyed(key)]);
      const { jobs } = await claimBy(store, { concurrency: 1 });
      expect(jobs).toHaveLength(1);
      await Promise.all([store.jobs.settle(jobs.map((job) => done(job))), store.jobs.insert([keyed(key)])]);
      const next = await until('the new job is found', async () => {
        const answer = await claimBy(store, { concurrency: 1 });
        return answer.jobs.length > 0 && answer;
      });
      await store.jobs.settle(next.jobs.map((job) => done(job)));
    }
  }),

  fact('wakes the instances when a key can run again', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert([keyed('a'), keyed('a')]);
    const { jobs } = await claimBy(store, { concurrency: 1 });
    await claimBy(store, { concurrency: 1 });
    let woken = 0;
    const watch = await store.watch({
      wake: (what, _hint, due) => {
        if (what === 'jobs' && due?.has('work') !== false) woken += 1;
      },
      cancel: () => undefined,
      news: () => undefined,
      freed: () => undefined,
      broken: () => undefined,
    });
    if ('unavailable' in watch) return;
    await store.jobs.settle(jobs.map((job) => done(job)));
    await until('they are woken', () => woken > 0);
    await watch.close();
  }),

  fact('wakes the instances when a job that held its key leaves', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert(['1', '2', '3', '4'].map((data, n) => keyed('a', data, 3_000 - n)));
    const heard: unknown[] = [];
    const watch = await store.watch({
      wake: (what, _hint, due) => {
        if (what === 'jobs' && due?.has('work') !== false) heard.push(due);
      },
      cancel: () => undefined,
      news: () => undefined,
      freed: () => undefined,
      broken: () => undefined,
    });
    if ('unavailable' in watch) return;
    for (const leaves of [
      (job: JobRecord) => store.jobs.cancel(job.id, KEEP),
      (job: JobRecord) => store.jobs.cancelBatch([job], KEEP),
      (job: JobRecord) => store.jobs.removeBatch([job]),
    ]) {
      const job = present((await claimBy(store, FIFO)).jobs[0]);
      await store.jobs.settle([
        done(job, { status: 'pending', set: { nextRunAt: ahead(400_000), failCount: 1 } }),
      ]);
      expect((await claimBy(store, FIFO)).jobs).toEqual([]);
      heard.length = 0;
      await leaves(present(await store.jobs.get(job.id)));
      await until('they are woken', () => heard.length > 0);
    }
    expect(dataOf(await claimBy(store, FIFO))).toEqual(['4']);
    await watch.close();
  }),

  fact('runs the jobs of a key one after the other in their order', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert([
      keyed('a', '2', 1_000, { priority: 9 }),
      keyed('b', 'other', 500),
      keyed('a', '1', 3_000),
      keyed('a', '3', 1_000),
    ]);
    const ran: unknown[] = [];
    for (let turn = 0; turn < 3; turn += 1) {
      const { jobs } = await claimBy(store, FIFO);
      const ofA = jobs.filter(({ limitKey }) => limitKey === 'a');
      expect(ofA).toHaveLength(1);
      expect((await claimBy(store, FIFO)).jobs).toEqual([]);
      ran.push(ofA[0]?.data);
      await store.jobs.settle(ofA.map((job) => done(job)));
    }
    expect(ran).toEqual(['1', '2', '3']);
  }),

  fact('holds a key while its job waits for a retry, or lets others pass', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert([keyed('a', '1', 2_000), keyed('a', '2', 1_000)]);
    const [first] = (await claimBy(store, FIFO)).jobs;
    const retryAt = ahead(400_000);
    await store.jobs.settle([
      done(present(first), { status: 'pending', set: { nextRunAt: retryAt, failCount: 1 } }),
    ]);
    const held = await claimBy(store, FIFO);
    expect(held.jobs).toEqual([]);
    expect(held.heldUp?.get('work')).toEqual(retryAt);
    expect(dataOf(await claimBy(store, PASS))).toEqual(['2']);
  }),

  fact(
    'lets the next job of a key go on when the one that held it is cancelled or removed',
    async ({ opened }) => {
      const store = await opened();
      await store.jobs.insert(['1', '2', '3'].map((data, n) => keyed('a', data, 3_000 - n)));
      for (const end of ['cancel', 'remove'] as const) {
        const [job] = (await claimBy(store, FIFO)).jobs;
        await store.jobs.settle([
          done(present(job), { status: 'pending', set: { nextRunAt: ahead(400_000), failCount: 1 } }),
        ]);
        expect((await claimBy(store, FIFO)).jobs).toEqual([]);
        if (end === 'cancel') await store.jobs.cancel(present(job).id, KEEP);
        else await store.jobs.remove(present(job).id);
      }
      expect(dataOf(await claimBy(store, FIFO))).toEqual(['3']);
    },
  ),

  fact('puts a job that is retried by hand behind those of its key', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert([keyed('a', '1', 2_000), keyed('a', '2', 1_000)]);
    const [first] = (await claimBy(store, FIFO)).jobs;
    await store.jobs.settle([done(present(first), { status: 'failed' })]);
    await store.jobs.retry(present(first).id, new Date());
    const [second] = (await claimBy(store, FIFO)).jobs;
    expect(second?.data).toBe('2');
    await store.jobs.settle([done(present(second))]);
    expect(dataOf(await claimBy(store, FIFO))).toEqual(['1']);
  }),

  fact(
    'lets a job without an order run first when it is due, and hold nothing before',
    async ({ opened }) => {
      const store = await opened();
      await store.jobs.insert([
        aJob({ limitKey: 'a', data: 'later', nextRunAt: ahead(400_000) }),
        keyed('a', 'ordered', 9_000),
        aJob({ limitKey: 'a', data: 'due', nextRunAt: ago(10) }),
      ]);
      for (const data of ['due', 'ordered']) {
        const { jobs } = await claimBy(store, FIFO);
        expect(jobs.map((job) => job.data)).toEqual([data]);
        await store.jobs.settle(jobs.map((job) => done(job)));
      }
      expect((await claimBy(store, FIFO)).jobs).toEqual([]);
    },
  ),

  fact('takes hold of a key again when its dead holder is reclaimed', async ({ opened }) => {
    const store = await opened();
    const registration = aRegistration({ leaseMs: 500 });
    await store.instances.register(registration);
    await store.jobs.insert([keyed('a', '1', 2_000), keyed('a', '2', 1_000)]);
    await claimBy(store, FIFO, 5, {}, registration);
    expect((await claimBy(store, FIFO)).jobs).toEqual([]);
    const held = await store.jobs.heldBy(registration, 10);
    await store.jobs.settle(
      held.map((job) => done(job, { status: 'pending', set: { failCount: 1 }, by: 'reclaimer' })),
    );
    expect(dataOf(await claimBy(store, FIFO))).toEqual(['1']);
  }),

  fact('lists the keys that wait longest, and what they wait for', async ({ opened }) => {
    const store = await opened();
    const rule: KeyRule = { concurrency: 1, rate: { limit: 5, perMs: 600_000, burst: 1 } };
    await store.jobs.insert([
      ...Array.from({ length: 3 }, () => keyed('busy', 'busy', 9_000)),
      keyed('idle', 'idle', 2_000),
      keyed('later', 'later', -400_000),
    ]);
    await claimBy(store, rule, 1);
    const list = await limitsOf(store).keys({ kind: 'job', name: 'work' }, rule, { limit: 10 });
    expect(list.map(({ key }) => key)).toEqual(['busy', 'idle']);
    expect(list[0]).toMatchObject({ key: 'busy', running: 1, due: 2 });
    expect(list[0]?.rateFreeAt).toBeInstanceOf(Date);
    expect(list[0]?.dueSince).toBeInstanceOf(Date);
    const [later] = await limitsOf(store).keys({ kind: 'job', name: 'work' }, rule, ['later']);
    expect(later).toMatchObject({ key: 'later', running: 0, due: 0 });
    expect(later?.dueSince).toBeUndefined();
  }),

  fact('offers the jobs that were enqueued before their name had a limit per key', async ({ opened }) => {
    const store = await opened();
    await store.jobs.insert([aJob({ data: 'none' }), keyed('a')]);
    await store.jobs.claim(aClaim(anInstance(), { names: ['other'] }));
    await limitsOf(store).repairKeys?.({ kind: 'job', name: 'work' }, { concurrency: 1 });
    expect(sorted(dataOf(await claimBy(store, { concurrency: 1 })))).toEqual(['a', 'none']);
  }),
]);
