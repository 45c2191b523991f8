import { describe, expect, it, vi } from 'vitest';
import { LockTakenError, OptionError } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';
import { anOwner, failure, lockPort, withLock } from '../../src/testing/conformance/facts/lock.js';
import { virtualClock } from '../../src/testing/index.js';
import { aMill } from '../support/mills.js';
import { eachStore, eachStoreProves } from '../support/stores.js';

eachStoreProves(withLock);
eachStoreProves(lockPort);

eachStore('withLock with wrong arguments', ({ open }) => {
  it.each<readonly [what: string, args: readonly unknown[], message: string]>([
    ['no key', [undefined, () => 1], 'withLock(undefined): key must be a non-empty string, got undefined'],
    ['an empty key', ['', () => 1], 'withLock(""): key must be a non-empty string, got ""'],
    ['a blank key', ['  ', () => 1], 'key must be a non-empty string, got "  "'],
    ['an object for a key', [{ $ne: 1 }, () => 1], 'key must be a non-empty string, got a plain object'],
    ['no function', ['k'], 'withLock("k"): the second argument must be a function, got undefined'],
    ['a text for a function', ['k', 'work'], 'the second argument must be a function, got "work"'],
    [
      'options first',
      ['k', { wait: 5 }, () => 1],
      'the second argument must be a function, got a plain object',
    ],
    ['an unknown option', ['k', () => 1, { leese: 5 }], 'unknown option "leese". Did you mean "lease"?'],
    ['null for options', ['k', () => 1, null], 'options must be an object, got null'],
    ['a wrong wait', ['k', () => 1, { wait: 'soon' }], 'wait must be a duration'],
    ['a negative wait', ['k', () => 1, { wait: -1 }], 'wait must be a duration'],
    ['an endless wait', ['k', () => 1, { wait: Infinity }], 'wait must be a duration'],
    ['too short a lease', ['k', () => 1, { lease: 499 }], 'lease must be a duration of at least 500 ms'],
    ['null for a lease', ['k', () => 1, { lease: null }], 'lease must be a duration of at least 500 ms'],
  ])('refuses %s, and takes nothing', async (_what, args, message) => {
    const store = open();
    const ask = vi.spyOn(store.locks, 'acquire');
    const mill = aMill(store);
    const error = await failure(Reflect.apply(mill.withLock.bind(mill), undefined, args) as Promise<unknown>);
    expect(error).toBeInstanceOf(OptionError);
    expect((error as Error).message).toContain(message);
    expect(ask).not.toHaveBeenCalled();
  });
});

describe('withLock on a virtual clock', () => {
  it('keeps its lease for a day, and ends when its function does', async () => {
    const clock = virtualClock();
    const mill = aMill(memory({ clock }));
    let endedAt = 0;
    const call = mill.withLock('k', async ({ signal }) => {
      await new Promise<void>((resolve) => void clock.timer(86_400_000, resolve));
      endedAt = clock.now();
      return signal.aborted;
    });
    await clock.advance('2d');
    expect(await call).toBe(false);
    expect(endedAt).toBe(86_400_000);
  });

  it('waits and gives up on that clock alone', async () => {
    const clock = virtualClock();
    const store = memory({ clock });
    const mill = aMill(store);
    await store.locks.acquire('k', anOwner('dead'), 10_000);
    const [hasty, patient] = [
      failure(mill.withLock('k', () => clock.now())),
      mill.withLock('k', () => clock.now(), { wait: '1m' }),
    ];
    let gaveUpAt = 0;
    void hasty.then(() => (gaveUpAt = clock.now()));
    await clock.advance('30s');
    expect(await hasty).toBeInstanceOf(LockTakenError);
    expect(gaveUpAt).toBe(3_000);
    const gotItAt = await patient;
    // A second for the holder to come back, and two waits between looks.
    expect(gotItAt).toBeGreaterThanOrEqual(11_000);
    expect(gotItAt).toBeLessThanOrEqual(11_500);
  });
});
