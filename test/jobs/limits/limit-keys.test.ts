import { expect, it, vi } from 'vitest';
import type { UpdateChanges } from '../../../src/index.js';
import { aMill, until } from '../../support/mills.js';
import { eachStore } from '../../support/stores.js';

eachStore('keys of jobs', ({ open }) => {
  it('a key comes from a path into the payload, a function of it, or by hand', async () => {
    const mill = aMill(open());
    mill.job('by-path', { limits: { perKey: { key: 'customer.id' } } }, () => undefined);
    mill.job(
      'by-function',
      { limits: { perKey: { key: ({ a, b }: { a: string; b: string }) => `${a}/${b}` } } },
      () => undefined,
    );
    const keyOf = async (...given: Parameters<typeof mill.enqueue>): Promise<string | undefined> => {
      const { id } = await mill.enqueue(...given);
      return (await mill.jobs.get(id))?.limitKey;
    };
    expect(await keyOf('by-path', { customer: { id: 'acme' } })).toBe('acme');
    expect(await keyOf('by-path', { customer: { id: 7 } })).toBe('7');
    expect(await keyOf('by-path', { customer: { id: null } })).toBe('');
    expect(await keyOf('by-path', {})).toBe('');
    expect(await keyOf('by-path', { customer: { id: 'acme' } }, { key: 'other' })).toBe('other');
    expect(await keyOf('by-function', { a: 'x', b: 'y' })).toBe('x/y');
    expect(await keyOf('unknown', {}, { key: 'acme' })).toBe('acme');
    expect(await keyOf('unknown', {}, { key: 12 })).toBe('12');
    expect(await keyOf('unknown', {})).toBeUndefined();
  });

  it('a new payload gives a waiting job a new key, unless the change names one', async () => {
    const mill = aMill(open());
    mill.job('work', { limits: { perKey: { key: 'key' } } }, () => undefined);
    const { id } = await mill.enqueue('work', { key: 'a' });
    const keyAfter = async (changes: UpdateChanges): Promise<string | undefined> => {
      await mill.jobs.update(id, changes);
      return (await mill.jobs.get(id))?.limitKey;
    };
    expect(await keyAfter({ data: { key: 'b' } })).toBe('b');
    expect(await keyAfter({ data: { key: 'c' }, key: 'by-hand' })).toBe('by-hand');
    expect(await keyAfter({ priority: 3 })).toBe('by-hand');
  });

  it('jobs of a producer that knows only the name count as those of one key', async () => {
    const store = open();
    const producer = aMill(store);
    await producer.enqueueMany(Array.from({ length: 6 }, () => ({ name: 'work', data: {} })));
    let running = 0;
    let most = 0;
    let ended = 0;
    for (const mill of [aMill(store), aMill(store)]) {
      mill.job('work', { concurrency: 5, limits: { perKey: { key: 'key', concurrency: 1 } } }, async () => {
        most = Math.max(most, (running += 1));
        await new Promise((resolve) => setTimeout(resolve, 2));
        running -= 1;
        ended += 1;
      });
      await mill.start();
    }
    await until('all have run', () => ended === 6);
    expect(most).toBe(1);
  });

  it('each of a hundred keys with one job starts within two turns, beside a key with thousands', async () => {
    const mill = aMill(open());
    const order: string[] = [];
    mill.job<{ tenant: string }>(
      'work',
      { concurrency: 10, limits: { perKey: { key: 'tenant' } } },
      ({ data }) => void order.push(data.tenant),
    );
    const runAt = new Date(Date.now() - 60_000);
    const flood = Array.from({ length: 5_000 }, () => ({
      name: 'work',
      data: { tenant: 'flood' },
      runAt,
    }));
    await mill.enqueueMany(flood);
    const few = Array.from({ length: 100 }, (_none, n) => `tenant-${String(n)}`);
    await mill.enqueueMany(few.map((tenant) => ({ name: 'work', data: { tenant } })));
    await mill.start();
    await until('all keys had a turn', () => new Set(order).size === 101);
    const last = Math.max(...few.map((tenant) => order.indexOf(tenant)));
    // What was claimed before the others were known to wait may run first: as much as there are slots.
    expect(last).toBeLessThan(2 * 101 + 10);
  });

  it('passes hundreds of keys that are held up without a pause, to reach the one behind them', async () => {
    const store = open();
    const limits = { perKey: { key: 'key', order: 'fifo' } } as const;
    const held = Array.from({ length: 300 }, (_, n) => ({
      name: 'sync',
      data: { key: `held-${String(n)}` },
    }));
    const before = aMill(store, { concurrency: 100 });
    let deferred = 0;
    before.job<{ key: string }>('sync', { concurrency: 100, limits }, ({ defer }) => {
      defer('1h');
      deferred += 1;
    });
    await before.enqueueMany(held);
    await before.start();
    await until('each key is held by its first job', () => deferred === held.length);
    await before.stop();
    await before.enqueueMany(held);
    const said: string[] = [];
    const [claim, peek] = [store.jobs.claim.bind(store.jobs), store.jobs.peek.bind(store.jobs)];
    vi.spyOn(store.jobs, 'claim').mockImplementation(async (request) => {
      const answer = await claim(request);
      said.push(answer.jobs.length === 0 && answer.more ? 'cut' : 'claimed');
      return answer;
    });
    vi.spyOn(store.jobs, 'peek').mockImplementation((names) => {
      said.push('peeked');
      return peek(names);
    });
    const mill = aMill(store, { concurrency: 10, pollInterval: { min: '1h', max: '1h' } });
    mill.job<{ key: string }>('sync', { concurrency: 10, limits }, ({ data }) => data.key);
    const { id } = await mill.enqueue('sync', { key: 'free' });
    await mill.start();
    expect(await mill.jobs.result(id)).toBe('free');
    // A peek may see nothing due, and then waits.
    expect(said.filter((what, at) => what === 'cut' && said[at + 1] === 'peeked')).toEqual([]);
  });
});
