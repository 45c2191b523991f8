import { describe, expect, it } from 'vitest';
import { Tidemill, type JobOptions } from '../../../src/index.js';
import { memory } from '../../../src/memory/index.js';
import type { Store } from '../../../src/store/port.js';
import { virtualClock, type VirtualClock } from '../../../src/testing/index.js';
import { withParts } from '../../support/with-parts.js';

/** Each call of a part takes so long, half of it on the way there. */
function distant<T extends object>(part: T, clock: VirtualClock, latencyMs: number): T {
  const half = (): Promise<void> => new Promise((resolve) => clock.timer(latencyMs / 2, resolve));
  return new Proxy(part, {
    get: (target, name) => {
      const own: unknown = Reflect.get(target, name, target);
      if (typeof own !== 'function') return own;
      return async (...given: unknown[]): Promise<unknown> => {
        await half();
        const answer: unknown = await Reflect.apply(own, target, given);
        await half();
        return answer;
      };
    },
  });
}

/** A store of which jobs and limits are a round trip away. */
const remote = (store: Store, clock: VirtualClock, latencyMs: number): Store =>
  latencyMs === 0 || store.limits === undefined
    ? store
    : withParts(store, {
        jobs: distant(store.jobs, clock, latencyMs),
        limits: distant(store.limits, clock, latencyMs),
      });

/** Runs jobs on mills of one cluster in virtual time, and measures from the outside. */
async function measure(mills: number, options: JobOptions, runMs: number, untilMs: number, latencyMs = 0) {
  const clock = virtualClock();
  const store = remote(memory({ clock }), clock, latencyMs);
  const seen = { running: 0, most: 0, starts: [] as number[] };
  const all = Array.from({ length: mills }, () => new Tidemill({ store, logger: false, concurrency: 20 }));
  for (const mill of all)
    mill.job('work', { concurrency: 10, ...options }, async () => {
      seen.running += 1;
      seen.most = Math.max(seen.most, seen.running);
      seen.starts.push(clock.now());
      await new Promise<void>((resolve) => clock.timer(runMs, resolve));
      seen.running -= 1;
    });
  const ready = Promise.all([
    all[0]?.enqueueMany(Array.from({ length: 200 }, () => ({ name: 'work', data: {} }))),
    ...all.map((mill) => mill.start()),
  ]);
  const started = new AbortController();
  void ready.then(() => started.abort());
  while (!started.signal.aborted) await clock.advance(1);
  const began = clock.now();
  await clock.advance(untilMs);
  const now = clock.now();
  const busyMs = seen.starts.reduce((sum, at) => sum + Math.min(runMs, now - at), 0);
  const result = { ...seen, busyMs, tookMs: now - began };
  const stops = Promise.all(all.map((mill) => mill.stop({ timeout: 0 })));
  await clock.advance('30s');
  await stops;
  return result;
}

describe('use of limits (memory)', () => {
  it.each([
    { mills: 1, runMs: 15 },
    { mills: 2, runMs: 15 },
    { mills: 1, runMs: 200 },
    { mills: 2, runMs: 200 },
  ])(
    'uses a concurrency above 95 percent by $mills mills whose runs take $runMs ms',
    async ({ mills, runMs }) => {
      const limits = { concurrency: 3 };
      const { most, busyMs, tookMs } = await measure(mills, { limits }, runMs, 20 * runMs);
      expect(most).toBe(3);
      expect(busyMs / (3 * tookMs)).toBeGreaterThan(0.95);
    },
  );

  it.each([1, 2])(
    'uses a concurrency above 95 percent throughout by %i mills whose runs are a hundred round trips long',
    async (mills) => {
      const limits = { concurrency: 3 };
      const { most, busyMs, tookMs } = await measure(mills, { limits }, 200, 4_000, 2);
      expect(most).toBe(3);
      expect(busyMs / (3 * tookMs)).toBeGreaterThan(0.95);
    },
  );

  it.each([
    { mills: 1, latencyMs: 2 },
    { mills: 2, latencyMs: 10 },
  ])(
    'uses a rate of 20 per second above 95 percent throughout by $mills mills with round trips of $latencyMs ms',
    async ({ mills, latencyMs }) => {
      const limits = { rate: { limit: 20, per: '1s', burst: 2 } } as const;
      const { starts, tookMs } = await measure(mills, { limits }, 10, 3_000, latencyMs);
      const rates = Array.from({ length: Math.floor(tookMs / 1_000) - 1 }, (_none, second) => {
        const from = (starts[0] ?? 0) + second * 1_000;
        return starts.filter((at) => at >= from && at < from + 1_000).length;
      });
      expect(starts.length / (tookMs / 50)).toBeGreaterThan(0.95);
      expect(Math.min(...rates)).toBeGreaterThanOrEqual(18);
    },
  );

  it.each([1, 2])('uses a rate above 95 percent by %i mills, and never exceeds it', async (mills) => {
    const limits = { rate: { limit: 20, per: '1s', burst: 2 } } as const;
    const { starts, tookMs } = await measure(mills, { limits }, 10, 4_000);
    expect(starts.length / (tookMs / 50)).toBeGreaterThan(0.95);
    const inWindow = (at: number): number => starts.filter((one) => one >= at && one < at + 1_000).length;
    for (const at of starts) expect(inWindow(at)).toBeLessThanOrEqual(20);
  });

  it.each([1, 2])('gives names that share a limit their turns on %i mills', async (mills) => {
    const clock = virtualClock();
    const store = memory({ clock });
    const order: string[] = [];
    const all = Array.from({ length: mills }, () => new Tidemill({ store, logger: false }));
    for (const mill of all) mill.limit('gate', { concurrency: 1 });
    for (const [at, name] of ['busy', 'calm'].entries())
      all[at % mills]?.job(name, { limits: { shared: ['gate'] } }, async () => {
        order.push(name);
        await new Promise<void>((resolve) => clock.timer(10, resolve));
      });
    await all[0]?.enqueueMany(Array.from({ length: 200 }, () => ({ name: 'busy', data: {} })));
    await all[0]?.start();
    await clock.advance('100ms');
    await all[1]?.start();
    const before = order.length;
    await all[0]?.enqueueMany(Array.from({ length: 3 }, () => ({ name: 'calm', data: {} })));
    await clock.advance('700ms');
    // Two rounds of 16 turns at most: one in which the others are noticed, one in which they wait.
    expect(order.indexOf('calm')).toBeGreaterThan(0);
    expect(order.indexOf('calm') - before).toBeLessThan(34);
    expect(order.filter((name) => name === 'calm')).toHaveLength(3);
    const stops = Promise.all(all.map((mill) => mill.stop({ timeout: 0 })));
    await clock.advance('30s');
    await stops;
  });
});
