import { AsyncLocalStorage } from 'node:async_hooks';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { pause, realTimer, systemClock } from '../../src/core/clock.js';

const DAY = 86_400_000;

describe('timers', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it.each([
    ['a moment', 5],
    ['24.8 days', 2_147_483_647],
    ['a millisecond more than setTimeout can hold', 2_147_483_648],
    ['30 days', 30 * DAY],
    ['a year', 365 * DAY],
  ])('a timer fires exactly once after %s', (_what, delay) => {
    const fired = vi.fn();
    realTimer(delay, fired);
    vi.advanceTimersByTime(delay - 1);
    expect(fired).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1);
    expect(fired).toHaveBeenCalledTimes(1);
    vi.advanceTimersByTime(365 * DAY);
    expect(fired).toHaveBeenCalledTimes(1);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('a timer with an infinite delay never fires', () => {
    const fired = vi.fn();
    const timer = realTimer(Infinity, fired);
    vi.advanceTimersByTime(200 * DAY);
    expect(fired).not.toHaveBeenCalled();
    timer.cancel();
    expect(vi.getTimerCount()).toBe(0);
  });

  it('a timer runs outside the async context that started it', () => {
    const context = new AsyncLocalStorage<string>();
    const seen = vi.fn(() => context.getStore());
    context.run('a transaction', () => realTimer(5, seen));
    vi.advanceTimersByTime(5);
    expect(seen).toHaveReturnedWith(undefined);
  });

  it('a timer with a negative delay fires at once', () => {
    const fired = vi.fn();
    realTimer(-5, fired);
    vi.advanceTimersByTime(1);
    expect(fired).toHaveBeenCalledTimes(1);
  });

  it.each([0, 5 * DAY, 25 * DAY, 70 * DAY])('a timer can be cancelled after %i ms', (after) => {
    const fired = vi.fn();
    const timer = realTimer(90 * DAY, fired);
    vi.advanceTimersByTime(after);
    timer.cancel();
    timer.cancel();
    expect(vi.getTimerCount()).toBe(0);
    vi.advanceTimersByTime(100 * DAY);
    expect(fired).not.toHaveBeenCalled();
  });
});

describe('pause', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it('a pause returns true when its time is up', async () => {
    const ended = pause(systemClock, 1_000, new AbortController().signal);
    vi.advanceTimersByTime(1_000);
    expect(await ended).toBe(true);
  });

  it('a pause returns false as soon as its signal aborts, and leaves no timer behind', async () => {
    const stop = new AbortController();
    const ended = pause(systemClock, 1_000, stop.signal);
    expect(vi.getTimerCount()).toBe(1);
    stop.abort();
    expect(await ended).toBe(false);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('a pause returns false without a timer if its signal has already aborted', async () => {
    expect(await pause(systemClock, 1_000, AbortSignal.abort())).toBe(false);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('a pause removes its listener from a signal that lives on', async () => {
    const { signal } = new AbortController();
    const removed = vi.spyOn(signal, 'removeEventListener');
    const ended = pause(systemClock, 10, signal);
    vi.advanceTimersByTime(10);
    await ended;
    expect(removed).toHaveBeenCalledTimes(1);
  });
});
