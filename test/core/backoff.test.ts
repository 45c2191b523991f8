import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Backoff, type BackoffMs } from '../../src/core/backoff.js';

const ranges = fc
  .record({
    min: fc.integer({ min: 1, max: 10_000 }),
    more: fc.integer({ min: 0, max: 1_000_000 }),
    factor: fc.double({ min: 1.1, max: 4, noNaN: true }),
  })
  .map(({ min, more, factor }): BackoffMs => ({ min, max: min + more, factor }));

const waits = (backoff: Backoff, count = 40): number[] => Array.from({ length: count }, () => backoff.next());

describe('backoff', () => {
  it('begins with the shortest wait, grows by its factor, and never exceeds the longest', () => {
    fc.assert(
      fc.property(ranges, (range) => {
        const { min, max, factor = 2 } = range;
        const taken = waits(new Backoff(range));
        expect(taken[0]).toBe(min);
        for (const [index, waitMs] of taken.slice(1).entries())
          expect(waitMs).toBe(Math.min(max, (taken[index] as number) * factor));
        expect(Math.max(...taken)).toBeLessThanOrEqual(max);
      }),
    );
  });

  it('doubles its waits unless another factor is given', () => {
    expect(waits(new Backoff({ min: 100, max: 1_000 }), 6)).toEqual([100, 200, 400, 800, 1_000, 1_000]);
  });

  it('begins again with the shortest wait after a reset', () => {
    fc.assert(
      fc.property(ranges, fc.integer({ min: 0, max: 60 }), (range, count) => {
        const backoff = new Backoff(range);
        waits(backoff, count);
        backoff.reset();
        expect(waits(backoff)).toEqual(waits(new Backoff(range)));
      }),
    );
  });

  it('shortens a wait with jitter by a half at most, and grows all the same', () => {
    fc.assert(
      fc.property(ranges, (range) => {
        const plain = waits(new Backoff(range));
        for (const [index, waitMs] of waits(new Backoff({ ...range, jitter: true })).entries()) {
          expect(waitMs).toBeLessThanOrEqual(plain[index] as number);
          expect(waitMs).toBeGreaterThanOrEqual((plain[index] as number) / 2);
        }
      }),
    );
  });

  it('follows a range that changes between waits', () => {
    let range: BackoffMs = { min: 10, max: 1_000 };
    const backoff = new Backoff(() => range);
    expect(waits(backoff, 3)).toEqual([10, 20, 40]);
    range = { min: 500, max: 600 };
    expect(waits(backoff, 2)).toEqual([500, 600]);
    range = { min: 10, max: 15 };
    expect(waits(backoff, 1)).toEqual([15]);
  });
});
