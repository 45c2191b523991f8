import { randomBytes } from 'node:crypto';
import {
  LeaseLostError,
  LockTakenError,
  StoppingError,
  StoreError,
  type LockOptions,
  type Tidemill,
} from '../../../index.js';
import type { LockOwner, Store } from '../../../store/port.js';
import { chapter, fact, type Chapter } from '../chapters.js';
import { expect } from '../expect.js';
import { gate, present, until } from '../fixtures.js';
import { spyOn } from '../spy.js';

export const anOwner = (instanceId = 'somebody'): LockOwner => ({
  instanceId,
  token: randomBytes(12).toString('hex'),
});
const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const aborted = (signal: AbortSignal): Promise<unknown> =>
  new Promise((resolve) => {
    if (signal.aborted) resolve(signal.reason);
    signal.addEventListener('abort', () => resolve(signal.reason));
  });
export const failure = (call: Promise<unknown>): Promise<unknown> =>
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
  const acquire = spyOn(store.locks, 'acquire');
  return () => present(acquire.calls.at(-1))[1];
}

/** Nobody has it: a caller that does not wait gets it. */
const isFree = async (mill: Tidemill, key: string): Promise<boolean> =>
  mill
    .withLock(key, () => true, { wait: 0 })
    .catch((error: unknown) => {
      if (error instanceof LockTakenError) return false;
      throw error;
    });

export const withLock: Chapter = chapter({ title: 'withLock', needs: ['locks'] }, [
  fact('lets one caller of any mill hold a lock at a time, each with a greater fence', async ({ aMill }) => {
    const mills = [aMill(), aMill()];
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
      present(mills[n % 2]).withLock('counter', increment, { wait: '50s' }),
    );
    await Promise.all(callers);
    expect(counter).toBe(20);
    expect(fences).toEqual([...new Set(fences)].sort((a, b) => a - b));
    expect(fences).toHaveLength(20);
  }),

  fact('returns the result of the function, before a start and after a stop', async ({ aMill }) => {
    const mill = aMill();
    expect(await mill.withLock('k', async () => 'async')).toBe('async');
    expect(await mill.withLock('k', () => 5)).toBe(5);
    await mill.stop();
    expect(await mill.withLock('k', () => ({ again: true }))).toEqual({ again: true });
  }),

  fact('does not wait if wait is 0, and names the holder of the lock', async ({ aMill, store }) => {
    const holder = await held(aMill({ instanceId: 'first' }), 'k');
    const other = aMill({ instanceId: 'second' });
    const ask = spyOn(store.locks, 'acquire');
    const error = await failure(other.withLock('k', () => 'never', { wait: 0 }));
    expect(error).toBeInstanceOf(LockTakenError);
    expect(error).toMatchObject({ code: 'LOCK_TAKEN', key: 'k', heldBy: 'first' });
    expect((error as Error).message).toBe(
      'The lock "k" is taken: first holds it. Try again later, or set a longer `wait`.',
    );
    expect(ask.calls).toHaveLength(1);
    holder.leave();
    expect(await holder.call).toBe('done');
  }),

  fact('waits for a lock no longer than wait', async ({ aMill }) => {
    const holder = await held(aMill(), 'k');
    const other = aMill();
    const began = performance.now();
    const error = await failure(other.withLock('k', () => 'never', { wait: 200 }));
    expect(error).toBeInstanceOf(LockTakenError);
    expect((error as Error).message).toContain('did not release it within 200 ms');
    expect(performance.now() - began).toBeGreaterThanOrEqual(199);
    holder.leave();
  }),

  fact('gets a lock that is released while it waits', async ({ aMill, store }) => {
    const holder = await held(aMill(), 'k');
    const ask = spyOn(store.locks, 'acquire');
    const waiter = aMill().withLock('k', ({ fence }) => fence, { wait: '20s' });
    await until('it has asked in vain', () => ask.calls.length > 1);
    holder.leave();
    expect(await waiter).toBeGreaterThan(holder.fence);
  }),

  fact('renews the lease of a lock while the function runs', async ({ aMill, store }) => {
    const mill = aMill();
    const renew = spyOn(store.locks, 'renew');
    const holder = await held(mill, 'k', { lease: 6_000 });
    const began = performance.now();
    await until('the first lease is over', async () => {
      expect(await store.locks.acquire('k', anOwner(), 500)).toEqual({ heldBy: mill.instanceId });
      return performance.now() - began > 6_500;
    });
    expect(renew.calls.length).toBeGreaterThanOrEqual(2);
    holder.leave();
    expect(await holder.call).toBe('done');
    expect(holder.signal.aborted).toBe(false);
    expect(await isFree(mill, 'k')).toBe(true);
  }),

  fact(
    'takes over the lock of a holder that stopped renewing, which can then neither renew nor release it',
    async ({ aMill, opened }) => {
      const store = await opened();
      const dead = anOwner('dead');
      const before = await store.locks.acquire('k', dead, 300);
      const heir = await held(aMill(), 'k', { wait: '20s' });
      expect(heir.fence).toBeGreaterThan((before as { fence: number }).fence);
      expect(await store.locks.renew('k', dead, 300)).toBe('lost');
      expect(await store.locks.release('k', dead)).toBe('lost');
      expect(await isFree(aMill(), 'k')).toBe(false);
      heir.leave();
      expect(await heir.call).toBe('done');
    },
  ),

  fact(
    'aborts the signal when another owner has taken the lock, and rejects when the function ends',
    async ({ aMill, store }) => {
      const owner = watched(store);
      const holder = await held(aMill(), 'k', { lease: 6_000 });
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
    },
  ),

  fact('aborts the signal if the lease could not be renewed before it ended', async ({ aMill, store }) => {
    spyOn(store.locks, 'renew').always(() => Promise.reject(new StoreError('away', { transient: true })));
    const mill = aMill();
    const heard = gate<{ where: string }>();
    mill.on('error', heard.open);
    const holder = await held(mill, 'k', { lease: 500 });
    const lost = await aborted(holder.signal);
    expect(lost).toBeInstanceOf(LeaseLostError);
    expect((lost as Error).message).toContain('could not be renewed in time');
    expect(await heard.promise).toMatchObject({ where: 'renew a lock' });
    holder.leave();
    expect(await failure(holder.call)).toBe(lost);
  }),

  fact('aborts the signal at the end of the lease even if a renewal hangs', async ({ aMill, store }) => {
    const hung = gate<'renewed'>();
    spyOn(store.locks, 'renew').always(() => hung.promise);
    const holder = await held(aMill(), 'k', { lease: 500 });
    expect(await aborted(holder.signal)).toBeInstanceOf(LeaseLostError);
    hung.open('renewed');
    holder.leave();
    expect(await failure(holder.call)).toBeInstanceOf(LeaseLostError);
  }),

  fact('keeps the lock after a failed renewal if the next one succeeds in time', async ({ aMill, store }) => {
    const renew = spyOn(store.locks, 'renew');
    renew.once(() => Promise.reject(new StoreError('away')));
    const mill = aMill();
    mill.on('error', () => undefined);
    const holder = await held(mill, 'k', { lease: 3_000 });
    await until('it was renewed after that', () => renew.answered > 0);
    holder.leave();
    expect(await holder.call).toBe('done');
  }),

  fact('rejects if the lease ended while the function blocked the event loop', async ({ aMill }) => {
    const mill = aMill();
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
  }),

  fact('rejects if another owner took the lock over since the last renewal', async ({ aMill, store }) => {
    const owner = watched(store);
    const holder = await held(aMill(), 'k');
    await store.locks.release('k', owner());
    await store.locks.acquire('k', anOwner(), 60_000);
    holder.leave();
    expect(await failure(holder.call)).toBeInstanceOf(LeaseLostError);
  }),

  fact('releases the lock when the function throws, and rejects with the same error', async ({ aMill }) => {
    const mill = aMill();
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
  }),

  fact('rejects with the error of the function even if the lock was lost', async ({ aMill, store }) => {
    spyOn(store.locks, 'renew').always(async () => 'lost');
    const thrown = new Error('my own');
    const call = aMill().withLock(
      'k',
      async ({ signal }) => {
        await aborted(signal);
        throw thrown;
      },
      { lease: 500 },
    );
    expect(await failure(call)).toBe(thrown);
  }),

  fact('returns the result even if the release fails; the lease then expires', async ({ aMill, store }) => {
    spyOn(store.locks, 'release').once(() => Promise.reject(new StoreError('away', { transient: true })));
    const mill = aMill();
    const heard = gate<{ where: string }>();
    mill.on('error', heard.open);
    expect(await mill.withLock('k', () => 'kept', { lease: 3_000 })).toBe('kept');
    expect(await heard.promise).toMatchObject({ where: 'release a lock' });
    expect(await isFree(mill, 'k')).toBe(false);
    expect(await mill.withLock('k', () => 'free', { wait: '20s' })).toBe('free');
  }),

  fact('waits for a hanging release no longer than the lease', async ({ aMill, store }) => {
    const hung = gate<'released'>();
    spyOn(store.locks, 'release').once(() => hung.promise);
    expect(await aMill().withLock('k', () => 'kept', { lease: 500 })).toBe('kept');
    hung.open('released');
  }),

  fact(
    'retries an acquire whose response was lost, and releases what it may have acquired if it gives up',
    async ({ aMill, store }) => {
      const mill = aMill();
      const away = new StoreError('away', { transient: true });
      const take = store.locks.acquire.bind(store.locks);
      const acquire = spyOn(store.locks, 'acquire');
      const lost = async (...request: Parameters<typeof take>): Promise<never> => {
        await take(...request);
        throw away;
      };
      acquire.once(lost);
      acquire.once(lost);
      expect(await mill.withLock('k', () => 'got it', { wait: '20s' })).toBe('got it');
      acquire.once(lost);
      expect(await failure(mill.withLock('k', () => 'never', { wait: 0 }))).toBe(away);
      await until('it was given back', () => isFree(mill, 'k'));
    },
  ),

  fact(
    'does not run the function under a lease that expired before the response arrived',
    async ({ aMill, store }) => {
      const take = store.locks.acquire.bind(store.locks);
      const acquire = spyOn(store.locks, 'acquire');
      acquire.once(async (...request) => {
        const answer = await take(...request);
        await new Promise((resolve) => setTimeout(resolve, 2_050));
        return answer;
      });
      const mill = aMill();
      expect(await mill.withLock('k', ({ signal }) => signal.aborted, { lease: 2_000 })).toBe(false);
      expect(acquire.calls).toHaveLength(2);
    },
  ),

  fact('rejects at once with an error that is not transient', async ({ aMill, store }) => {
    const refused = new StoreError('not authorized');
    spyOn(store.locks, 'acquire').always(() => Promise.reject(refused));
    expect(await failure(aMill().withLock('k', () => 'never', { wait: '20s' }))).toBe(refused);
  }),

  fact(
    'refuses to acquire a lock again inside its own function, and says that locks are not re-entrant',
    async ({ aMill }) => {
      const mill = aMill();
      const inner = (): Promise<unknown> => failure(mill.withLock('k', () => 'never', { wait: 0 }));
      const error = await mill.withLock('k', inner);
      expect(error).toBeInstanceOf(LockTakenError);
      expect((error as Error).message).toContain('locks are not re-entrant');
    },
  ),

  fact('keeps locks of different keys apart, whatever text a key contains', async ({ aMill }) => {
    const mill = aMill();
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
  }),

  fact('names the holder of a lock even if its id looks like a field path', async ({ aMill }) => {
    const holder = await held(aMill({ instanceId: '$fence' }), 'k');
    const error = await failure(aMill().withLock('k', () => 'never', { wait: 0 }));
    expect(error).toMatchObject({ heldBy: '$fence' });
    holder.leave();
  }),

  fact('stores locks apart from instances, paused names and jobs', async ({ aMill, store }) => {
    const mill = aMill({ instanceId: 'k' });
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
  }),

  fact('holds a lock inside a handler, also while the mill stops', async ({ aMill }) => {
    const mill = aMill();
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
  }),

  fact(
    'waits for functions that hold a lock during a stop, which releases the lock',
    async ({ aMill, opened }) => {
      const store = await opened();
      const mill = aMill();
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
    },
  ),

  fact('aborts signals and rejects waiting calls when the stop timeout is over', async ({ aMill, store }) => {
    const mill = aMill();
    const taken = gate();
    const call = mill.withLock('k', async ({ signal }) => {
      taken.open();
      throw await aborted(signal);
    });
    const failed = failure(call);
    const ask = spyOn(store.locks, 'acquire');
    await taken.promise;
    const asked = ask.calls.length;
    const refused = failure(mill.withLock('k', () => 'never', { wait: '20s' }));
    await until('the second one waits', () => ask.calls.length > asked);
    await mill.stop({ timeout: 0 });
    expect(await failed).toBeInstanceOf(StoppingError);
    expect(await refused).toMatchObject({ code: 'STOPPED' });
    expect(await isFree(mill, 'k')).toBe(true);
  }),

  fact(
    'completes a stop although a function does not end, and renews no lease afterwards',
    async ({ aMill, opened }) => {
      const store = await opened();
      const mill = aMill();
      const renew = spyOn(store.locks, 'renew');
      const holder = await held(mill, 'k', { lease: 500 });
      await mill.stop({ timeout: 0 });
      expect(holder.signal.reason).toBeInstanceOf(StoppingError);
      const renewed = renew.calls.length;
      await until(
        'its lease is over',
        async () => 'fence' in (await store.locks.acquire('k', anOwner(), 60_000)),
      );
      expect(renew.calls.length).toBe(renewed);
      holder.leave();
      expect(await failure(holder.call)).toBeInstanceOf(LeaseLostError);
    },
  ),
]);

export const lockPort: Chapter = chapter({ title: 'the lock port', needs: ['locks'] }, [
  fact('gives an owner that acquires its lock again the same fence and a new lease', async ({ opened }) => {
    const { locks } = await opened();
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
  }),

  fact(
    'renews and releases a lock only for its owner, even if instances have the same name',
    async ({ opened }) => {
      const { locks } = await opened();
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
    },
  ),

  fact('renews an expired lease unless another owner has taken the lock', async ({ opened }) => {
    const { locks } = await opened();
    const me = anOwner('me');
    await locks.acquire('k', me, -1_000);
    expect(await locks.renew('k', me, 60_000)).toBe('renewed');
    expect(await locks.acquire('k', anOwner(), 1)).toEqual({ heldBy: 'me' });
  }),

  fact(
    'gives greater fences after releases and takeovers, even within one millisecond',
    async ({ opened }) => {
      const { locks } = await opened();
      const fences: number[] = [];
      for (let round = 0; round < 20; round += 1) {
        const owner = anOwner();
        const answer = await locks.acquire('k', owner, round % 3 === 0 ? -1 : 60_000);
        fences.push((answer as { fence: number }).fence);
        if (round % 3 !== 0) await locks.release('k', owner);
      }
      for (let n = 1; n < fences.length; n += 1) expect(fences[n]).toBeGreaterThan(fences[n - 1] ?? Infinity);
      expect(fences.every((fence) => Number.isSafeInteger(fence) && fence > 0)).toBe(true);
    },
  ),

  fact('gives a new lock to one of many concurrent owners', async ({ opened }) => {
    const { locks } = await opened();
    for (let round = 0; round < 5; round += 1) {
      const asked = Array.from({ length: 20 }, () => locks.acquire(`new-${round}`, anOwner(), 60_000));
      const answers = await Promise.all(asked);
      expect(answers.filter((answer) => 'fence' in answer)).toHaveLength(1);
    }
  }),
]);
