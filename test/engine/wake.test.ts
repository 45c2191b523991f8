import { describe, expect, it, vi } from 'vitest';
import { Wake } from '../../src/engine/claim/wake.js';
import { virtualClock } from '../../src/testing/index.js';

function aWake() {
  const clock = virtualClock();
  const stop = new AbortController();
  return { clock, stop, wake: new Wake(clock) };
}

describe('waiting for work', () => {
  it('ends with the timer where nobody says anything', async () => {
    const { clock, stop, wake } = aWake();
    const waited = wake.wait(1_000, stop.signal);
    await clock.advance(1_000);
    expect(await waited).toBe('timer');
    expect(clock.now()).toBe(1_000);
  });

  it('ends at once with a notification', async () => {
    const { clock, stop, wake } = aWake();
    const waited = wake.wait(1_000, stop.signal);
    wake.notify();
    expect(await waited).toBe('notified');
    expect(clock.now()).toBe(0);
  });

  it('keeps a notification that came while nobody waited, once', async () => {
    const { clock, stop, wake } = aWake();
    wake.notify();
    wake.notify();
    expect(await wake.wait(1_000, stop.signal)).toBe('notified');
    const waited = wake.wait(1_000, stop.signal);
    await clock.advance(1_000);
    expect(await waited).toBe('timer');
  });

  it('is not put off by a steady trickle of notifications', async () => {
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

  it('ends with the stop, and does not begin after it', async () => {
    const { stop, wake } = aWake();
    const waited = wake.wait(Infinity, stop.signal);
    stop.abort();
    expect(await waited).toBe('stopped');
    wake.notify();
    expect(await wake.wait(Infinity, stop.signal)).toBe('stopped');
  });

  it('leaves neither a timer nor a listener behind', async () => {
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

  it('sets no timer where there is no end to the wait', () => {
    const { clock, stop, wake } = aWake();
    const timer = vi.spyOn(clock, 'timer');
    void wake.wait(Infinity, stop.signal);
    expect(timer).not.toHaveBeenCalled();
    stop.abort();
  });
});
