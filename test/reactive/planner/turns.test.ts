import { describe, expect, it } from 'vitest';
import { PageSize, ChoreTurns, type Chore } from '../../../src/reactive/planner/chores/turns.js';

async function* nothing(): AsyncGenerator<number, void> {
  // No page at all.
}

const chore = (key: string, size: number): Chore => ({
  key,
  size,
  pages: nothing(),
  isMeant: () => true,
  failed: () => undefined,
  over: () => undefined,
});

const order = (turns: ChoreTurns, count: number): string =>
  Array.from({ length: count }, () => turns.next()?.key).join('');

describe('turns of chores', () => {
  it('chores take turns, the smallest first', () => {
    const turns = new ChoreTurns();
    turns.add(chore('c', 300));
    turns.add(chore('a', 1));
    turns.add(chore('b', 20));
    expect(order(turns, 7)).toBe('abcabca');
  });

  it('a chore that comes later gets the next turn', () => {
    const turns = new ChoreTurns();
    turns.add(chore('x', 1_000_000));
    turns.add(chore('y', 1_000_000));
    expect(order(turns, 3)).toBe('xyx');
    turns.add(chore('a', 1));
    expect(order(turns, 1)).toBe('a');
    turns.delete('a');
    expect(order(turns, 2)).toBe('yx');
  });
});

describe('page size of chores', () => {
  it('the page size adapts to how long pages take, within bounds', () => {
    const page = new PageSize();
    const sizes = [10, 10, 2_000, 2_000, 2_000, 400, 2_000, 2_000, 2_000, 2_000, 10].map((ms) => {
      page.took(ms);
      return page.size;
    });
    expect(sizes).toEqual([1_000, 1_000, 500, 250, 125, 125, 62, 31, 15, 10, 20]);
  });

  it('the page size is small if the rate is low, so that pauses are short', () => {
    const page = new PageSize(100);
    page.took(1);
    expect(page.size).toBe(25);
    page.took(10_000);
    expect(page.size).toBe(12);
    expect(new PageSize(1).size).toBe(1);
  });
});
