import { AsyncResource } from 'node:async_hooks';

/**
 * The engine's only source of time. The store owns it: `now()` estimates the server's clock, and all timers run on it.
 * Tests can substitute a virtual clock.
 */
export interface Clock {
  /** Milliseconds since 1970, by the store's clock. */
  now(): number;
  /** By how many milliseconds `now()` may be wrong, if it is an estimate. */
  uncertainty?(): number;
  /** Milliseconds on a clock that never jumps. Only differences between two readings are meaningful. */
  monotonic(): number;
  /** Calls `callback` once, after at least `delayMs`. Any delay is allowed, even beyond the limit of `setTimeout`. */
  timer(delayMs: number, callback: () => void, options?: TimerOptions): Timer;
  /**
   * Tells a virtual clock that `work` is in progress, so that it advances only once `work` has settled or waits for a
   * timer. Real clocks leave this out.
   */
  track?(work: Promise<unknown>): void;
}

export interface TimerOptions {
  /**
   * The callback is housekeeping, which nothing waits for. A virtual clock then does not stop for it at its own time: it
   * runs when the clock stops next, once however many periods were skipped. Real clocks ignore this. Default: false.
   */
  readonly housekeeping?: boolean;
}

export interface Timer {
  cancel(): void;
  /** Lets the process exit while the timer is pending. Absent on virtual clocks, whose timers never keep it alive. */
  unref?(): void;
}

/** `setTimeout` takes 31 bits; it fires at once if the delay is longer. */
const LONGEST_MS = 2_147_483_647;

/**
 * The async context of every timer callback. A timer may serve other callers than the one that armed it, so its
 * callback must not inherit that caller's context, such as an open transaction.
 */
const nobody = new AsyncResource('tidemill');

export function realTimer(delayMs: number, callback: () => void): Timer {
  const fire = (): void => nobody.runInAsyncScope(callback);
  let left = Math.max(0, delayMs);
  let handle: NodeJS.Timeout;
  let holds = true;
  const arm = (): void => {
    const step = Math.min(left, LONGEST_MS);
    left -= step;
    handle = setTimeout(left > 0 ? arm : fire, step);
    if (!holds) handle.unref();
  };
  arm();
  return {
    cancel: () => clearTimeout(handle),
    unref: () => {
      holds = false;
      handle.unref();
    },
  };
}

/** The process's own clock, for in-process stores. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  timer: realTimer,
};

/** Resolves to true after `delayMs`, or to false as soon as the signal aborts. Never rejects. */
export function pause(
  clock: Clock,
  delayMs: number,
  signal?: AbortSignal,
  options?: TimerOptions,
): Promise<boolean> {
  return new Promise((resolve) => {
    if (signal?.aborted === true) {
      resolve(false);
      return;
    }
    const end = (elapsed: boolean): void => {
      timer.cancel();
      signal?.removeEventListener('abort', onAbort);
      resolve(elapsed);
    };
    const onAbort = (): void => end(false);
    const timer = clock.timer(delayMs, () => end(true), options);
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}

/** Waits up to `limitMs` for work that cannot be interrupted. Returns whether it settled in time. */
export async function within(clock: Clock, limitMs: number, work: Promise<unknown>): Promise<boolean> {
  const done = new AbortController();
  const settled = work.then(
    () => done.abort(),
    () => done.abort(),
  );
  const late = await pause(clock, limitMs, done.signal);
  if (!late) await settled;
  return !late;
}
