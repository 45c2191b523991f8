import { AsyncResource } from 'node:async_hooks';

/**
 * Time as the engine sees it. The store owns it: `now()` is its estimate of the server's clock, timers run on it,
 * and a test may hand in a virtual one.
 */
export interface Clock {
  /** Milliseconds since 1970, by the store's clock. */
  now(): number;
  /** Milliseconds of a clock that never jumps; only differences of it mean anything. */
  monotonic(): number;
  /** Calls back once, after at least `delayMs`. Any delay is allowed. */
  timer(delayMs: number, callback: () => void): Timer;
  /**
   * Tells a virtual clock that something is under way, so that it moves on only when that has settled or parked.
   * A real clock has no such method.
   */
  track?(work: Promise<unknown>): void;
}

export interface Timer {
  cancel(): void;
  /** It does not keep the process alive. A virtual clock never does. */
  unref?(): void;
}

/** setTimeout holds 31 bits: a longer delay would fire at once. */
const LONGEST_MS = 2_147_483_647;

/** Timers serve all who wait, whoever began them: what runs in one must not count as part of a caller's transaction. */
const nobody = new AsyncResource('tidemill');

export function realTimer(delayMs: number, callback: () => void): Timer {
  const ring = (): void => nobody.runInAsyncScope(callback);
  let left = Math.max(0, delayMs);
  let handle: NodeJS.Timeout;
  let holds = true;
  const arm = (): void => {
    const step = Math.min(left, LONGEST_MS);
    left -= step;
    handle = setTimeout(left > 0 ? arm : ring, step);
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

/** The process's own clock, for stores that live in this process. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  timer: realTimer,
};

/** Answers true after `delayMs`, or false as soon as the signal aborts. Never rejects. */
export function pause(clock: Clock, delayMs: number, signal?: AbortSignal): Promise<boolean> {
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
    const timer = clock.timer(delayMs, () => end(true));
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}

/** Waits for something that cannot be interrupted, but not for ever; answers whether it ended in time. */
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
