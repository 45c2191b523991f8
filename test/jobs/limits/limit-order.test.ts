import { describe, expect, it, vi } from 'vitest';
import type { JobOptions, Tidemill } from '../../../src/index.js';
import type { Store } from '../../../src/store/port.js';
import { once } from '../../../src/testing/conformance/fixtures.js';
import { aMill, gate, until } from '../../support/mills.js';
import { eachStore } from '../../support/stores.js';

const inOrder = (whileRetrying?: 'hold' | 'pass') => ({
  perKey: { key: 'key', order: 'fifo', ...(whileRetrying === undefined ? {} : { whileRetrying }) } as const,
});
const oneRetry = { type: 'fixed', interval: 50, maxAttempts: 2 } as const;
const lateRetry = { type: 'fixed', interval: '1h', maxAttempts: 2 } as const;

const inAMonth = (): Date => new Date(Date.now() + 30 * 86_400_000);

type Handler = (job: { data: { n: number }; attempt: number }) => unknown;

eachStore('order of the jobs of a key', ({ open }) => {
  /** Two mills of one cluster that run `work`. */
  async function two(
    options: JobOptions,
    handler: Handler,
  ): Promise<{ store: Store; mill: Tidemill; enqueue: (n: number, given?: object) => Promise<string> }> {
    const store = open();
    const mills = [aMill(store), aMill(store)] as const;
    for (const mill of mills) mill.job<{ n: number }>('work', { concurrency: 5, ...options }, handler);
    await Promise.all(mills.map((mill) => mill.start()));
    const [mill] = mills;
    const enqueue = async (n: number, given: object = {}): Promise<string> =>
      (await mill.enqueue('work', { key: 'a', n }, given)).id;
    return { store, mill, enqueue };
  }

  it.each([{ whileRetrying: undefined }, { whileRetrying: 'hold' }, { whileRetrying: 'pass' }] as const)(
    'runs jobs in the order of enqueue when one waits for a retry with $whileRetrying',
    async ({ whileRetrying }) => {
      const ran: number[] = [];
      const all = gate();
      const passes = whileRetrying === 'pass';
      const { mill, enqueue } = await two(
        { limits: inOrder(whileRetrying), retryPolicy: passes ? lateRetry : oneRetry },
        async ({ data: { n }, attempt }) => {
          ran.push(n);
          if (ran.length === 1) await all.promise;
          if (n === 1 && attempt === 1) throw new Error('again');
        },
      );
      const first = await enqueue(1);
      for (const n of [2, 3]) await enqueue(n);
      all.open();
      if (passes) {
        await until('the others have run', () => ran.length === 3);
        await mill.jobs.reschedule(first, new Date(0));
      }
      await until('all have run', () => ran.length === 4);
      expect(ran).toEqual(passes ? [1, 2, 3, 1] : [1, 1, 2, 3]);
    },
  );

  it('orders by due time, then by enqueue, whatever becomes due first', async () => {
    const store = open();
    const mill = aMill(store);
    const ran: number[] = [];
    mill.job<{ n: number }>('work', { concurrency: 5, limits: inOrder() }, ({ data }) => {
      ran.push(data.n);
    });
    const before = Date.now() - 60_000;
    const at = (ms: number): Date => new Date(before + ms);
    for (const [n, runAt] of [
      [3, at(500)],
      [1, at(0)],
      [4, at(500)],
      [2, at(100)],
    ] as const)
      await mill.enqueue('work', { key: 'a', n }, { runAt });
    await mill.start();
    await until('all have run', () => ran.length === 4);
    expect(ran).toEqual([1, 2, 3, 4]);
  });

  it('a job that failed for good frees its key, and goes to the end when it is retried by hand', async () => {
    const ran: number[] = [];
    const second = gate();
    const { mill, enqueue } = await two({ limits: inOrder(), retryPolicy: once }, async ({ data: { n } }) => {
      ran.push(n);
      if (n === 1 && ran.length === 1) throw new Error('no');
      if (n === 2) await second.promise;
    });
    const first = await enqueue(1);
    await enqueue(2);
    await enqueue(3);
    await until('the second one runs', () => ran.length === 2);
    await mill.jobs.retry(first);
    second.open();
    await until('all have run', () => ran.length === 4);
    expect(ran).toEqual([1, 2, 3, 1]);
  });

  it('a job that waits for its retry frees its key when it is cancelled or removed', async () => {
    const ran: number[] = [];
    const { mill, enqueue } = await two({ limits: inOrder(), retryPolicy: lateRetry }, ({ data: { n } }) => {
      ran.push(n);
      if (n < 3) throw new Error('later');
    });
    const [first, second, third] = [await enqueue(1), await enqueue(2), await enqueue(3)];
    const waits = (id: string) => async (): Promise<boolean> => {
      const job = await mill.jobs.get(id);
      return job?.status === 'pending' && job.failCount === 1;
    };
    await until('the first one waits for its retry', waits(first));
    expect(ran).toEqual([1]);
    const why = await mill.why({ kind: 'jobs', id: third });
    expect(why.map(({ code }) => code)).toEqual(['order']);
    expect(why[0]?.text).toContain(first);
    await mill.jobs.cancel(first);
    await until('the second one waits for its retry', waits(second));
    await mill.jobs.remove(second);
    await until('the third one has run', async () => (await mill.jobs.get(third))?.status === 'completed');
    expect(ran).toEqual([1, 2, 3]);
  });

  it('a job that expires while it waits for its turn frees the turn', async () => {
    const ran: number[] = [];
    const first = gate();
    const { mill, enqueue } = await two({ limits: inOrder() }, async ({ data: { n } }) => {
      ran.push(n);
      if (n === 1) await first.promise;
    });
    await enqueue(1);
    const late = await enqueue(2, { expireIn: 50 });
    await enqueue(3);
    await until('it has expired', async () => (await mill.jobs.get(late))?.status === 'cancelled');
    expect((await mill.jobs.get(late))?.failReason).toBe('expired');
    first.open();
    await until('the third one has run', () => ran.length === 2);
    expect(ran).toEqual([1, 3]);
  });

  describe.each([
    ['jobs.reschedule', (mill: Tidemill, id: string) => mill.jobs.reschedule(id, '30d')],
    ['jobs.update', (mill: Tidemill, id: string) => mill.jobs.update(id, { runAt: inAMonth() })],
    [
      'onExisting reschedule',
      (mill: Tidemill) => {
        const options = { uniqueKey: 'first', onExisting: 'reschedule', runAt: inAMonth() } as const;
        return mill.enqueue('work', { key: 'a', n: 1 }, options);
      },
    ],
  ] as const)('%s', (_call, move) => {
    it('moves a job behind those that are due earlier, and it holds its key no more', async () => {
      const ran: number[] = [];
      const { mill, enqueue } = await two(
        { limits: inOrder(), retryPolicy: lateRetry },
        ({ data: { n } }) => {
          ran.push(n);
          if (n === 1) throw new Error('later');
        },
      );
      const first = await enqueue(1, { uniqueKey: 'first' });
      await until('it waits for its retry', async () => (await mill.jobs.get(first))?.failCount === 1);
      const second = await enqueue(2);
      const [why] = await mill.why({ kind: 'jobs', id: second });
      expect(why?.code).toBe('order');
      expect(why?.until).toEqual((await mill.jobs.get(first))?.runAt);
      await move(mill, first);
      await until('the second one has run', () => ran.length === 2);
      await mill.jobs.result(await enqueue(3));
      expect(ran).toEqual([1, 2, 3]);
      expect((await mill.jobs.get(first))?.runAt.getTime()).toBeGreaterThan(Date.now() + 2e9);
    });
  });

  it('moves a job before those that are due later', async () => {
    const ran: number[] = [];
    const { mill, enqueue } = await two({ limits: inOrder() }, ({ data: { n } }) => ran.push(n));
    await mill.jobs.pause('work');
    const [first, second] = [await enqueue(1, { delay: '1h' }), await enqueue(2, { delay: '2h' })];
    await mill.jobs.reschedule(first, new Date(2_000));
    await mill.jobs.update(second, { runAt: new Date(1_000) });
    await mill.jobs.resume('work');
    await until('both have run', () => ran.length === 2);
    expect(ran).toEqual([2, 1]);
  });

  it('gives a debounced job the place of its due time', async () => {
    const store = open();
    const mill = aMill(store);
    mill.job('work', { limits: inOrder() }, () => undefined);
    const first = await mill.enqueue(
      'work',
      { key: 'a' },
      { uniqueKey: 'u', debounce: { wait: '1h', maxWait: '90m' } },
    );
    const placed = async (): Promise<[Date | undefined, number]> => {
      const job = await store.jobs.get(first.id);
      return [job?.nextRunAt, Number(job?.limitOrder?.split('-')[0])];
    };
    const [dueAt, place] = await placed();
    expect(place).toBe(dueAt?.getTime());
    await mill.enqueue('work', { key: 'a' }, { uniqueKey: 'u', debounce: { wait: '2h', maxWait: '2h' } });
    const [movedTo, moved] = await placed();
    expect(moved).toBe(movedTo?.getTime());
    expect(moved).toBeGreaterThan(place);
    vi.spyOn(store.clock, 'now').mockReturnValueOnce(first.createdAt.getTime() + 600_000);
    const newest = { uniqueKey: 'u', debounce: { wait: '1h', maxWait: '1h' } } as const;
    await mill.enqueue('work', { key: 'a' }, newest);
    const [capped, earlier] = await placed();
    expect(capped).toEqual(new Date(first.createdAt.getTime() + 3_600_000));
    expect(earlier).toBe(capped?.getTime());
  });

  it('orders jobs by enqueue although the clock goes back', async () => {
    const store = open();
    const mill = aMill(store);
    mill.job('work', { limits: inOrder() }, () => undefined);
    await mill.enqueue('work', { key: 'b' });
    const now = store.clock.now();
    const clock = vi.spyOn(store.clock, 'now');
    const orders: (string | undefined)[] = [];
    for (const [at, options] of [
      [now + 20, {}],
      [now, {}],
      [now + 10, { delay: 0 }],
    ] as const) {
      clock.mockReturnValueOnce(at);
      const { id } = await mill.enqueue('work', { key: 'a' }, options);
      const job = await store.jobs.get(id);
      expect(job?.createdAt.getTime()).toBe(at);
      orders.push(job?.limitOrder);
    }
    expect(orders.toSorted()).toEqual(orders);
  });
});
