import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { ConnectionTurns } from '../../src/postgres/connection-turns.js';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

it('keeps two of ten connections for statements, however many transactions wait', async () => {
  const turns = new ConnectionTurns(10);
  const lent = Array.from({ length: 10 }, () => turns.take('lent', 1_000));
  expect(await Promise.all([turns.take('own', 1_000), turns.take('own', 1_000)])).toEqual([true, true]);
  await vi.advanceTimersByTimeAsync(1_000);
  const granted = await Promise.all(lent);
  expect(granted.filter(Boolean)).toHaveLength(8);
});

it('lets a transaction wait as long as other transactions end', async () => {
  const turns = new ConnectionTurns(2);
  await turns.take('lent', 1_000);
  let third: boolean | undefined;
  const [second] = [
    turns.take('lent', 1_000),
    turns.take('lent', 1_000).then((granted) => (third = granted)),
  ];
  await vi.advanceTimersByTimeAsync(900);
  turns.giveBack('lent');
  expect(await second).toBe(true);
  await vi.advanceTimersByTimeAsync(900);
  expect(third).toBeUndefined();
  turns.giveBack('lent');
  await vi.advanceTimersByTimeAsync(0);
  expect(third).toBe(true);
});

it('gives up on a statement, and on a transaction if no other one ends', async () => {
  const turns = new ConnectionTurns(2);
  await Promise.all([turns.take('lent', 1_000), turns.take('own', 1_000)]);
  const waiting = [turns.take('own', 1_000), turns.take('lent', 1_000)];
  await vi.advanceTimersByTimeAsync(1_000);
  expect(await Promise.all(waiting)).toEqual([false, false]);
  turns.giveBack('own');
  expect(await turns.take('own', 1_000)).toBe(true);
});

it('gives up on a transaction if no other one ends, although statements come and go', async () => {
  const turns = new ConnectionTurns(4);
  await Promise.all([turns.take('lent', 1_000), turns.take('lent', 1_000)]);
  let granted: boolean | undefined;
  void turns.take('lent', 1_000).then((answer) => (granted = answer));
  for (let passedMs = 0; passedMs < 1_000; passedMs += 100) {
    expect(granted).toBeUndefined();
    await turns.take('own', 1_000);
    await vi.advanceTimersByTimeAsync(100);
    turns.giveBack('own');
  }
  expect(granted).toBe(false);
});
