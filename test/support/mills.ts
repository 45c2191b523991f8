import { afterEach } from 'vitest';
import { Tidemill, type TidemillOptions } from '../../src/index.js';
import type { Store } from '../../src/store/port.js';

/** The poll finds nothing during a test: whatever runs was woken. */
export const rarely = { min: '1h', max: '1h' } as const;

const open: Tidemill[] = [];

afterEach(async () => {
  await Promise.all(open.splice(0).map((mill) => mill.stop({ timeout: 0 })));
});

/** A mill that is stopped after the test. Silent, unless the test listens. */
export function aMill(store: Store, options: Partial<TidemillOptions> = {}): Tidemill {
  const mill = new Tidemill({ store, logger: false, ...options });
  open.push(mill);
  return mill;
}

/** A promise with its own resolve, for waiting on a signal instead of a sleep. */
export function gate<T = void>(): { readonly promise: Promise<T>; readonly open: (value: T) => void } {
  let resolve!: (value: T) => void;
  const promise = new Promise<T>((settle) => (resolve = settle));
  return { promise, open: resolve };
}

/** Polls until the condition holds; `what` may be a function that says what was seen instead. */
export async function until<T>(
  what: string | (() => string),
  ask: () => Promise<T | false | undefined> | T | false | undefined,
  limitMs = 90_000,
): Promise<T> {
  const end = performance.now() + limitMs;
  for (;;) {
    const answer = await ask();
    if (answer !== false && answer !== undefined) return answer;
    if (performance.now() > end) {
      const text = typeof what === 'string' ? what : what();
      throw new Error(`waited ${String(limitMs)} ms in vain until ${text}`);
    }
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}
