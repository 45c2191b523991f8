import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fairShare } from '../../src/core/batches/fair-share.js';

const share = (offers: Record<string, number>, total: number): Record<string, number> =>
  Object.fromEntries([...fairShare(new Map(Object.entries(offers)), total)].filter(([, taken]) => taken > 0));

const anything = [
  fc.array(fc.integer({ min: 0, max: 500 }), { maxLength: 40 }),
  fc.integer({ min: 0, max: 2_000 }),
] as const;

const asMap = (offers: readonly number[]): Map<string, number> =>
  new Map(offers.map((offer, index) => [`name-${String(index)}`, offer]));

describe('fairShare', () => {
  it('gives every name all it asks for if there is enough', () => {
    expect(share({ a: 3, b: 5 }, 10)).toEqual({ a: 3, b: 5 });
  });

  it('divides slots equally, and passes on what a name does not need', () => {
    expect(share({ a: 100, b: 100 }, 10)).toEqual({ a: 5, b: 5 });
    expect(share({ a: 1, b: 100, c: 100 }, 11)).toEqual({ a: 1, b: 5, c: 5 });
  });

  it('gives the remainder of a division to the first names', () => {
    expect(share({ a: 9, b: 9, c: 9 }, 2)).toEqual({ a: 1, b: 1 });
    expect(share({ b: 9, a: 9 }, 3)).toEqual({ b: 2, a: 1 });
  });

  it('gives nothing to names that ask for nothing', () => {
    expect(share({ a: 0, b: 2 }, 5)).toEqual({ b: 2 });
    expect(share({ a: 5 }, 0)).toEqual({});
    expect(share({}, 5)).toEqual({});
  });

  it('never gives a name more than it asked for, and always gives out as much as it can', () => {
    fc.assert(
      fc.property(...anything, (offers, total) => {
        const shares = fairShare(asMap(offers), total);
        for (const [name, taken] of shares) {
          expect(taken).toBeGreaterThanOrEqual(0);
          expect(taken).toBeLessThanOrEqual(asMap(offers).get(name)!);
        }
        const sum = [...shares.values()].reduce((a, b) => a + b, 0);
        expect(sum).toBe(
          Math.min(
            total,
            offers.reduce((a, b) => a + b, 0),
          ),
        );
      }),
    );
  });

  it('starves no name: one that wanted more gets at most one slot fewer than any other', () => {
    fc.assert(
      fc.property(...anything, (offers, total) => {
        const shares = fairShare(asMap(offers), total);
        const most = Math.max(0, ...shares.values());
        for (const [name, offer] of asMap(offers)) {
          const taken = shares.get(name) ?? 0;
          if (taken < offer) expect(taken).toBeGreaterThanOrEqual(most - 1);
        }
      }),
    );
  });
});
