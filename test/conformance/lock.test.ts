import { randomBytes } from 'node:crypto';
import { describe, expect, it, vi } from 'vitest';
import {
  LeaseLostError,
  LockTakenError,
  OptionError,
  StoppingError,
  StoreError,
  type LockOptions,
  type Tidemill,
} from '../../src/index.js';
import { memory } from '../../src/memory/index.js';
import type { LockOwner, Store } from '../../src/store/port.js';
import { virtualClock } from '../../src/testing/index.js';
import { aMill, gate, until } from '../support/mills.js';
import { opened } from '../support/port.js';
import { eachStore } from '../support/stores.js';

const anOwner = (instanceId = 'somebody'): LockOwner => ({
  instanceId,
  token: randomBytes(12).toString('hex'),
});
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const aborted = (signal: AbortSignal): Promise<unknown> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve(signal.reason);
    signal.addEventListener('abort', () => resolve(signal.reason));
  });
const failure = (call: Promise<unknown>): Promise<unknown> =>
  call.then(
    (answer) => ({ resolved: answer }),
    (error: unknown) => error,
  );

/** A call that has the lock until its gate is opened. */
async function held(mill: Tidemill, key: string, options?: LockOptions) {
  const [entered, leave] = [gate<{ signal: AbortSignal; fence: number }>(), gate()];
  const call = mill.withLock(
    key,
    async (lock) => {
      entered.open(lock);
      await leave.promise;
      return 'done';
    },
    options,
  );
  call.catch(() => undefined);
  const { signal, fence } = await entered.promise;
  return { call, signal, fence, leave: () => leave.open() };
}

/** The owner that a mill's next acquisition uses. */
function watched(store: Store): () => LockOwner {
  const acquire = vi.spyOn(store.locks, 'acquire');
  return () => acquire.mock.lastCall![1];
}

/** Nobody has it: a caller that does not wait gets it. */
const isFree = async (mill: Tidemill, key: string): Promise<boolean> =>
  mill
    .withLock(key, () => true, { wait: 0 })
    .catch((error: unknown) => {
      if (error instanceof LockTakenError) return false;
      throw error;
    });

eachStore('withLock', ({ open }) => {
  it('lets one caller at a time in, whichever mill it comes by, and each with a greater fence', async () => {
    const store = open();
    const mills = [aMill(store), aMill(store)];
    let counter = 0;
    const fences: number[] = [];
    const increment = async ({ fence }: { fence: number }): Promise<void> => {
      const before = counter;
      fences.push(fence);
      await turn();
      await turn();
      counter = before + 1;
    };
    const callers = Array.from({ length: 20 }, (_, n) =>
      mills[n % 2]!.withLock('counter', increment, { wait: '50s' }),
    );
    await Promise.all(callers);
    expect(counter).toBe(20);
    expect(fences).toEqual([...new Set(fences)].sort((a, b) => a - b));
    expect(fences).toHaveLength(20);
  });

  it('answers what the function answers, without start, and again after a stop', async () => {
    const mill = aMill(open());
    expect(await mill.withLock('k', async () => 'async')).toBe('async');
    expect(await mill.withLock('k', () => 5)).toBe(5);
    await mill.stop();
    expect(await mill.withLock('k', () => ({ again: true }))).toEqual({ again: true });
  });

  it('does not wait where wait is 0, and says who has the lock', async () => {
    const store = open();
    const holder = await held(aMill(store, { instanceId: 'first' }), 'k');
    const other = aMill(store, { instanceId: 'second' });
    const ask = vi.spyOn(store.locks, 'acquire');
    const error = await failure(other.withLock('k', () => 'never', { wait: 0 }));
    expect(error).toBeInstanceOf(LockTakenError);
    expect(error).toMatchObject({ code: 'LOCK_TAKEN', key: 'k', heldBy: 'first' });
    expect((error as Error).message).toBe(
      'The lock "k" is taken: first holds it. Try again later, or set a longer `wait`.',
    );
    expect(ask).toHaveBeenCalledTimes(1);
    holder.leave();
    expect(await holder.call).toBe('done');
  });

  it('waits as long as it is told and no longer', async () => {
    const store = open();
    const holder = await held(aMill(store), 'k');
    const other = aMill(store);
    const began = performance.now();
    const error = await failure(other.withLock('k', () => 'never', { wait: 200 }));
    expect(error).toBeInstanceOf(LockTakenError);
    expect((error as Error).message).toContain('did not release it within 200 ms');
    expect(performance.now() - began).toBeGreaterThanOrEqual(199);
    holder.leave();
  });

  it('gets a lock that comes free while it waits', async () => {
    const store = open();
    const holder = await held(aMill(store), 'k');
    const ask = vi.spyOn(store.locks, 'acquire');
    const waiter = aMill(store).withLock('k', ({ fence }) => fence, { wait: '20s' });
    await until('it has asked in vain', () => ask.mock.calls.length > 1);
    holder.leave();
    expect(await waiter).toBeGreaterThan(holder.fence);
  });

  it('keeps a lock for longer than its lease while the function runs', async () => {
    const store = open();
    const mill = aMill(store);
    const renew = vi.spyOn(store.locks, 'renew');
    const holder = await held(mill, 'k', { lease: 2_000 });
    const began = performance.now();
    await until('two leases are over', async () => {
      expect(await store.locks.acquire('k', anOwner(), 500)).toEqual({ heldBy: mill.instanceId });
      return performance.now() - began > 4_000;
    });
    expect(renew.mock.calls.length).toBeGreaterThanOrEqual(2);
    holder.leave();
    expect(await holder.call).toBe('done');
    expect(holder.signal.aborted).toBe(false);
    expect(await isFree(mill, 'k')).toBe(true);
  });

  it('takes over from a holder that stopped renewing, who can then neither renew nor release', async () => {
    const store = await opened(open());
    const dead = anOwner('dead');
    const before = await store.locks.acquire('k', dead, 300);
    const heir = await held(aMill(store), 'k', { wait: '20s' });
    expect(heir.fence).toBeGreaterThan((before as { fence: number }).fence);
    expect(await store.locks.renew('k', dead, 300)).toBe('lost');
    expect(await store.locks.release('k', dead)).toBe('lost');
    expect(await isFree(aMill(store), 'k')).toBe(false);
    heir.leave();
    expect(await heir.call).toBe('done');
  });

  it('aborts the signal when somebody else has the lock, and rejects when the function has ended', async () => {
    const store = open();
    const owner = watched(store);
    const holder = await held(aMill(store), 'k', { lease: 6_000 });
    const reason = aborted(holder.signal);
    // As if its lease had ended unnoticed and another one had come.
    await store.locks.release('k', owner());
    await store.locks.acquire('k', anOwner(), 60_000);
    const lost = await reason;
    expect(lost).toBeInstanceOf(LeaseLostError);
    expect((lost as Error).message).toBe('The lock "k" was lost: another holder has taken it over.');
    let ended = false;
    const end = failure(holder.call).finally(() => (ended = true));
    await turn();
    expect(ended).toBe(false);
    holder.leave();
    expect(await end).toBe(lost);
  });

  it('aborts the signal when the lease could not be renewed before its end', async () => {
    const store = open();
    vi.spyOn(store.locks, 'renew').mockRejectedValue(new StoreError('away', { transient: true }));
    const mill = aMill(store);
    const heard = gate<{ where: string }>();
    mill.on('error', heard.open);
    const holder = await held(mill, 'k', { lease: 500 });
    const lost = await aborted(holder.signal);
    expect(lost).toBeInstanceOf(LeaseLostError);
    expect((lost as Error).message).toContain('could not be renewed in time');
    expect(await heard.promise).toMatchObject({ where: 'renew a lock' });
    holder.leave();
    expect(await failure(holder.call)).toBe(lost);
  });

  it('aborts the signal at the end of the lease even where a renewal hangs', async () => {
    const store = open();
    const hung = gate<'renewed'>();
    vi.spyOn(store.locks, 'renew').mockReturnValue(hung.promise);
    const holder = await held(aMill(store), 'k', { lease: 500 });
    expect(await aborted(holder.signal)).toBeInstanceOf(LeaseLostError);
    hung.open('renewed');
    holder.leave();
    expect(await failure(holder.call)).toBeInstanceOf(LeaseLostError);
  });

  it('goes on after a renewal that failed, where the next one succeeds in time', async () => {
    const store = open();
    const renew = vi.spyOn(store.locks, 'renew').mockRejectedValueOnce(new StoreError('away'));
    const mill = aMill(store);
    mill.on('error', () => undefined);
    const holder = await held(mill, 'k', { lease: 3_000 });
    await until('it was renewed after that', () => renew.mock.settledResults[1]?.type === 'fulfilled');
    holder.leave();
    expect(await holder.call).toBe('done');
  });

  it('finds out at the end where the function never let a timer fire', async () => {
    const mill = aMill(open());
    const call = mill.withLock(
      'k',
      () => {
        const end = performance.now() + 550;
        while (performance.now() < end);
      },
      { lease: 500 },
    );
    expect(await failure(call)).toBeInstanceOf(LeaseLostError);
    expect(await isFree(mill, 'k')).toBe(true);
  });

  it('finds out at the end where somebody took the lock over since the last renewal', async () => {
    const store = open();
    const owner = watched(store);
    const holder = await held(aMill(store), 'k');
    await store.locks.release('k', owner());
    await store.locks.acquire('k', anOwner(), 60_000);
    holder.leave();
    expect(await failure(holder.call)).toBeInstanceOf(LeaseLostError);
  });

  it('gives the lock back when the function throws, and throws the same', async () => {
    const mill = aMill(open());
    const thrown = new TypeError('broken');
    const fails = async (): Promise<never> => {
      await turn();
      throw thrown;
    };
    const throws = (): never => {
      throw thrown;
    };
    for (const work of [fails, throws]) {
      expect(await failure(mill.withLock('k', work))).toBe(thrown);
      expect(await isFree(mill, 'k')).toBe(true);
    }
  });

  it('throws what the function threw, also where the lock was lost', async () => {
    const store = open();
    vi.spyOn(store.locks, 'renew').mockResolvedValue('lost');
    const thrown = new Error('my own');
    const call = aMill(store).withLock(
      'k',
      async ({ signal }) => {
        await aborted(signal);
        throw thrown;
      },
      { lease: 500 },
    );
    expect(await failure(call)).toBe(thrown);
  });

  it('does not blame the caller for a release that failed: the lease ends by itself', async () => {
    const store = open();
    vi.spyOn(store.locks, 'release').mockRejectedValueOnce(new StoreError('away', { transient: true }));
    const mill = aMill(store);
    const heard = gate<{ where: string }>();
    mill.on('error', heard.open);
    expect(await mill.withLock('k', () => 'kept', { lease: 3_000 })).toBe('kept');
    expect(await heard.promise).toMatchObject({ where: 'release a lock' });
    expect(await isFree(mill, 'k')).toBe(false);
    expect(await mill.withLock('k', () => 'free', { wait: '20s' })).toBe('free');
  });

  it('does not wait for a release that hangs any longer than the lease', async () => {
    const store = open();
    const hung = gate<'released'>();
    vi.spyOn(store.locks, 'release').mockReturnValueOnce(hung.promise);
    expect(await aMill(store).withLock('k', () => 'kept', { lease: 500 })).toBe('kept');
    hung.open('released');
  });

  it('asks again where an answer was lost, and gives back what it may have taken where it gives up', async () => {
    const store = open();
    const mill = aMill(store);
    const away = new StoreError('away', { transient: true });
    const take = store.locks.acquire.bind(store.locks);
    const acquire = vi.spyOn(store.locks, 'acquire');
    const lost = async (...request: Parameters<typeof take>): Promise<never> => {
      await take(...request);
      throw away;
    };
    acquire.mockImplementationOnce(lost).mockImplementationOnce(lost);
    expect(await mill.withLock('k', () => 'got it', { wait: '20s' })).toBe('got it');
    acquire.mockImplementationOnce(lost);
    expect(await failure(mill.withLock('k', () => 'never', { wait: 0 }))).toBe(away);
    await until('it was given back', () => isFree(mill, 'k'));
  });

  it('does not begin under a lease that was over before the answer came', async () => {
    const store = open();
    const take = store.locks.acquire.bind(store.locks);
    const acquire = vi.spyOn(store.locks, 'acquire');
    acquire.mockImplementationOnce(async (...request) => {
      const answer = await take(...request);
      await new Promise((resolve) => setTimeout(resolve, 2_050));
      return answer;
    });
    const mill = aMill(store);
    expect(await mill.withLock('k', ({ signal }) => signal.aborted, { lease: 2_000 })).toBe(false);
    expect(acquire).toHaveBeenCalledTimes(2);
  });

  it('rejects at once with an error that waiting does not mend', async () => {
    const store = open();
    const refused = new StoreError('not authorized');
    vi.spyOn(store.locks, 'acquire').mockRejectedValue(refused);
    expect(await failure(aMill(store).withLock('k', () => 'never', { wait: '20s' }))).toBe(refused);
  });

  it('is not re-entrant, and says so', async () => {
    const mill = aMill(open());
    const inner = (): Promise<unknown> => failure(mill.withLock('k', () => 'never', { wait: 0 }));
    const error = await mill.withLock('k', inner);
    expect(error).toBeInstanceOf(LockTakenError);
    expect((error as Error).message).toContain('locks are not re-entrant');
  });

  it('tells keys apart, and takes any text for one', async () => {
    const mill = aMill(open());
    const keys = [
      'a',
      'A',
      'a.b',
      '$where',
      '__proto__',
      'constructor',
      'x'.repeat(5_000),
      ' a',
      '💡',
      'lock:a',
    ];
    const holders = await Promise.all(keys.map((key) => held(mill, key)));
    for (const key of keys) expect(await isFree(mill, key)).toBe(false);
    for (const holder of holders) holder.leave();
    await Promise.all(holders.map(({ call }) => call));
    for (const key of keys) expect(await isFree(mill, key)).toBe(true);
  });

  it('names a holder whose id looks like a field path', async () => {
    const store = open();
    const holder = await held(aMill(store, { instanceId: '$fence' }), 'k');
    const error = await failure(aMill(store).withLock('k', () => 'never', { wait: 0 }));
    expect(error).toMatchObject({ heldBy: '$fence' });
    holder.leave();
  });

  it('leaves instances, paused names and jobs alone', async () => {
    const store = open();
    const mill = aMill(store, { instanceId: 'k' });
    mill.job('k', () => 'ran');
    await mill.jobs.pause('other');
    await mill.start();
    const holder = await held(mill, 'k');
    const { id } = await mill.enqueue('k');
    expect(await mill.jobs.result(id)).toBe('ran');
    const { instances, paused } = await store.instances.list();
    expect(instances.map(({ instanceId }) => instanceId)).toEqual(['k']);
    expect([...paused]).toEqual(['other']);
    holder.leave();
    await holder.call;
  });

  it('works inside a handler, also while the mill stops', async () => {
    const mill = aMill(open());
    const [running, stopping] = [gate(), gate()];
    let answer: unknown;
    mill.job('x', async () => {
      running.open();
      await stopping.promise;
      answer = await mill.withLock('k', () => 'locked');
    });
    await mill.start();
    await mill.enqueue('x');
    await running.promise;
    const stopped = mill.stop();
    stopping.open();
    await stopped;
    expect(answer).toBe('locked');
  });

  it('is waited for by a stop, which leaves the lock free', async () => {
    const store = await opened(open());
    const mill = aMill(store);
    const holder = await held(mill, 'k');
    let stopped = false;
    const stop = mill.stop().then(() => (stopped = true));
    await turn();
    expect(stopped).toBe(false);
    expect(holder.signal.aborted).toBe(false);
    holder.leave();
    expect(await holder.call).toBe('done');
    await stop;
    expect(await store.locks.acquire('k', anOwner(), 500)).toHaveProperty('fence');
  });

  it('is interrupted by a stop whose time is over: waiting calls are refused, signals abort', async () => {
    const store = open();
    const mill = aMill(store);
    const taken = gate();
    const call = mill.withLock('k', async ({ signal }) => {
      taken.open();
      throw await aborted(signal);
    });
    const failed = failure(call);
    const ask = vi.spyOn(store.locks, 'acquire');
    await taken.promise;
    const asked = ask.mock.calls.length;
    const refused = failure(mill.withLock('k', () => 'never', { wait: '20s' }));
    await until('the second one waits', () => ask.mock.calls.length > asked);
    await mill.stop({ timeout: 0 });
    expect(await failed).toBeInstanceOf(StoppingError);
    expect(await refused).toMatchObject({ code: 'STOPPED' });
    expect(await isFree(mill, 'k')).toBe(true);
  });

  it('does not hold up a stop with a function that does not end, and renews nothing afterwards', async () => {
    const store = await opened(open());
    const mill = aMill(store);
    const renew = vi.spyOn(store.locks, 'renew');
    const holder = await held(mill, 'k', { lease: 500 });
    await mill.stop({ timeout: 0 });
    expect(holder.signal.reason).toBeInstanceOf(StoppingError);
    const renewed = renew.mock.calls.length;
    await until(
      'its lease is over',
      async () => 'fence' in (await store.locks.acquire('k', anOwner(), 60_000)),
    );
    expect(renew.mock.calls.length).toBe(renewed);
    holder.leave();
    expect(await failure(holder.call)).toBeInstanceOf(LeaseLostError);
  });

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

eachStore('the lock port', ({ open }) => {
  it('gives an owner that asks again the same fence and a new lease', async () => {
    const { locks } = await opened(open());
    const [me, other] = [anOwner('me'), anOwner()];
    const first = await locks.acquire('k', me, 60_000);
    expect(await locks.acquire('k', me, 1)).toEqual(first);
    // Only a lease that was really set anew can be over now.
    const next = await until('the new lease is over', async () => {
      const answer = await locks.acquire('k', other, 60_000);
      return 'fence' in answer && answer.fence;
    });
    expect(next).toBeGreaterThan((first as { fence: number }).fence);
    expect(await locks.acquire('k', me, 60_000)).toEqual({ heldBy: 'somebody' });
  });

  it('renews and releases for the owner alone, also where instances have the same name', async () => {
    const { locks } = await opened(open());
    const [me, twin] = [anOwner('same'), anOwner('same')];
    await locks.acquire('k', me, 60_000);
    expect(await locks.renew('k', twin, 1)).toBe('lost');
    expect(await locks.release('k', twin)).toBe('lost');
    expect(await locks.renew('k', me, 60_000)).toBe('renewed');
    expect(await locks.acquire('k', twin, 1)).toEqual({ heldBy: 'same' });
    expect(await locks.release('k', me)).toBe('released');
    expect(await locks.release('k', me)).toBe('lost');
    expect(await locks.renew('k', me, 1)).toBe('lost');
    expect(await locks.acquire('k', twin, 60_000)).toHaveProperty('fence');
  });

  it('renews a lease that is over for as long as nobody has taken the lock', async () => {
    const { locks } = await opened(open());
    const me = anOwner('me');
    await locks.acquire('k', me, -1_000);
    expect(await locks.renew('k', me, 60_000)).toBe('renewed');
    expect(await locks.acquire('k', anOwner(), 1)).toEqual({ heldBy: 'me' });
  });

  it('gives greater fences after releases, after takeovers, and at one moment', async () => {
    const { locks } = await opened(open());
    const fences: number[] = [];
    for (let round = 0; round < 20; round += 1) {
      const owner = anOwner();
      const answer = await locks.acquire('k', owner, round % 3 === 0 ? -1 : 60_000);
      fences.push((answer as { fence: number }).fence);
      if (round % 3 !== 0) await locks.release('k', owner);
    }
    for (let n = 1; n < fences.length; n += 1) expect(fences[n]).toBeGreaterThan(fences[n - 1]!);
    expect(fences.every((fence) => Number.isSafeInteger(fence) && fence > 0)).toBe(true);
  });

  it('gives a lock to one of many that ask for the first time at the same moment', async () => {
    const { locks } = await opened(open());
    for (let round = 0; round < 5; round += 1) {
      const asked = Array.from({ length: 20 }, () => locks.acquire(`new-${round}`, anOwner(), 60_000));
      const answers = await Promise.all(asked);
      expect(answers.filter((answer) => 'fence' in answer)).toHaveLength(1);
    }
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
