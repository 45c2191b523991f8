import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MOST_AHEAD, MOST_BYTES_AHEAD, Prefetch } from '../../src/engine/claim/prefetch.js';

const after = (...durations: number[]): Prefetch => {
  const prefetch = new Prefetch();
  for (const duration of durations) prefetch.learn(duration);
  return prefetch;
};

describe('prefetch', () => {
  it('prefetches nothing before the first run has ended', () => {
    expect(new Prefetch().ahead(100)).toBe(0);
  });

  it('prefetches nothing if handlers are long', () => {
    expect(after(51).ahead(10)).toBe(0);
    expect(after(60_000).ahead(10)).toBe(0);
  });

  it('prefetches what short handlers finish in a quarter of a second', () => {
    expect(after(50).ahead(1)).toBe(5);
    expect(after(10).ahead(2)).toBe(50);
    expect(after(1).ahead(1)).toBe(250);
  });

  it('never prefetches more than its limit, even if handlers take no time', () => {
    expect(after(0).ahead(50)).toBe(MOST_AHEAD);
    fc.assert(
      fc.property(
        fc.array(fc.double({ min: 0, max: 1e6, noNaN: true }), { minLength: 1 }),
        fc.integer({ min: 1, max: 10_000 }),
        (durations, concurrency) => {
          const ahead = after(...durations).ahead(concurrency);
          expect(Number.isInteger(ahead)).toBe(true);
          expect(ahead).toBeGreaterThanOrEqual(0);
          expect(ahead).toBeLessThanOrEqual(MOST_AHEAD);
        },
      ),
    );
  });

  it('adapts when handlers become longer, and when they become shorter again', () => {
    const prefetch = after(1);
    expect(prefetch.ahead(1)).toBeGreaterThan(0);
    for (let n = 0; n < 3; n += 1) prefetch.learn(1_000);
    expect(prefetch.ahead(1)).toBe(0);
    for (let n = 0; n < 60; n += 1) prefetch.learn(1);
    expect(prefetch.ahead(1)).toBeGreaterThan(0);
  });

  it('ignores a single slow run among many short ones', () => {
    const prefetch = after(...Array.from({ length: 50 }, () => 1));
    prefetch.learn(400);
    expect(prefetch.ahead(1)).toBeGreaterThan(0);
  });

  it('prefetches less of large work, down to nothing', () => {
    const prefetch = after(0);
    prefetch.weigh(MOST_BYTES_AHEAD / 8, 0);
    expect(prefetch.ahead(50)).toBe(8);
    prefetch.weigh(MOST_BYTES_AHEAD + 1, 0);
    expect(prefetch.ahead(50)).toBe(0);
  });

  it('learns at once that work is large, and slowly that it is small again', () => {
    const prefetch = after(0);
    for (let n = 0; n < 100; n += 1) prefetch.weigh(100, 0);
    expect(prefetch.ahead(50)).toBe(MOST_AHEAD);
    prefetch.weigh(MOST_BYTES_AHEAD / 2, 0);
    expect(prefetch.ahead(50)).toBe(2);
    prefetch.weigh(100, 0);
    expect(prefetch.ahead(50)).toBe(2);
    for (let n = 0; n < 100; n += 1) prefetch.weigh(100, 0);
    expect(prefetch.ahead(50)).toBe(MOST_AHEAD);
  });
});
