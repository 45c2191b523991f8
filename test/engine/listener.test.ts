import { beforeEach, describe, expect, it, vi } from 'vitest';
import { Listener } from '../../src/engine/claim/listener.js';
import { memory } from '../../src/memory/index.js';
import type { Store, WatchHandlers } from '../../src/store/port.js';
import { virtualClock } from '../../src/testing/index.js';

/** A store whose wake-up channel opens, refuses and breaks on command. */
function aListener() {
  const clock = virtualClock();
  const channel = {
    opened: 0,
    refuses: false,
    deaf: false,
    breaksWhileOpening: false,
    closed: 0,
    handlers: undefined as WatchHandlers | undefined,
  };
  const watch: Store['watch'] = (handlers) => {
    if (channel.deaf) return Promise.resolve({ unavailable: 'nothing is heard' });
    if (channel.refuses) return Promise.reject(new Error('refused'));
    channel.opened += 1;
    channel.handlers = handlers;
    if (channel.breaksWhileOpening) handlers.broken(new Error('gone'));
    return Promise.resolve({ close: () => Promise.resolve(void (channel.closed += 1)) });
  };
  const store: Store = Object.assign(Object.create(memory()) as Store, { wakeUp: 'stream', watch });
  const errors: unknown[] = [];
  const warned: string[] = [];
  const listener = new Listener({
    store,
    clock,
    error: (error) => errors.push(error),
    news: () => undefined,
    freed: () => undefined,
    unavailable: (reason) => warned.push(reason),
  });
  const woken: number[] = [];
  const subscription = listener.join({
    kind: 'jobs',
    // As a claim loop does: it polls, and reports that it is idle again.
    wake: () => {
      woken.push(clock.now());
      void subscription.idle();
    },
    cancel: () => undefined,
  });
  return { clock, channel, listener, subscription, woken, errors, warned };
}

describe('wake-up channel', () => {
  // Without jitter, unless a test says otherwise.
  beforeEach(() => {
    const random = vi.spyOn(Math, 'random').mockReturnValue(1);
    return () => random.mockRestore();
  });

  it('reopens a broken wake-up channel up to half a second earlier, so that not all instances come at once', async () => {
    vi.mocked(Math.random).mockReturnValue(0.5);
    const { clock, channel, listener, subscription } = aListener();
    await subscription.idle();
    channel.handlers?.broken(new Error('gone'));
    await clock.advance(749);
    expect(channel.opened).toBe(1);
    await clock.advance(1);
    expect(channel.opened).toBe(2);
    await listener.close();
  });

  it('reopens a broken wake-up channel after a second, independent of polls', async () => {
    const { clock, channel, listener, subscription, woken, errors } = aListener();
    await subscription.idle();
    expect(channel.opened).toBe(1);
    channel.handlers?.broken(new Error('gone'));
    // Wakes at once, for what was missed; reopening the channel waits.
    expect(woken).toHaveLength(1);
    await clock.advance(999);
    expect(channel.opened).toBe(1);
    await clock.advance(1);
    expect(channel.opened).toBe(2);
    expect(errors).toHaveLength(1);
    await listener.close();
  });

  it('treats a wake-up channel that breaks while opening as broken', async () => {
    const { clock, channel, listener, subscription, woken, errors } = aListener();
    channel.breaksWhileOpening = true;
    await subscription.idle();
    expect(errors).toHaveLength(1);
    expect(channel.closed).toBe(1);
    channel.breaksWhileOpening = false;
    await clock.advance('1s');
    expect(channel.opened).toBe(2);
    channel.handlers?.wake('jobs');
    expect(woken).toHaveLength(3);
    await listener.close();
    expect(channel.closed).toBe(2);
  });

  it('retries a wake-up channel that cannot be opened with backoff, which a success resets', async () => {
    const { clock, channel, listener, subscription, woken } = aListener();
    channel.refuses = true;
    await subscription.idle();
    const start = clock.now();
    await clock.advance('2m');
    expect(woken.map((at) => (at - start) / 1_000)).toEqual([1, 3, 7, 15, 31, 61, 91]);
    channel.refuses = false;
    await clock.advance('30s');
    expect(channel.opened).toBe(1);
    channel.handlers?.broken(new Error('gone'));
    await clock.advance('1s');
    expect(channel.opened).toBe(2);
    await listener.close();
  });

  it('warns once about a wake-up channel that hears nothing, and retries it alongside the poll', async () => {
    const { clock, channel, listener, subscription, woken, warned } = aListener();
    channel.deaf = true;
    await subscription.idle();
    await subscription.idle();
    expect(listener.wakeUp).toBe('poll');
    await clock.advance('40s');
    expect(warned).toEqual(['nothing is heard']);
    expect(woken).toEqual([]);
    channel.deaf = false;
    await clock.advance('5m');
    expect(channel.opened).toBe(1);
    expect(listener.wakeUp).toBe('stream');
    // For what was missed until then.
    expect(woken).toHaveLength(1);
    await listener.close();
  });

  it('does not reopen a wake-up channel after the listener was closed', async () => {
    const { clock, channel, listener, subscription } = aListener();
    await subscription.idle();
    await listener.close();
    channel.handlers?.broken(new Error('gone'));
    await clock.advance('1m');
    expect(channel.opened).toBe(1);
  });
});
