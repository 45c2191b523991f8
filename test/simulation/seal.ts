import crypto from 'node:crypto';
import { syncBuiltinESMExports } from 'node:module';
import type { Random } from './random.js';
import type { Scheduler } from './scheduler.js';

/**
 * Removes everything real from the code under test: randomness, time and the event loop's turns. Nothing else could
 * make two runs of one seed differ. Returns a function that restores them.
 */
export function seal(random: Random, scheduler: Scheduler): () => void {
  const { random: realRandom } = Math;
  const { now: realNow } = Date;
  const { randomBytes } = crypto;
  const { setImmediate: realImmediate } = globalThis;
  const monotonic = performance.now.bind(performance);
  Math.random = () => random.next();
  Date.now = () => scheduler.now;
  performance.now = () => scheduler.now;
  Reflect.set(crypto, 'randomBytes', (count: number) => random.bytes(count));
  Reflect.set(globalThis, 'setImmediate', (callback: () => void) => scheduler.immediate(callback));
  syncBuiltinESMExports();
  return () => {
    Math.random = realRandom;
    Date.now = realNow;
    performance.now = monotonic;
    Reflect.set(crypto, 'randomBytes', randomBytes);
    Reflect.set(globalThis, 'setImmediate', realImmediate);
    syncBuiltinESMExports();
  };
}
