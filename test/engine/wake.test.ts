import { describe, expect, it, vi } from 'vitest';
import { Wake } from '../../src/engine/claim/wake.js';
import { virtualClock } from '../../src/testing/index.js';

function aWake() {
  const clock = virtualClock();
  const stop = new AbortController();
  return { clock, stop, wake: new Wake(clock) };
}

describe('waiting for a wake-up', () => {
  it('a wait without a notification ends with its timer', async () => {
    const { clock, stop, wake } = aWake();
    const waited = wake.wait(1_000, stop.signal);
    await clock.advance(1_000);
    expect(await waited).toBe('timer');
    expect(clock.now()).toBe(1_000);
  });

  it('a notification ends a wait at once', async () => {
    const { clock, stop, wake } = aWake();
    const waited = wake.wait(1_000, stop.signal);
    wake.notify();
    expect(await waited).toBe('notified');
    expect(clock.now()).toBe(0);
  });

  it('remembers one notification that came while nothing waited', async () => {
    const { clock, stop, wake } = aWake();
    wake.notify();
    wake.notify();
    expect(await wake.wait(1_000, stop.signal)).toBe('notified');
    const waited = wake.wait(1_000, stop.signal);
    await clock.advance(1_000);
    expect(await waited).toBe('timer');
  });

  it('every one of many notifications ends a wait', async () => {
    const { clock, stop, wake } = aWake();
    const reasons: string[] = [];
    for (let n = 0; n < 5; n += 1) {
      const waited = wake.wait(1_000, stop.signal);
      await clock.advance(10);
      wake.notify();
      reasons.push(await waited);
    }
    expect(reasons).toEqual(Array(5).fill('notified'));
    expect(clock.now()).toBe(50);
  });

  it('a stop ends a wait, and later waits end at once', async () => {
    const { stop, wake } = aWake();
    const waited = wake.wait(Infinity, stop.signal);
    stop.abort();
    expect(await waited).toBe('stopped');
    wake.notify();
    expect(await wake.wait(Infinity, stop.signal)).toBe('stopped');
  });

  it('a wait leaves neither a timer nor a listener behind', async () => {
    const { clock, stop, wake } = aWake();
    const timer = vi.spyOn(clock, 'timer');
    const removed = vi.spyOn(stop.signal, 'removeEventListener');
    const waited = wake.wait(60_000, stop.signal);
    wake.notify();
    await waited;
    expect(removed).toHaveBeenCalledTimes(1);
    const cancelled = wake.wait(120_000, stop.signal);
    await clock.advance(60_000);
    expect(timer).toHaveBeenCalledTimes(2);
    // The first wait's timer would have ended this one at 60 s.
    wake.notify();
    expect(await cancelled).toBe('notified');
  });

  it('an infinite wait sets no timer', () => {
    const { clock, stop, wake } = aWake();
    const timer = vi.spyOn(clock, 'timer');
    void wake.wait(Infinity, stop.signal);
    expect(timer).not.toHaveBeenCalled();
    stop.abort();
  });
});
