import { describe, expect, it } from 'vitest';
import { defineJob, type Tidemill } from '../../../src/index.js';
import { StoreError } from '../../../src/core/errors.js';
import { memory } from '../../../src/memory/index.js';
import type { LimitStore, Settlement, Store } from '../../../src/store/port.js';
import { once } from '../../../src/testing/conformance/fixtures.js';
import { virtualClock, type VirtualClock } from '../../../src/testing/index.js';
import { aMill } from '../../support/mills.js';
import { withParts } from '../../support/with-parts.js';

/** An hour: longer than any test. */
const rate = { limit: 1, per: '1h' } as const;
const lost = (): StoreError => new StoreError('no answer', { transient: true });

type MayCall = (name: string, given: readonly unknown[]) => boolean;

/** A part of a store of which `mayCall` says which calls get through. */
function cut<T extends object>(part: T, mayCall: MayCall, refusal: () => Error = lost): T {
  return new Proxy(part, {
    get: (target, name) => {
      const own: unknown = Reflect.get(target, name, target);
      if (typeof own !== 'function') return own;
      return (...given: unknown[]): unknown =>
        mayCall(String(name), given) ? (own.apply(target, given) as unknown) : Promise.reject(refusal());
    },
  });
}

/** Handlers that never end need time to be given up. */
async function stopped(clock: VirtualClock, mills: readonly Tidemill[]): Promise<void> {
  const stops = Promise.all(mills.map((mill) => mill.stop({ timeout: 0 })));
  await clock.advance('1m');
  await stops;
}

describe('what limits get back (memory)', () => {
  it('the next instance uses the start of a key that a stopped one has not used', async () => {
    const clock = virtualClock();
    const store = memory({ clock });
    const perKey = { key: 'key', rate };
    const batching = aMill(store);
    batching.batch(defineJob('work', { limits: { perKey } }), { wait: '1m' }, () => undefined);
    await batching.start();
    await batching.enqueue('work', { key: 'a' });
    await clock.advance('1s');
    expect(await batching.jobs.count({ status: ['processing'] })).toBe(1);
    const stopped = batching.stop();
    await clock.advance('1s');
    await stopped;
    let ran = 0;
    const next = aMill(store);
    next.job('work', { limits: { perKey } }, () => void (ran += 1));
    await next.start();
    await clock.advance('2s');
    expect(ran).toBe(1);
    // This one was a start.
    await next.enqueue('work', { key: 'a' });
    await clock.advance('1m');
    expect(ran).toBe(1);
  });

  it('a start of a key whose job came too late for `missed: skip` goes to another job', async () => {
    const clock = virtualClock(Date.UTC(2026, 0, 1));
    const store = memory({ clock });
    const perKey = { key: () => 'a', rate };
    await aMill(store).schedule('0 * * * *', 'hourly', {}, { timezone: 'UTC', missed: 'skip' });
    await clock.advance('90m');
    let ran = 0;
    const mill = aMill(store);
    mill.job('hourly', { limits: { perKey } }, () => void (ran += 1));
    await mill.start();
    await clock.advance('5s');
    expect(ran).toBe(0);
    await mill.enqueue('hourly', {}, { key: '' });
    await clock.advance('5s');
    expect(ran).toBe(1);
  });

  it('a permit stays taken while stopped work is processing, until its lease has ended', async () => {
    const clock = virtualClock();
    const store = memory({ clock });
    let isCut = false;
    const jobs = cut(store.jobs, (name) => !isCut || name !== 'settle');
    const mills = [aMill(withParts(store, { jobs })), aMill(store)] as const;
    const [one, other] = mills;
    const limits = { concurrency: 1 };
    one.job('work', { limits }, () => new Promise(() => undefined));
    let ran = 0;
    other.job('work', { limits }, () => void (ran += 1));
    await one.start();
    await one.enqueueMany([1, 2].map(() => ({ name: 'work', data: {} })));
    await clock.advance('1s');
    await other.start();
    isCut = true;
    const stopped = one.stop({ timeout: 0 });
    const processing = (): Promise<number> => other.jobs.count({ status: ['processing'] });
    for (let seconds = 0; seconds < 25; seconds += 1) {
      await clock.advance('1s');
      expect(await processing()).toBe(1);
      expect(ran).toBe(0);
    }
    await stopped;
    await clock.advance('1m');
    expect(ran).toBe(2);
  });

  it('an answer that is lost costs no start of a rate', async () => {
    const clock = virtualClock();
    const store = memory({ clock });
    let losing = 1;
    const exchange: LimitStore['exchange'] = async (life, asks) => {
      const grants = await store.limits.exchange(life, asks);
      const isStart = asks.some(({ starts }) => starts > 0);
      if (isStart && (losing -= 1) >= 0) throw lost();
      return grants;
    };
    const mill = aMill(withParts(store, { limits: { ...store.limits, exchange } }));
    let ran = 0;
    mill.job('work', { limits: { rate } }, () => void (ran += 1));
    await mill.start();
    await mill.enqueueMany([1, 2].map(() => ({ name: 'work', data: {} })));
    await clock.advance('10s');
    expect(losing).toBeLessThan(0);
    expect(ran).toBe(1);
    expect((await store.limits.read()).scopes).toMatchObject([{ startsInWindow: 1 }]);
  });

  it('starts that were given back in a lost exchange are given back once', async () => {
    const clock = virtualClock();
    const store = memory({ clock });
    const tolds: number[] = [];
    let losing = 2;
    const exchange: LimitStore['exchange'] = async (life, asks) => {
      const grants = await store.limits.exchange(life, asks);
      const told = asks.reduce((sum, { unused = [] }) => sum + unused.length, 0);
      if (told === 0) return grants;
      tolds.push(told);
      if ((losing -= 1) >= 0) throw lost();
      return grants;
    };
    const mill = aMill(withParts(store, { limits: { ...store.limits, exchange } }), { concurrency: 5 });
    let ran = 0;
    mill.job('work', { concurrency: 5, limits: { rate: { limit: 5, per: '1h', burst: 5 } } }, () => {
      ran += 1;
    });
    await mill.start();
    await mill.enqueueMany([1, 2].map(() => ({ name: 'work', data: {} })));
    await clock.advance('20s');
    expect(ran).toBe(2);
    expect(tolds.length).toBeGreaterThanOrEqual(3);
    expect((await store.limits.read()).scopes).toMatchObject([{ startsInWindow: 2 }]);
    await mill.enqueueMany([1, 2, 3, 4].map(() => ({ name: 'work', data: {} })));
    await clock.advance('20s');
    expect(ran).toBe(5);
  });

  it('crashes count for breakers, also those of a name that only the dead process ran', async () => {
    const clock = virtualClock();
    const store = memory({ clock });
    let isCut = false;
    const through = (): boolean => !isCut;
    const one = aMill(
      withParts(store, {
        jobs: cut(store.jobs, through),
        instances: cut(store.instances, through),
        limits: cut(store.limits, through),
      }),
    );
    const other = aMill(store);
    const opened: string[] = [];
    other.on('breaker:open', ({ name }) => void opened.push(name));
    for (const mill of [one, other])
      mill.limit('api', { breaker: { failures: 2, within: '5m', pause: '10m' } });
    one.job('work', { concurrency: 2, limits: { shared: ['api'] } }, () => new Promise(() => undefined));
    other.job('other', { limits: { shared: ['api'] } }, () => undefined);
    await Promise.all([one.start(), other.start()]);
    await one.enqueueMany([1, 2].map(() => ({ name: 'work', retryPolicy: once, data: {} })));
    await clock.advance('1s');
    expect(await other.jobs.count({ status: ['processing'] })).toBe(2);
    isCut = true;
    await clock.advance('1m');
    expect(opened).toEqual(['api']);
    expect(await other.limits.get('api')).toMatchObject({ breaker: { state: 'open' } });
    isCut = false;
    await stopped(clock, [one, other]);
  });

  it('names that share a rate start equally often while both have work', async () => {
    const clock = virtualClock();
    const store = memory({ clock });
    const counts = { a: 0, b: 0 };
    const mill = aMill(store);
    mill.limit('gate', { rate: { limit: 20, per: '1s' } });
    const names = ['a', 'b'] as const;
    for (const name of names)
      mill.job(name, { concurrency: 10, limits: { shared: ['gate'] } }, () => void (counts[name] += 1));
    await mill.enqueueMany(names.flatMap((name) => Array.from({ length: 200 }, () => ({ name, data: {} }))));
    await mill.start();
    await clock.advance('5s');
    expect(counts.a + counts.b).toBeGreaterThan(90);
    expect(Math.abs(counts.a - counts.b)).toBeLessThanOrEqual(10);
  });
});

describe('what limits keep (memory)', () => {
  it('a permit of work that the database refuses to hand on stays taken for one more lease', async () => {
    const clock = virtualClock();
    const store: Store = memory({ clock });
    let isCut = false;
    const dead = cut(store.jobs, () => !isCut);
    const one = aMill(withParts(store, { jobs: dead, instances: cut(store.instances, () => !isCut) }));
    let isRefused = true;
    const refusing = cut(
      store.jobs,
      (name, [settlements]) =>
        name !== 'settle' || !isRefused || (settlements as readonly Settlement[])[0]?.by === 'holder',
      () => new Error('a rule of the database refuses this record'),
    );
    const other = aMill(withParts(store, { jobs: refusing }));
    const limits = { concurrency: 1 };
    one.job('work', { limits }, () => new Promise(() => undefined));
    let ran = 0;
    other.job('work', { limits }, () => void (ran += 1));
    await one.start();
    await one.enqueueMany([1, 2].map(() => ({ name: 'work', data: {} })));
    await clock.advance('1s');
    await other.start();
    isCut = true;
    await clock.advance('45s');
    expect(await other.jobs.count({ status: ['processing'] })).toBe(1);
    expect(ran).toBe(0);
    await clock.advance('1m');
    expect(await other.jobs.count({ status: ['pending'] })).toBe(0);
    isRefused = false;
    await clock.advance('1m');
    expect(ran).toBe(2);
    isCut = false;
    await stopped(clock, [one, other]);
  });
});
