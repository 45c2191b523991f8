import type { ScopeRef } from '../../../store/port.js';
import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { until } from '../fixtures.js';
import { LimitedLife, define, limitsOf } from './limits.js';

const API: ScopeRef = { kind: 'shared', name: 'erp-api' };
const LONG = 600_000;

/** The most of the grants whose starts may fall into one window of `perMs`. */
function mostInAWindow(
  grants: readonly { readonly at: number; readonly count: number }[],
  perMs: number,
): number {
  const sums = grants.map(({ at }) =>
    grants.filter((one) => one.at > at - perMs && one.at <= at).reduce((sum, { count }) => sum + count, 0),
  );
  return Math.max(0, ...sums);
}

export const rates: Chapter = chapter({ title: 'rates and breakers of a limit', needs: ['limits'] }, [
  fact(
    'grants no more starts than the rate in any window, whatever many lives ask at once',
    async ({ opened }) => {
      const store = await opened();
      const perMs = 500;
      await define(store, { rate: { limit: 20, perMs, burst: 4 } });
      const grants: { at: number; count: number }[] = [];
      const end = performance.now() + 3 * perMs;
      await Promise.all(
        Array.from({ length: 4 }, async () => {
          const asker = new LimitedLife(store);
          while (performance.now() < end) {
            const { at, starts } = await asker.get({ hold: 3, starts: 3, withinMs: 0 });
            if (starts > 0) grants.push({ at: at.getTime(), count: starts });
            else await new Promise((resolve) => setTimeout(resolve, 1));
          }
        }),
      );
      expect(mostInAWindow(grants, perMs)).toBeLessThanOrEqual(20);
      // It is a limit, not a stop.
      expect(grants.reduce((sum, { count }) => sum + count, 0)).toBeGreaterThan(20);
    },
  ),

  fact('says when the rate lets the next start through, and grants it then', async ({ opened }) => {
    const store = await opened();
    await define(store, { rate: { limit: 2, perMs: 400, burst: 2 } });
    const asker = new LimitedLife(store);
    const first = await asker.take(3, { withinMs: 0 });
    expect(first).toMatchObject({ starts: 2, refusedBy: 'rate' });
    const free = first.until?.getTime() ?? 0;
    expect(free).toBeGreaterThan(first.at.getTime());
    const next = await until('the rate lets one through', async () => {
      const grant = await asker.take(1, { withinMs: 0 });
      return grant.starts === 1 && grant;
    });
    expect(next.at.getTime()).toBeGreaterThanOrEqual(free);
  }),

  fact('grants again what was given back, and only once', async ({ opened }) => {
    const store = await opened();
    await define(store, { rate: { limit: 4, perMs: LONG, burst: 4 } });
    const asker = new LimitedLife(store);
    const { countedAs, starts } = await asker.take(4);
    expect(starts).toBe(4);
    expect((await asker.take(4)).starts).toBe(0);
    const unused = [{ countedAs, count: 2 }];
    expect((await asker.take(4, { unused })).starts).toBe(2);
    expect((await asker.take(4, { unused: [{ countedAs: countedAs - 1, count: 3 }] })).starts).toBe(0);
    await asker.get({ unused: [{ countedAs, count: 9 }] });
    expect((await asker.take(9)).starts).toBe(4);
  }),

  fact('spends no start that has no permit', async ({ opened }) => {
    const store = await opened();
    await define(store, { concurrency: 2, rate: { limit: 4, perMs: LONG, burst: 4 } });
    const asker = new LimitedLife(store);
    expect(await asker.take(4)).toMatchObject({ held: 2, starts: 2, refusedBy: 'concurrency' });
    const { scopes } = await limitsOf(store).read([API]);
    expect(scopes[0]).toMatchObject({ startsInWindow: 2 });
  }),

  fact('opens a breaker after too many failures, and then lets one start through', async ({ opened }) => {
    const store = await opened();
    await define(store, { breaker: { failures: 3, withinMs: LONG, pauseMs: 200 } });
    const [first, second] = [new LimitedLife(store), new LimitedLife(store)];
    expect(await first.take(2, { failures: 1 })).toMatchObject({ starts: 2, breaker: 'closed' });
    const open = await second.take(2, { failures: 2 });
    expect(open).toMatchObject({ starts: 0, breaker: 'open', turned: 'open', refusedBy: 'breaker' });
    expect((open.until?.getTime() ?? 0) - open.at.getTime()).toBe(200);
    const trial = await until('one start is let through', async () => {
      const grant = await first.take(5);
      return grant.starts > 0 && grant;
    });
    expect(trial).toMatchObject({ starts: 1, trial: true, breaker: 'trial' });
    expect(trial.at.getTime()).toBeGreaterThanOrEqual(open.until?.getTime() ?? Infinity);
    expect(await second.take(5)).toMatchObject({ starts: 0, refusedBy: 'breaker', breaker: 'trial' });
  }),

  fact(
    'closes a breaker after a trial that succeeds, and opens it again after one that fails',
    async ({ opened }) => {
      const store = await opened();
      await define(store, { breaker: { failures: 1, withinMs: LONG, pauseMs: 1 } });
      const [asker, other] = [new LimitedLife(store), new LimitedLife(store)];
      const tried = async (): Promise<boolean> => (await asker.take(1)).trial;
      await asker.get({ failures: 1 });
      await until('the first trial', tried);
      expect(await other.get({ trial: 'succeeded', failures: 5 })).toMatchObject({ breaker: 'trial' });
      expect(await asker.get({ trial: 'failed' })).toMatchObject({ breaker: 'open', turned: 'open' });
      await until('the second trial', tried);
      const unused = await asker.get({ trial: 'unused' });
      expect(unused.breaker).toBe('open');
      expect(unused.turned).toBeUndefined();
      await until('the third trial', tried);
      expect(await asker.take(5, { trial: 'succeeded' })).toMatchObject({
        breaker: 'closed',
        turned: 'closed',
        starts: 5,
      });
      expect(await other.take(1)).toMatchObject({ starts: 1, trial: false });
    },
  ),

  fact('frees the trial of a dropped life', async ({ opened }) => {
    const store = await opened();
    await define(store, { breaker: { failures: 1, withinMs: LONG, pauseMs: 1 } });
    const [dead, other] = [new LimitedLife(store), new LimitedLife(store)];
    await dead.get({ failures: 1 });
    await until('the trial', async () => (await dead.take(1)).trial);
    expect(await other.take(1)).toMatchObject({ starts: 0 });
    await limitsOf(store).drop(dead.life);
    expect(await other.take(1)).toMatchObject({ starts: 1, trial: true });
  }),

  fact('forgets failures that are older than the breaker counts', async ({ opened }) => {
    const store = await opened();
    await define(store, { breaker: { failures: 2, withinMs: 160, pauseMs: LONG } });
    const asker = new LimitedLife(store);
    const { at } = await asker.get({ failures: 1 });
    await until('the failure is old', async () => (await asker.get()).at.getTime() > at.getTime() + 180);
    expect(await asker.get({ failures: 1 })).toMatchObject({ breaker: 'closed' });
    expect(await asker.get({ failures: 1 })).toMatchObject({ breaker: 'open' });
  }),

  fact('opens and closes a breaker by hand', async ({ opened }) => {
    const store = await opened();
    await define(store, { breaker: { failures: 5, withinMs: LONG, pauseMs: LONG } });
    const limits = limitsOf(store);
    const asker = new LimitedLife(store);
    expect(await limits.turnBreaker(API, 'open')).toBe(true);
    expect(await asker.take(1)).toMatchObject({ starts: 0, breaker: 'open' });
    expect((await limits.read([API])).scopes[0]?.breaker).toMatchObject({ state: 'open' });
    expect(await limits.turnBreaker(API, 'closed')).toBe(true);
    expect(await asker.take(1)).toMatchObject({ starts: 1, breaker: 'closed' });
    expect(await limits.turnBreaker({ kind: 'job', name: 'none' }, 'open')).toBe(false);
  }),
]);
