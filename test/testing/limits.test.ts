import { AssertionError } from 'node:assert';
import { describe, expect, it, onTestFinished } from 'vitest';
import { testMill, type TestMill } from '../../src/testing/index.js';

const NOON = '2026-03-01T12:00:00.000Z';

function aTestMill(): TestMill {
  const mill = testMill({ now: NOON });
  onTestFinished(() => mill.stop({ timeout: 0 }));
  return mill;
}

const seconds = (mill: TestMill): number => (mill.clock.now() - Date.parse(NOON)) / 1_000;

describe('limits on a test mill', () => {
  it('advance starts what a rate lets through, and drain runs the rest at the rate', async () => {
    const mill = aTestMill();
    const starts: number[] = [];
    mill.job('paced', { limits: { rate: { limit: 2, per: '10s' } } }, () => void starts.push(seconds(mill)));
    await mill.enqueueMany(Array.from({ length: 6 }, () => ({ name: 'paced', data: {} })));
    await mill.runDue();
    expect(starts).toEqual([0]);
    expect(await mill.advance('10s')).toMatchObject({ completed: 1 });
    expect(seconds(mill)).toBe(10);
    expect(await mill.drain()).toEqual({ completed: 4, failed: 0, retried: 0 });
    expect(starts).toHaveLength(6);
    // Two starts in 10 s, and a little more for the slices in which a window is counted.
    expect(seconds(mill)).toBeGreaterThanOrEqual(20);
    expect(seconds(mill)).toBeLessThan(30);
    for (const [at, start] of starts.slice(2).entries())
      expect(start - (starts[at] ?? 0)).toBeGreaterThan(9.9);
  });

  it('drain moves the clock for the rates of keys and of shared limits', async () => {
    const mill = aTestMill();
    const ran: string[] = [];
    mill.limit('erp', { rate: { limit: 1, per: '1s' } });
    mill.job('first', { limits: { shared: ['erp'] } }, () => void ran.push('first'));
    mill.job<{ key: string }>(
      'second',
      { limits: { perKey: { key: 'key', rate: { limit: 1, per: '1m' } } } },
      ({ data }) => void ran.push(data.key),
    );
    await mill.enqueueMany([
      ...['a', 'a', 'b'].map((key) => ({ name: 'second', data: { key } })),
      { name: 'first', data: {} },
      { name: 'first', data: {} },
    ]);
    await mill.runDue();
    expect([...ran].sort()).toEqual(['a', 'b', 'first']);
    expect(await mill.drain()).toMatchObject({ completed: 2 });
    expect(seconds(mill)).toBeGreaterThanOrEqual(60);
    expect(seconds(mill)).toBeLessThan(63);
  });

  it('drain leaves a key whose first job waits for its retry, and goes there with scheduled: true', async () => {
    const mill = aTestMill();
    const ran: number[] = [];
    mill.job<{ n: number }>(
      'ordered',
      {
        retryPolicy: { type: 'fixed', interval: '1h', maxAttempts: 2 },
        limits: { perKey: { key: () => 'one', order: 'fifo' } },
      },
      ({ data, attempt }) => {
        if (data.n === 1 && attempt === 1) throw new Error('try again');
        ran.push(data.n);
      },
    );
    await mill.enqueueMany([1, 2, 3].map((n) => ({ name: 'ordered', data: { n } })));
    expect(await mill.drain()).toEqual({ completed: 0, failed: 0, retried: 1 });
    expect(seconds(mill)).toBe(0);
    expect(await mill.drain({ scheduled: true })).toMatchObject({ completed: 3 });
    expect(ran).toEqual([1, 2, 3]);
    expect(seconds(mill)).toBe(3_600);
  });

  it('drain runs everything under a concurrency limit without moving the clock', async () => {
    const mill = aTestMill();
    let [running, most] = [0, 0];
    mill.job('capped', { limits: { concurrency: 2 } }, async () => {
      most = Math.max(most, (running += 1));
      await new Promise((resolve) => setImmediate(resolve));
      running -= 1;
    });
    await mill.enqueueMany(Array.from({ length: 20 }, () => ({ name: 'capped', data: {} })));
    expect(await mill.drain()).toMatchObject({ completed: 20 });
    expect(most).toBe(2);
    expect(seconds(mill)).toBe(0);
  });

  it('drain waits for the pause of a breaker', async () => {
    const mill = aTestMill();
    let fails = true;
    mill.job(
      'guarded',
      {
        retryPolicy: { type: 'fixed', interval: '1s', maxAttempts: 100 },
        breaker: { failures: 1, within: '1m', pause: '30s' },
      },
      () => {
        if (fails) throw new Error('down');
      },
    );
    await mill.enqueue('guarded', {});
    expect(await mill.runDue()).toMatchObject({ completed: 0, retried: 1 });
    fails = false;
    expect(await mill.advance('1s')).toMatchObject({ completed: 0 });
    expect(await mill.drain()).toMatchObject({ completed: 1 });
    expect(seconds(mill)).toBe(30);
  });

  it('expectEnqueued finds jobs by their key, and shows the keys of others', async () => {
    const mill = aTestMill();
    mill.job<{ tenant: number }>('call', { limits: { perKey: { key: 'tenant' } } }, () => undefined);
    await mill.enqueue('call', { tenant: 7 });
    await mill.enqueue('plain', {}, { key: 'acme' });
    expect(await mill.expectEnqueued('call', undefined, { key: 7, times: 1 })).toHaveLength(1);
    await mill.expectEnqueued('call', {}, { key: '7' });
    await mill.expectEnqueued('plain', {}, { key: 'acme' });
    await mill.expectNotEnqueued('plain', {}, { key: 'zeta' });
    const wrong = mill.expectEnqueued('plain', undefined, { key: 'zeta' });
    await expect(wrong).rejects.toThrow(AssertionError);
    await expect(wrong).rejects.toThrow(/key "acme"/u);
  });
});
