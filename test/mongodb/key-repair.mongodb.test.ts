import type { AbstractCursor, Collection, Db } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { mongodb, type MongodbStore } from '../../src/mongodb/index.js';
import { collectionOptions, type Mongo } from '../../src/mongodb/context.js';
import { checkPermits, type SeenKey } from '../../src/mongodb/limits/keys/permits.js';
import { keyedJobs } from '../../src/mongodb/jobs/claim/keyed.js';
import { repairKeys } from '../../src/mongodb/limits/keys/repair.js';
import { memory } from '../../src/memory/index.js';
import { orderOf } from '../../src/core/records/limit-order.js';
import type { JobRecord } from '../../src/core/records/job.js';
import type { KeyRule, NewJob, Store } from '../../src/store/port.js';
import { aClaim, aJob, anInstance, done } from '../support/port.js';
import { freshUri, rawClient } from '../support/stores.js';

const ONE: KeyRule = { concurrency: 1 };
const LONG_AGO = new Date(Date.now() - 60_000);
const KEEP = () => ({ completed: 1e9, failed: 1e9, cancelled: 1e9 });

function keyed(limitKey: string, data: unknown, dueMs = 1_000, fields: Partial<NewJob> = {}): NewJob {
  const at = new Date(Date.now() - dueMs);
  const limitOrder = orderOf(at.getTime(), Date.now());
  return aJob({ limitKey, data, nextRunAt: at, limitOrder, ...fields });
}

async function claimBy(store: Store, keys: KeyRule, max = 5): Promise<readonly JobRecord[]> {
  const limits = new Map([['work', { max, rank: 0, of: 1, keys }]]);
  return (await store.jobs.claim(aClaim(anInstance(), { limits, total: max }))).jobs;
}

async function opened(): Promise<{
  readonly stores: readonly [MongodbStore, MongodbStore];
  readonly db: Db;
  readonly close: () => Promise<void>;
}> {
  const uri = freshUri();
  const stores = [mongodb({ uri }), mongodb({ uri })] as const;
  const holder = {};
  await Promise.all(stores.map((store) => store.acquire(holder)));
  const db = rawClient(uri).db();
  const close = async (): Promise<void> => {
    await db.dropDatabase();
    await Promise.all(stores.map((store) => store.release(holder)));
  };
  return { stores, db, close };
}

async function permitsOf(db: Db): Promise<readonly unknown[]> {
  const keys = await db
    .collection<{ readonly permits: readonly unknown[] }>('_tidemill_globals')
    .find({ kind: 'key' })
    .toArray();
  return keys.flatMap(({ permits }) => permits);
}

describe('keys after a crash between two writes on MongoDB', () => {
  it('gives a key on when its claimer died between its permit and its write of the job', async () => {
    const { stores, db, close } = await opened();
    const [dead, other] = stores;
    await dead.jobs.insert([keyed('a', 1), keyed('a', 2)]);
    expect(await claimBy(dead, ONE)).toHaveLength(1);
    // As if the write of the job had never come.
    const unclaimed = { status: 'pending', leaseToken: null, claimedBy: null };
    await db.collection('tidemill_jobs').updateMany({ status: 'processing' }, { $set: unclaimed });
    expect(await claimBy(other, ONE)).toEqual([]);
    await other.limits.repairKeys?.({ kind: 'job', name: 'work' }, ONE);
    // It may still be on its way: the end of its permit has not passed for long.
    expect(await claimBy(other, ONE)).toEqual([]);
    await db
      .collection('_tidemill_globals')
      .updateMany({ kind: 'key' }, { $set: { 'permits.0.until': LONG_AGO, check: LONG_AGO, at: LONG_AGO } });
    // The claim that meets the key compares its permits with the jobs, and the next one takes a job.
    expect(await claimBy(other, ONE)).toEqual([]);
    expect(await claimBy(other, ONE)).toHaveLength(1);
    expect(await claimBy(other, ONE)).toEqual([]);
    await close();
  });

  it('repairs a key whose job was settled by a process that died before it freed the key', async () => {
    const { stores, db, close } = await opened();
    const [dead, other] = stores;
    await dead.jobs.insert([keyed('a', 1), keyed('a', 2)]);
    expect(await claimBy(dead, ONE)).toHaveLength(1);
    await db
      .collection('tidemill_jobs')
      .updateMany({ status: 'processing' }, { $set: { status: 'completed' } });
    await db
      .collection('_tidemill_globals')
      .updateMany({ kind: 'key' }, { $set: { 'permits.0.until': LONG_AGO, check: null, at: null } });
    expect(await claimBy(other, ONE)).toEqual([]);
    await other.limits.repairKeys?.({ kind: 'job', name: 'work' }, ONE);
    expect(await claimBy(other, ONE)).toHaveLength(1);
    await close();
  });

  it('keeps the permit of a job that runs, however old it is', async () => {
    const { stores, db, close } = await opened();
    const [one, other] = stores;
    await one.jobs.insert([keyed('a', 1), keyed('a', 2)]);
    const running = await claimBy(one, ONE);
    await db
      .collection('_tidemill_globals')
      .updateMany({ kind: 'key' }, { $set: { 'permits.0.until': LONG_AGO, check: LONG_AGO, at: LONG_AGO } });
    await other.limits.repairKeys?.({ kind: 'job', name: 'work' }, ONE);
    for (let round = 0; round < 3; round += 1) expect(await claimBy(other, ONE)).toEqual([]);
    // A settlement that is repeated after a lost answer frees nothing of the next attempt.
    await one.jobs.settle(running.map((job) => done(job)));
    expect(await claimBy(other, ONE)).toHaveLength(1);
    await one.jobs.settle(running.map((job) => done(job)));
    expect(await claimBy(other, ONE)).toEqual([]);
    await close();
  });

  it('finds jobs whose keys were never marked, and counts those that ran before', async () => {
    const { stores, db, close } = await opened();
    const [one] = stores;
    await one.jobs.insert([keyed('a', 1), keyed('a', 2), keyed('b', 3)]);
    const [first] = (await one.jobs.claim(aClaim(anInstance(), { max: 1 }))).jobs;
    await db.collection('_tidemill_globals').deleteMany({ kind: 'key' });
    expect(await claimBy(one, ONE)).toEqual([]);
    expect(await one.limits.repairKeys?.({ kind: 'job', name: 'work' }, ONE)).toBeGreaterThan(0);
    const keys = (await claimBy(one, ONE)).map(({ limitKey }) => limitKey);
    expect([...keys, first?.limitKey].sort()).toEqual(['a', 'b']);
    await close();
  });

  it('offers the key of a job that was enqueued in a transaction once that has committed', async () => {
    const { stores, close } = await opened();
    const [store] = stores;
    await store.transaction(async (session) => {
      await store.jobs.insert([keyed('a', 1)], session);
    });
    await expect.poll(() => claimBy(store, ONE), { timeout: 10_000 }).toHaveLength(1);
    await close();
  });
});

type Step = () => Promise<unknown>;

/** A collection after whose first read by `method` the step happens, before the reader sees the result. */
function interrupted(
  collection: Collection,
  method: 'find' | 'aggregate',
  step: Step | undefined,
): Collection {
  let next = step;
  return new Proxy(collection, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== 'function') return value;
      if (name !== method) return value.bind(target) as unknown;
      return (...args: readonly unknown[]): unknown => {
        const cursor = value.apply(target, args) as AbstractCursor;
        const toArray = cursor.toArray.bind(cursor);
        cursor.toArray = async () => {
          const rows: unknown[] = await toArray();
          const due = next;
          next = undefined;
          await due?.();
          return rows;
        };
        return cursor;
      };
    },
  });
}

/** What the repair needs of a store; the steps happen between its reads. */
function mongoOf(db: Db, steps: { readonly afterKeys?: Step; readonly afterJobs?: Step } = {}): Mongo {
  const of = (name: string): Collection => db.collection(name, collectionOptions({ w: 'majority' }));
  return {
    globals: interrupted(of('_tidemill_globals'), 'aggregate', steps.afterKeys),
    jobs: interrupted(of('tidemill_jobs'), 'find', steps.afterJobs),
  } as unknown as Mongo;
}

describe('keys of jobs that end or start during a repair on MongoDB', () => {
  it('a job that was claimed and settled during a repair leaves no permit', async () => {
    const { stores, db, close } = await opened();
    const [store] = stores;
    await store.jobs.insert([keyed('a', 1), keyed('a', 2)]);
    let running: readonly JobRecord[] = [];
    const mongo = mongoOf(db, {
      afterKeys: async () => (running = await claimBy(store, ONE)),
      afterJobs: () => store.jobs.settle(running.map((job) => done(job))),
    });
    await repairKeys(mongo, keyedJobs(mongo, 'work'), ONE);
    expect(running).toHaveLength(1);
    expect(await permitsOf(db)).toEqual([]);
    expect(await claimBy(store, ONE)).toHaveLength(1);
    await close();
  });

  it('a job that ran without a permit and was settled during a repair leaves none', async () => {
    const { stores, db, close } = await opened();
    const [store] = stores;
    await store.jobs.insert([keyed('a', 1)]);
    const running = await claimBy(store, {});
    await store.jobs.insert([keyed('a', 2)]);
    const afterJobs = (): Promise<unknown> => store.jobs.settle(running.map((job) => done(job)));
    const mongo = mongoOf(db, { afterJobs });
    await repairKeys(mongo, keyedJobs(mongo, 'work'), ONE);
    expect(await permitsOf(db)).toEqual([]);
    expect(await claimBy(store, ONE)).toHaveLength(1);
    await close();
  });

  it('a job that is claimed during a repair keeps the one permit of its claim', async () => {
    const { stores, db, close } = await opened();
    const [store] = stores;
    await store.jobs.insert([keyed('a', 1), keyed('a', 2)]);
    let running: readonly JobRecord[] = [];
    const afterKeys = async (): Promise<unknown> => (running = await claimBy(store, { concurrency: 2 }, 1));
    const mongo = mongoOf(db, { afterKeys });
    await repairKeys(mongo, keyedJobs(mongo, 'work'), { concurrency: 2 });
    expect(running).toHaveLength(1);
    expect(await permitsOf(db)).toHaveLength(1);
    expect(await claimBy(store, { concurrency: 2 })).toHaveLength(1);
    await close();
  });

  it('a comparison of old permits leaves the time at which newer ones are compared', async () => {
    const { stores, db, close } = await opened();
    const [store] = stores;
    const rule: KeyRule = { concurrency: 2 };
    await store.jobs.insert([keyed('a', 1), keyed('a', 2)]);
    expect(await claimBy(store, rule, 1)).toHaveLength(1);
    const keys = db.collection<SeenKey>('_tidemill_globals');
    const [old] = await keys.find({ kind: 'key' }).toArray();
    if (old === undefined) throw new Error('There is no key.');
    expect(await claimBy(store, rule, 1)).toHaveLength(1);
    const full = await keys.findOne({ kind: 'key' });
    expect(full).toMatchObject({ full: true, check: expect.any(Date) as Date });
    // By the time of this read, the write of the first claim has ended for certain.
    const mongo = mongoOf(db);
    const seen = new Date(Date.now() + 3_600_000);
    await checkPermits(mongo, keyedJobs(mongo, 'work'), [{ ...old, seen }]);
    expect(await keys.findOne({ kind: 'key' })).toEqual(full);
    await close();
  });
});

describe('keys of jobs that run without permits on MongoDB', () => {
  it.each<readonly [string, KeyRule]>([
    ['turns only', {}],
    ['a rate', { rate: { limit: 1_000, perMs: 1_000, burst: 100 } }],
  ])('a new limit counts what was started by %s', async (_what, before) => {
    const { stores, close } = await opened();
    const [store, other] = stores;
    const some = (count: number): NewJob[] => Array.from({ length: count }, (_none, n) => keyed('a', n));
    await store.jobs.insert(some(3));
    const running = await claimBy(store, before);
    expect(running).toHaveLength(3);
    await store.jobs.insert(some(3));
    const after: KeyRule = { ...before, concurrency: 2 };
    expect(await claimBy(other, after)).toEqual([]);
    await store.jobs.settle(running.slice(0, 1).map((job) => done(job)));
    expect(await claimBy(other, after)).toEqual([]);
    await store.jobs.settle(running.slice(1, 2).map((job) => done(job)));
    expect(await claimBy(other, after)).toHaveLength(1);
    expect(await claimBy(other, after)).toEqual([]);
    await close();
  });

  it('the first limit of a name counts jobs whose key nothing has noted', async () => {
    const { stores, close } = await opened();
    const [store, other] = stores;
    await store.jobs.insert([keyed('a', 1), keyed('a', 2)]);
    expect((await store.jobs.claim(aClaim(anInstance(), { max: 1 }))).jobs).toHaveLength(1);
    expect(await claimBy(other, ONE)).toEqual([]);
    await close();
  });

  it('a retry offers its key again after that was forgotten', async () => {
    const { stores, db, close } = await opened();
    const [store, other] = stores;
    await store.jobs.insert([keyed('a', 1)]);
    const running = await claimBy(store, {});
    expect(await claimBy(other, {})).toEqual([]);
    await other.limits.repairKeys?.({ kind: 'job', name: 'work' }, {});
    expect(await db.collection('_tidemill_globals').countDocuments({ kind: 'key' })).toBe(0);
    const again = { status: 'pending', set: { nextRunAt: LONG_AGO, failCount: 1 } } as const;
    await store.jobs.settle(running.map((job) => done(job, again)));
    expect(await claimBy(other, {})).toHaveLength(1);
    await close();
  });
});

/** Pseudo-random numbers that are the same in every run. */
function diceOf(seed: number): (sides: number) => number {
  let state = seed * 2_654_435_761 + 1;
  return (sides) => {
    state = (state * 1_103_515_245 + 12_345) % 2_147_483_648;
    return Math.floor(state / 65_536) % sides;
  };
}

/** One store, driven by the ids of jobs. */
class Driven {
  readonly running = new Map<string, JobRecord>();
  readonly #store: Store;
  readonly #rule: KeyRule;

  constructor(store: Store, rule: KeyRule) {
    this.#store = store;
    this.#rule = rule;
  }

  get jobs(): Store['jobs'] {
    return this.#store.jobs;
  }

  /** Takes all that can start; returns the ids. */
  async claimAll(): Promise<string[]> {
    const taken: JobRecord[] = [];
    for (let empty = 0; empty < 2;) {
      const jobs = await claimBy(this.#store, this.#rule, 20);
      taken.push(...jobs);
      empty = jobs.length === 0 ? empty + 1 : 0;
    }
    for (const job of taken) this.running.set(job.id, job);
    return taken.map(({ id }) => id).sort();
  }

  async settle(id: string, fields: Parameters<typeof done>[1]): Promise<void> {
    const job = this.running.get(id);
    this.running.delete(id);
    if (job !== undefined) await this.jobs.settle([done(job, fields)]);
  }
}

const RULES: readonly (readonly [string, KeyRule])[] = [
  ['concurrency 1', ONE],
  ['concurrency 2', { concurrency: 2 }],
  ['an order', { order: 'fifo', whileRetrying: 'hold' }],
  ['an order that lets others pass', { order: 'fifo', whileRetrying: 'pass' }],
];

describe('keys on MongoDB and in memory', () => {
  it.each(RULES)('offer the same jobs after any sequence of steps by %s', async (_name, rule) => {
    const { stores, close } = await opened();
    for (let seed = 1; seed <= 4; seed += 1) {
      const dice = diceOf(seed);
      const model = memory();
      const pair = [new Driven(model, rule), new Driven(stores[0], rule)] as const;
      const ids: string[] = [];
      for (let step = 0; step < 40; step += 1) {
        const id = ids[dice(Math.max(1, ids.length))] ?? '';
        const at = new Date(Date.now() - 1_000_000 + step * 100);
        const action = dice(8);
        if (action <= 2) {
          const next = `seed-${String(seed)}-${String(step)}`;
          ids.push(next);
          const job = keyed(['a', 'b', 'c'][dice(3)] ?? '', step, 0, {
            id: next,
            ownId: true,
            nextRunAt: at,
            limitOrder: orderOf(at.getTime(), at.getTime()),
            priority: dice(3),
          });
          for (const one of pair) await one.jobs.insert([job]);
        } else if (action === 3) {
          const [expected, actual] = [await pair[0].claimAll(), await pair[1].claimAll()];
          expect(actual, `seed ${String(seed)}, step ${String(step)}`).toEqual(expected);
        } else {
          const until = dice(2) === 0 ? at : new Date(Date.now() + 1e7 + step);
          for (const one of pair) {
            if (action === 4) await one.settle(id, {});
            if (action === 5)
              await one.settle(id, { status: 'pending', set: { nextRunAt: until, failCount: 1 } });
            if (action === 6) await one.jobs.cancel(id, KEEP);
            if (action === 7) {
              await one.settle(id, { status: 'failed' });
              await one.jobs.retry(id, at);
            }
          }
        }
      }
      const [expected, actual] = [await pair[0].claimAll(), await pair[1].claimAll()];
      expect(actual, `end of seed ${String(seed)}`).toEqual(expected);
      for (const one of pair) for (const id of [...one.running.keys()]) await one.settle(id, {});
      for (const one of pair) for (const id of ids) await one.jobs.remove(id);
    }
    await close();
  });
});
