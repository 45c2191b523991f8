import { expect, it } from 'vitest';
import type { JobOptions, Tidemill } from '../../src/index.js';
import type { Store } from '../../src/store/port.js';
import { once } from '../../src/testing/conformance/fixtures.js';
import { aMill, gate, until } from '../support/mills.js';
import { eachLimitedStore } from '../support/stores.js';

const inOrder = (whileRetrying?: 'hold' | 'pass') => ({
  perKey: { key: 'key', order: 'fifo', ...(whileRetrying === undefined ? {} : { whileRetrying }) } as const,
});
const oneRetry = { type: 'fixed', interval: 50, maxAttempts: 2 } as const;
const lateRetry = { type: 'fixed', interval: '1h', maxAttempts: 2 } as const;

type Handler = (job: { data: { n: number }; attempt: number }) => unknown;

eachLimitedStore('order of the jobs of a key', ({ open }) => {
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
});
