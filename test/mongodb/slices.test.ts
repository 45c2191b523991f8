import { describe, expect, it } from 'vitest';
import { sliceOf, windowOf, Windows } from '../../src/mongodb/slices.js';

const limit = (rank: number, of: number) => ({ max: 10, rank, of });
const draws = (windows: Windows, of: number): Set<number> =>
  new Set(Array.from({ length: 300 }, () => windows.skip('x', limit(0, of))));

describe('slices of a queue', () => {
  it('four instances take disjoint slices of one window', () => {
    const head = Array.from({ length: windowOf(limit(0, 4)) }, (_one, at) => at);
    const taken = [0, 1, 2, 3].flatMap((rank) => sliceOf(head, limit(rank, 4), (id) => id));
    expect(taken).toHaveLength(40);
    expect(new Set(taken).size).toBe(40);
  });

  it('an instance that loses nothing to others stays at the head of the queue', () => {
    const windows = new Windows();
    for (let n = 0; n < 50; n += 1) windows.learn('x', limit(0, 100), 10, 8);
    expect(draws(windows, 100)).toEqual(new Set([0]));
  });

  it('an instance that loses candidates looks further back, each time among four times as many windows', () => {
    const windows = new Windows();
    const size = windowOf(limit(0, 100));
    windows.learn('x', limit(0, 100), 10, 5);
    expect(draws(windows, 100)).toEqual(new Set([0, size, 2 * size, 3 * size]));
    for (let n = 0; n < 10; n += 1) windows.learn('x', limit(0, 100), 10, 0);
    const seen = draws(windows, 100);
    expect(seen.size).toBeGreaterThan(15);
    // A hundred instances in four slices: 25 windows give each a slice of its own.
    expect(Math.max(...seen)).toBeLessThanOrEqual(24 * size);
    expect(windows.skip('other', limit(0, 100))).toBe(0);
  });

  it('an instance returns to the head after claims without a loss, at once if the queue is short', () => {
    const windows = new Windows();
    for (let n = 0; n < 5; n += 1) windows.learn('x', limit(0, 100), 10, 0);
    for (let n = 0; n < 60; n += 1) windows.learn('x', limit(0, 100), 10, 10);
    expect(draws(windows, 100)).toEqual(new Set([0]));
    for (let n = 0; n < 5; n += 1) windows.learn('x', limit(0, 100), 10, 0);
    windows.reset('x');
    expect(draws(windows, 100)).toEqual(new Set([0]));
  });

  it('up to four instances never pass over the head', () => {
    const windows = new Windows();
    for (let n = 0; n < 5; n += 1) windows.learn('x', limit(0, 4), 10, 0);
    expect(draws(windows, 4)).toEqual(new Set([0]));
  });
});
