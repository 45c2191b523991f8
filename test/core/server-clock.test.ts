import { expect, it } from 'vitest';
import { ServerClock } from '../../src/core/server-clock.js';

/** A reading of a server whose clock is ahead, at any moment of a round trip. */
function read(clock: ServerClock, aheadMs: number, tripMs: number, share: number): void {
  const receivedAt = clock.monotonic();
  const sentAt = receivedAt - tripMs;
  clock.learn(new Date(Date.now() - tripMs + tripMs * share + aheadMs), sentAt, receivedAt);
}

it('a reading is wrong by half of its round trip at most, and says so', () => {
  for (const share of [0, 0.3, 1]) {
    const clock = new ServerClock();
    read(clock, 60_000, 3_000, share);
    expect(clock.uncertainty()).toBe(1_500);
    // Two milliseconds for rounding.
    expect(Math.abs(clock.now() - Date.now() - 60_000)).toBeLessThanOrEqual(1_502);
  }
});

it('a better reading moves the estimate by no more than its uncertainty said', () => {
  const clock = new ServerClock();
  expect(clock.uncertainty()).toBe(0);
  read(clock, 0, 4_000, 1);
  const [before, uncertainty] = [clock.now(), clock.uncertainty()];
  read(clock, 0, 2, 0.5);
  expect(before - clock.now()).toBeLessThanOrEqual(uncertainty + 2);
  expect(clock.uncertainty()).toBe(1);
});
