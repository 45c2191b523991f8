import { describe, expect, it } from 'vitest';
import { Rests } from '../../src/reactive/planner/backoffs.js';
import { virtualClock } from '../../src/testing/index.js';

describe('rests after a failure', () => {
  it('double each time, end only when they are woken, and begin short again after a success', async () => {
    const clock = virtualClock();
    const rests = new Rests(clock);
    expect([rests.isResting('a'), rests.nextIn(['a', 'b'])]).toEqual([false, Infinity]);
    for (const ms of [2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]) {
      rests.begin('a');
      expect([rests.isResting('a'), rests.isResting('b')]).toEqual([true, false]);
      expect([rests.nextIn(['a', 'b']), rests.nextIn(['b'])]).toEqual([ms, Infinity]);
      await clock.advance(ms - 1);
      rests.wake();
      expect([rests.isResting('a'), rests.nextIn(['a'])]).toEqual([true, 1]);
      await clock.advance(1);
      // Whoever waits for it has to be sure to look.
      expect([rests.isResting('a'), rests.nextIn(['a'])]).toEqual([true, 0]);
      rests.wake();
      expect([rests.isResting('a'), rests.nextIn(['a'])]).toEqual([false, Infinity]);
    }
    rests.end('a');
    rests.begin('a');
    expect(rests.nextIn(['a'])).toBe(2_000);
  });
});
