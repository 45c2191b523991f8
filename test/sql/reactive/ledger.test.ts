import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SequenceGaps, Position } from '../../../src/sql/reactive/feed/sequence-gaps.js';

const read = (seqs: readonly number[]): SequenceGaps => {
  const gaps = new SequenceGaps();
  for (const seq of seqs) gaps.add(seq);
  return gaps;
};

describe('sequence gaps', () => {
  it('gaps are exactly the numbers that were not read, in any order of reading', () => {
    fc.assert(
      fc.property(fc.uniqueArray(fc.integer({ min: 1, max: 60 })), fc.nat({ max: 60 }), (seqs, low) => {
        const gaps = read(seqs);
        gaps.decided(low);
        const asked = (seq: number): boolean => gaps.gaps().some(({ lo, hi }) => seq >= lo && seq <= hi);
        for (let seq = 1; seq <= 70; seq += 1) expect(asked(seq)).toBe(seq > low && !seqs.includes(seq));
      }),
    );
  });

  it('keeps few spans for many numbers', () => {
    const gaps = read(Array.from({ length: 10_000 }, (_, at) => at + 1).filter((seq) => seq !== 5_000));
    expect(gaps.gaps()).toHaveLength(2);
    gaps.add(5_000);
    expect(gaps.gaps()).toEqual([{ lo: 10_001, hi: Number.MAX_SAFE_INTEGER }]);
  });

  it('returns what to delete up to a position, once', () => {
    const gaps = read([3, 1, 2]);
    const [second, third] = [new Position(gaps, 2), new Position(gaps, 3)];
    expect(second.unsaved).toEqual([3, 1]);
    second.deleted();
    expect(second.unsaved).toEqual([]);
    expect(third.unsaved).toEqual([2]);
    gaps.add(9);
    expect(third.unsaved).toEqual([2]);
    expect(new Position(gaps, gaps.end).unsaved).toEqual([2, 9]);
  });
});
