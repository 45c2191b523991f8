/** Types of `withLock`, checked by the compiler alone; nothing here runs. */
import { expectTypeOf } from 'vitest';
import { Tidemill, type LockContext, type LockOptions, type LockTakenError } from 'tidemill';
import { memory } from 'tidemill/memory';

const mill = new Tidemill({ store: memory() });

// The result is the function's own, whether it is asynchronous or not.
expectTypeOf(mill.withLock('k', () => Promise.resolve(5))).resolves.toEqualTypeOf<number>();
expectTypeOf(mill.withLock('k', () => 'text')).resolves.toEqualTypeOf<string>();
expectTypeOf(mill.withLock('k', () => undefined)).resolves.toEqualTypeOf<undefined>();
void mill.withLock('k', (lock) => {
  expectTypeOf(lock).toEqualTypeOf<LockContext>();
  expectTypeOf(lock.signal).toEqualTypeOf<AbortSignal>();
  expectTypeOf(lock.fence).toEqualTypeOf<number>();
});
const options: LockOptions = { wait: 0, lease: '1m' };
void mill.withLock('k', () => 1, options);
// @ts-expect-error -- no such option
void mill.withLock('k', () => 1, { ttl: 5 });
// @ts-expect-error -- the function comes second
void mill.withLock('k', { wait: 5 }, () => 1);

expectTypeOf<LockTakenError['heldBy']>().toEqualTypeOf<string>();
expectTypeOf<LockTakenError['key']>().toEqualTypeOf<string>();
