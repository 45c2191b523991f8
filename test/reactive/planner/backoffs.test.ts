import { describe, expect, it } from 'vitest';
import { Backoffs } from '../../../src/reactive/planner/backoffs.js';
import { virtualClock } from '../../../src/testing/index.js';

describe('backoffs of the planner', () => {
  it('a backoff doubles with each failure, ends only when woken, and a success resets it', async () => {
    const clock = virtualClock();
    const backoffs = new Backoffs(clock);
    expect([backoffs.isResting('a'), backoffs.nextIn(['a', 'b'])]).toEqual([false, Infinity]);
    for (const ms of [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]) {
      backoffs.begin('a');
      expect([backoffs.isResting('a'), backoffs.isResting('b')]).toEqual([true, false]);
      expect([backoffs.nextIn(['a', 'b']), backoffs.nextIn(['b'])]).toEqual([ms, Infinity]);
      await clock.advance(ms - 1);
      backoffs.wake();
      expect([backoffs.isResting('a'), backoffs.nextIn(['a'])]).toEqual([true, 1]);
      await clock.advance(1);
      // The planner waits for this moment, so it must wake up and look.
      expect([backoffs.isResting('a'), backoffs.nextIn(['a'])]).toEqual([true, 0]);
      backoffs.wake();
      expect([backoffs.isResting('a'), backoffs.nextIn(['a'])]).toEqual([false, Infinity]);
    }
    backoffs.end('a');
    backoffs.begin('a');
    expect(backoffs.nextIn(['a'])).toBe(2_000);
  });
});
