import { describe, expect, it, vi } from 'vitest';
import { LeaseClock } from '../../src/embedded/lease-clock.js';
import { embedded, type Queryable } from '../../src/embedded/index.js';
import { namesIn } from '../../src/sql/schema/names.js';
import { aMill, gate, rarely, until } from '../support/mills.js';
import { aClaim, aJob, anInstance, done, opened } from '../support/port.js';
import { insertion } from '../../src/testing/conformance/rest.js';
import { freshEmbedded, sharedEmbedded, useEmbedded } from '../support/stores.js';

useEmbedded();

describe('the single connection of an embedded store', () => {
  it('enqueue throws inside an open transaction that it was not given', async () => {
    const mill = aMill(freshEmbedded());
    const forgotten = mill.withTransaction(async (transaction) => {
      await mill.enqueue('x', 1, { transaction });
      await mill.enqueue('x', 2);
    });
    await expect(forgotten).rejects.toThrow('Pass `transaction` to every call inside withTransaction');
    expect(await mill.jobs.count()).toBe(0);
  });

  it("enqueue throws inside an open transaction even if it would join another caller's write", async () => {
    const store = freshEmbedded();
    const mill = aMill(store);
    const writes = vi.spyOn(store.jobs, insertion(store));
    const [open, full] = [gate(), gate()];
    const forgotten = mill.withTransaction(async () => {
      open.open();
      await full.promise;
      await mill.enqueue('x', 'forgotten');
    });
    await open.promise;
    // As many writes as may be under way: they wait for the transaction, and the next caller joins the batch after
    // them.
    const outside: Promise<unknown>[] = [];
    for (let n = 1; n <= 2; n += 1) {
      outside.push(mill.enqueue('x', n));
      await until('its write is under way', () => writes.mock.calls.length === n);
    }
    outside.push(mill.enqueue('x', 3));
    full.open();
    await expect(forgotten).rejects.toThrow('Pass `transaction` to every call inside withTransaction');
    await Promise.all(outside);
    expect(await mill.jobs.count()).toBe(3);
  });

  it('jobs.result throws inside an open transaction even if another caller waits for the same job', async () => {
    const mill = aMill(freshEmbedded());
    const job = await mill.enqueue('x', 1);
    const waiting = mill.jobs.result(job.id).catch((error: unknown) => error);
    const forgotten = mill.withTransaction(() => mill.jobs.result(job.id));
    await expect(forgotten).rejects.toThrow('Pass `transaction` to every call inside withTransaction');
    await mill.jobs.cancel(job.id);
    expect(await waiting).toMatchObject({ message: expect.stringContaining('cancelled') as string });
  });

  it('a call that outlives the transaction it was started in succeeds', async () => {
    const mill = aMill(freshEmbedded());
    const over = gate();
    let later: Promise<unknown> | undefined;
    await mill.withTransaction(async (transaction) => {
      await mill.enqueue('x', 1, { transaction });
      later = over.promise.then(() => mill.enqueue('x', 2));
    });
    over.open();
    await later;
    expect(await mill.jobs.count()).toBe(2);
  });

  it("enqueue joins a transaction of the user's own PGlite", async () => {
    const mill = aMill(freshEmbedded());
    // Opening the store inside the transaction would wait for it.
    await mill.jobs.count();
    const job = await sharedEmbedded().transaction((transaction) =>
      mill.enqueue('x', { at: new Date(7) }, { transaction: transaction satisfies Queryable }),
    );
    expect((await mill.jobs.get(job.id))?.data).toEqual({ at: new Date(7) });
    await expect(mill.enqueue('x', 1, { transaction: sharedEmbedded() })).rejects.toThrow(
      'is not a transaction',
    );
  });

  it("opening the store inside a transaction of the user's own PGlite throws", async () => {
    const mill = aMill(freshEmbedded());
    const early = sharedEmbedded().transaction((transaction) => mill.enqueue('x', 1, { transaction }));
    await expect(early).rejects.toThrow(/a transaction of your own is open.*make one before it/su);
    await mill.enqueue('x', 2);
    expect(await mill.jobs.count()).toBe(1);
  });

  it('an enqueue wakes the other mills of the process', async () => {
    const store = freshEmbedded();
    const worker = aMill(store, { pollInterval: rarely });
    const producer = aMill(store);
    worker.job('x', () => 'ran');
    await worker.start();
    await until('it listens', () => worker.health().wakeUp === 'stream');
    expect(await producer.jobs.result((await producer.enqueue('x', {})).id, { timeout: '45s' })).toBe('ran');
  });
});

describe('vacuum of an embedded store', () => {
  it('a sweep vacuums, so that dead rows do not accumulate', async () => {
    const schema = `test_vacuum_${Math.random().toString(36).slice(2)}`;
    const store = await opened(freshEmbedded({ schema }));
    const size = async (): Promise<number> => {
      const text = `select pg_relation_size($1::text::regclass)::integer as bytes`;
      const { rows } = await sharedEmbedded().query<{ bytes: number }>(text, [namesIn(schema).jobs]);
      return rows[0]?.bytes ?? 0;
    };
    const round = async (): Promise<number> => {
      await store.jobs.insert(Array.from({ length: 200 }, () => aJob()));
      const { jobs } = await store.jobs.claim(aClaim(anInstance(), { max: 200 }));
      await store.jobs.settle(jobs.map((job) => done(job, { remove: true })));
      await store.jobs.sweep?.(new Date());
      return size();
    };
    const first = await round();
    for (let rounds = 0; rounds < 10; rounds += 1) await round();
    expect(await size()).toBeLessThanOrEqual(2 * first);
  });
});

describe('LeaseClock', () => {
  it('the lease clock stops while the process is suspended', () => {
    const clock = new LeaseClock();
    const before = clock.now();
    const end = performance.now() + 1_500;
    while (performance.now() < end);
    expect(clock.now() - before).toBeLessThanOrEqual(1_001);
  });
});

it('embedded() rejects bad options with the fix', () => {
  const database = sharedEmbedded();
  expect(() => embedded({ dir: 'x', database })).toThrow('pass either dir or database, not both');
  expect(() => embedded({ database: {} as never })).toThrow('database must be a PGlite');
  expect(() => embedded({ folder: 'x' } as never)).toThrow('unknown option "folder"');
  expect(() => embedded({ dir: '' })).toThrow('dir must be a non-empty string');
});
