import { describe, expect, it } from 'vitest';
import { StoreError } from '../../../src/core/errors.js';
import { memory } from '../../../src/memory/index.js';
import type { ScopeAsk, Store, WatchHandlers } from '../../../src/store/port.js';
import { once } from '../../../src/testing/conformance/fixtures.js';
import { virtualClock } from '../../../src/testing/index.js';
import { aMill } from '../../support/mills.js';
import { withParts } from '../../support/with-parts.js';

/** Counts calls of `peek`. */
function counting(store: Store): { readonly store: Store; readonly peeks: () => number } {
  let peeks = 0;
  const jobs = new Proxy(store.jobs, {
    get: (target, name) => {
      if (name === 'peek') peeks += 1;
      const own: unknown = Reflect.get(target, name, target);
      return typeof own === 'function' ? (own.bind(target) as unknown) : own;
    },
  });
  return { store: withParts(store, { jobs }), peeks: () => peeks };
}

/** An hour: longer than any test. */
const rate = { limit: 1, per: '1h' } as const;

describe('waiting for limits (memory)', () => {
  it('a wake-up that names no jobs finds those of a limited name', async () => {
    const clock = virtualClock();
    const store = memory({ clock });
    const watch = (handlers: WatchHandlers): ReturnType<Store['watch']> =>
      store.watch({
        ...handlers,
        wake: (kind) => {
          handlers.wake(kind);
        },
      });
    const mill = aMill(withParts(store, { watch }));
    let ran = 0;
    mill.job('work', { limits: { concurrency: 1 } }, () => void (ran += 1));
    await mill.start();
    await clock.advance('1m');
    await aMill(store).enqueue('work', {});
    await clock.advance(100);
    expect(ran).toBe(1);
  });

  it('permits are given back once the store answers again, although nothing else ends meanwhile', async () => {
    const clock = virtualClock();
    const store = memory({ clock });
    const { limits } = store;
    let isDown = false;
    const failing = new Proxy(limits, {
      get: (target, name) => {
        const own: unknown = Reflect.get(target, name, target);
        if (name === 'exchange' && isDown)
          return () => Promise.reject(new StoreError('no answer', { transient: true }));
        return typeof own === 'function' ? (own.bind(target) as unknown) : own;
      },
    });
    const mills = [aMill(withParts(store, { limits: failing })), aMill(store)] as const;
    const [one, other] = mills;
    for (const mill of mills) mill.limit('api', { concurrency: 1 });
    const ran: string[] = [];
    one.job('x', { limits: { shared: ['api'] } }, () => {
      ran.push('x');
      isDown = true;
    });
    other.job('y', { limits: { shared: ['api'] } }, () => void ran.push('y'));
    await Promise.all(mills.map((mill) => mill.start()));
    await one.enqueue('x', {});
    await clock.advance('1s');
    await other.enqueue('y', {});
    await clock.advance('3s');
    expect(ran).toEqual(['x']);
    isDown = false;
    await clock.advance('10s');
    expect(ran).toEqual(['x', 'y']);
  });

  it('limits of a name that had none hold within 2.5 s although no message tells of them', async () => {
    const clock = virtualClock();
    const store = memory({ clock });
    const watch: Store['watch'] = () => Promise.resolve({ unavailable: 'none here' });
    const mill = aMill(withParts(store, { watch }), { concurrency: 5 });
    const seen = { running: 0, most: 0 };
    mill.job('work', { concurrency: 5 }, async () => {
      seen.running += 1;
      seen.most = Math.max(seen.most, seen.running);
      await new Promise<void>((resolve) => clock.timer(10, resolve));
      seen.running -= 1;
    });
    await mill.start();
    // Neither the start nor a renewal of the lease reads them at this time.
    await clock.advance('1.1s');
    await aMill(store).limits.set('work', { concurrency: 1 });
    await clock.advance('2.5s');
    await mill.enqueueMany([1, 2, 3, 4].map(() => ({ name: 'work', data: {} })));
    await clock.advance('1m');
    expect(await mill.jobs.count({ status: ['completed'] })).toBe(4);
    expect(seen.most).toBe(1);
  });

  it('a delayed job starts on time while a limit holds up jobs of another name', async () => {
    const clock = virtualClock();
    const store = memory({ clock });
    const mill = aMill(store);
    const starts: number[] = [];
    mill.job('held', { limits: { rate } }, () => undefined);
    mill.job('other', () => void starts.push(clock.now()));
    await mill.start();
    await mill.enqueue('other', {}, { delay: '5s' });
    const due = clock.now() + 5_000;
    await mill.enqueueMany([1, 2].map(() => ({ name: 'held', data: {} })));
    await clock.advance('1s');
    await mill.enqueue('held', {});
    await clock.advance('10s');
    expect(starts).toEqual([due]);
  });

  it('a delayed job of a free key starts soon after its time while another key waits for its rate', async () => {
    const clock = virtualClock();
    const mill = aMill(memory({ clock }));
    const starts: string[] = [];
    mill.job<{ key: string }>('work', { limits: { perKey: { key: 'key', rate } } }, ({ data }) => {
      starts.push(data.key);
    });
    await mill.start();
    await mill.enqueueMany(['a', 'a'].map((key) => ({ name: 'work', data: { key } })));
    await mill.enqueue('work', { key: 'b' }, { delay: '3s' });
    await clock.advance('2.9s');
    expect(starts).toEqual(['a']);
    await clock.advance('1.4s');
    expect(starts).toEqual(['a', 'b']);
  });

  it('wake-ups for work that its key holds up cost no peek each', async () => {
    const clock = virtualClock();
    const store = memory({ clock });
    const counted = counting(store);
    const mill = aMill(counted.store, { concurrency: 5 });
    let end = (): void => undefined;
    const ended = new Promise<void>((resolve) => (end = resolve));
    mill.job('work', { concurrency: 5, limits: { perKey: { key: 'key', concurrency: 1 } } }, () => ended);
    await mill.start();
    const producer = aMill(store);
    await producer.enqueueMany([1, 2].map(() => ({ name: 'work', data: { key: 'a' } })));
    await clock.advance('1s');
    const before = counted.peeks();
    for (let n = 0; n < 50; n += 1) {
      await producer.enqueue('work', { key: 'a' });
      await clock.advance(10);
    }
    expect(counted.peeks() - before).toBeLessThan(5);
    end();
    await clock.advance('1s');
    expect(await mill.jobs.count({ status: ['pending'] })).toBe(0);
  });

  it('failures are told to limits that have a breaker, and to no others', async () => {
    const clock = virtualClock();
    const store = memory({ clock });
    const { limits } = store;
    const told = new Map<string, number>();
    const exchange = (life: string, asks: readonly ScopeAsk[]) => {
      for (const { scope, failures = 0 } of asks)
        told.set(scope.name, (told.get(scope.name) ?? 0) + failures);
      return limits.exchange(life, asks);
    };
    const mill = aMill(withParts(store, { limits: { ...limits, exchange } }));
    mill.limit('plain', { concurrency: 5 });
    mill.limit('guarded', { breaker: { failures: 9, within: '1m', pause: '1s' } });
    mill.job('work', { retryPolicy: once, limits: { concurrency: 2, shared: ['plain', 'guarded'] } }, () => {
      throw new Error('no');
    });
    await mill.start();
    await mill.enqueueMany([1, 2, 3].map(() => ({ name: 'work', data: {} })));
    await clock.advance('5s');
    expect([told.get('work'), told.get('plain'), told.get('guarded')]).toEqual([0, 0, 3]);
  });
});
