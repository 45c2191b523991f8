import { expect, it } from 'vitest';
import { Tidemill } from '../../../src/index.js';
import { until } from '../../../src/testing/conformance/fixtures.js';
import { eachStore } from '../../support/stores.js';

/** Counts what runs at once and when it started. */
function observer(ms: number) {
  const seen = { running: 0, most: 0, starts: [] as number[], keys: [] as string[] };
  const handler = async (job: { data: unknown }): Promise<void> => {
    seen.running += 1;
    seen.most = Math.max(seen.most, seen.running);
    seen.starts.push(performance.now());
    seen.keys.push(String((job.data as { key?: unknown }).key));
    await new Promise((resolve) => setTimeout(resolve, ms));
    seen.running -= 1;
  };
  return { seen, handler };
}

const many = (count: number, key = 'a') =>
  Array.from({ length: count }, () => ({ name: 'work', data: { key } }));

const RATE = { limit: 10, per: '500ms', burst: 3 } as const;
const RATE_MS = 500;
const inWindow = (starts: readonly number[], from: number): number =>
  starts.filter((at) => at >= from && at < from + RATE_MS).length;

eachStore('limits of jobs', ({ open }) => {
  async function run(count: number, define: (mill: Tidemill) => void, mills = 2): Promise<Tidemill[]> {
    const store = open();
    const all = Array.from({ length: mills }, () => new Tidemill({ store, logger: false, concurrency: 20 }));
    for (const mill of all) define(mill);
    if (count > 0) await all[0]?.enqueueMany(many(count));
    await Promise.all(all.map((mill) => mill.start()));
    return all;
  }

  it('never runs more of a name than its limit', async () => {
    const { seen, handler } = observer(15);
    const mills = await run(60, (mill) => {
      mill.job('work', { concurrency: 10, limits: { concurrency: 3 } }, handler);
    });
    await until('all have run', () => seen.starts.length === 60 && seen.running === 0);
    expect(seen.most).toBe(3);
    await Promise.all(mills.map((mill) => mill.stop()));
  });

  it('starts no more than the rate in any window, by the claims of the server', async () => {
    const claims: number[] = [];
    const mills = await run(60, (mill) => {
      mill.on('job:start', ({ job }) => void claims.push(job.lockedAt?.getTime() ?? NaN));
      mill.job('work', { concurrency: 10, limits: { rate: RATE } }, () => undefined);
    });
    await until('all have run', () => claims.length === 60);
    for (const from of claims) expect(inWindow(claims, from)).toBeLessThanOrEqual(RATE.limit);
    // Six windows have room for all.
    expect(Math.max(...claims) - Math.min(...claims)).toBeGreaterThan(2_400);
    await Promise.all(mills.map((mill) => mill.stop()));
  });

  it('starts no more of a key than its rate in any window, by the claims of the server', async () => {
    const claims = new Map<string, number[]>();
    const mills = await run(0, (mill) => {
      mill.on('job:start', ({ job: { limitKey = '', lockedAt } }) =>
        claims.set(limitKey, [...(claims.get(limitKey) ?? []), lockedAt?.getTime() ?? NaN]),
      );
      mill.job('work', { concurrency: 10, limits: { perKey: { key: 'key', rate: RATE } } }, () => undefined);
    });
    await mills[0]?.enqueueMany(['a', 'b'].flatMap((key) => many(25, key)));
    const count = (): number => [...claims.values()].reduce((sum, { length }) => sum + length, 0);
    await until('all have run', () => count() === 50);
    for (const starts of claims.values())
      for (const from of starts) expect(inWindow(starts, from)).toBeLessThanOrEqual(RATE.limit);
    await Promise.all(mills.map((mill) => mill.stop()));
  });

  it('runs the jobs of a key one after the other', async () => {
    const { seen, handler } = observer(3);
    const mills = await run(20, (mill) => {
      mill.job('work', { concurrency: 10, limits: { perKey: { key: 'key', order: 'fifo' } } }, handler);
    });
    await until('all have run', () => seen.starts.length === 20 && seen.running === 0);
    expect(seen.most).toBe(1);
    await Promise.all(mills.map((mill) => mill.stop()));
  });

  it('gives back what it holds when it stops', async () => {
    const { seen, handler } = observer(1);
    const [mill] = await run(
      3,
      (one) => {
        one.job('work', { limits: { concurrency: 2 } }, handler);
      },
      1,
    );
    await until('all have run', () => seen.starts.length === 3 && seen.running === 0);
    expect((await mill?.limits.list())?.map(({ name }) => name)).toEqual(['work']);
    await mill?.stop();
    const state = await mill?.limits.get('work');
    expect(state).toMatchObject({
      kind: 'job',
      limits: { concurrency: 2 },
      use: { running: 0, waiting: 0 },
      source: 'code',
    });
    await mill?.stop();
  });
});

eachStore('limits that change', ({ open }) => {
  it('set limits a name that had no limit before on every mill within 2.5 s', async () => {
    const store = open();
    const { seen, handler } = observer(30);
    const mills = [0, 1].map(() => new Tidemill({ store, logger: false, concurrency: 20 }));
    for (const mill of mills) mill.job('work', { concurrency: 5 }, handler);
    await Promise.all(mills.map((mill) => mill.start()));
    await mills[0]?.limits.set('work', { concurrency: 1 });
    await new Promise((resolve) => setTimeout(resolve, 2_500));
    await mills[0]?.enqueueMany(many(12));
    await until('all have run', () => seen.starts.length === 12 && seen.running === 0);
    expect(seen.most).toBe(1);
    await Promise.all(mills.map((mill) => mill.stop()));
  });

  it('refuses a shared limit that is not defined, and one that is called like a job', async () => {
    const undefinedOne = new Tidemill({ store: open(), logger: false });
    undefinedOne.job('work', { limits: { shared: ['erp'] } }, () => undefined);
    await expect(undefinedOne.start()).rejects.toThrow('the shared limit "erp" is not defined on this mill');
    await undefinedOne.stop();
    const likeJob = new Tidemill({ store: open(), logger: false });
    likeJob.job('work', () => undefined);
    likeJob.limit('work', { concurrency: 1 });
    await expect(likeJob.start()).rejects.toThrow('a job has this name');
    await likeJob.stop();
  });

  it('says which limit a job waits for', async () => {
    const mill = new Tidemill({ store: open(), logger: false });
    const rate = { limit: 1, per: '10m' } as const;
    mill.job(
      'work',
      { limits: { concurrency: 2, rate, perKey: { key: 'key', order: 'fifo' } } },
      () => undefined,
    );
    const jobs = await mill.enqueueMany(many(2));
    await mill.start();
    const [, second] = jobs as readonly { id: string }[];
    const why = () => mill.why({ kind: 'jobs', id: second?.id ?? '' });
    const reason = await until('the rate holds it up', async () =>
      (await why()).find(({ code }) => code === 'rate'),
    );
    expect(reason.text).toMatch(/^It waits for the rate of the name "work", free in \d+\.\d s\.$/);
    expect(reason.until).toBeInstanceOf(Date);
    await mill.stop();
  });
});
