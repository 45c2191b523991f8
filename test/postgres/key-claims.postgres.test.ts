import pg from 'pg';
import { describe, expect, inject, it, onTestFinished } from 'vitest';
import type { JobRecord } from '../../src/core/records/job.js';
import { namesIn } from '../../src/sql/schema/names.js';
import type { KeyRule, Store } from '../../src/store/port.js';
import { aClaim, aJob, anInstance, done, opened } from '../support/port.js';
import { freshPostgres, freshSchema, rawPool } from '../support/stores.js';

const pool = rawPool();
const ONE: KeyRule = { concurrency: 1 };

async function claimed(store: Store, keys: KeyRule = ONE, max = 20): Promise<readonly JobRecord[]> {
  const limits = new Map([['work', { max, rank: 0, of: 1, keys }]]);
  return (await store.jobs.claim(aClaim(anInstance(), { limits, total: max }))).jobs;
}

const keyed = (limitKey: string, data: unknown = limitKey) =>
  aJob({ limitKey, data, nextRunAt: new Date(Date.now() - 1_000) });

const keysOf = (jobs: readonly JobRecord[]): unknown[] => jobs.map(({ limitKey }) => limitKey).sort();

describe('claims by keys on PostgreSQL', () => {
  it('a transaction that stays open with jobs of a key holds up neither producers of that key nor claims', async () => {
    const schema = freshSchema();
    const store = await opened(freshPostgres({ schema }));
    const client = await pool.connect();
    try {
      await client.query('begin');
      await store.jobs.insert([keyed('a', 'in the transaction')], client);
      await store.jobs.insert([keyed('a', 'beside it')]);
      const [beside] = await claimed(store);
      expect(beside?.data).toBe('beside it');
      await store.jobs.settle(beside === undefined ? [] : [done(beside)]);
      expect(await claimed(store)).toEqual([]);
      await client.query('commit');
      expect((await claimed(store)).map(({ data }) => data)).toEqual(['in the transaction']);
    } finally {
      client.release(true);
    }
  });

  it('a transaction that stays open after it has completed a job of a key holds up other keys of its name no more', async () => {
    const schema = freshSchema();
    const store = await opened(freshPostgres({ schema }));
    await store.jobs.insert([keyed('a'), keyed('a'), keyed('b'), keyed('b')]);
    const jobs = await claimed(store);
    const [a, b] = ['a', 'b'].map((key) => jobs.find(({ limitKey }) => limitKey === key));
    if (a === undefined || b === undefined) throw new Error('both keys should have run');
    const client = await pool.connect();
    try {
      await client.query('begin');
      expect(await store.jobs.settleIn(done(a), client)).toBe('settled');
      await store.jobs.settle([done(b)]);
      await store.jobs.insert([keyed('a'), keyed('c')]);
      expect(keysOf(await claimed(store))).toEqual(['b', 'c']);
      await client.query('rollback');
      expect(await claimed(store)).toEqual([]);
      expect(await store.jobs.settle([done(a)])).toEqual(['settled']);
      expect(keysOf(await claimed(store))).toEqual(['a']);
    } finally {
      client.release(true);
    }
  });

  it('a claim that gives a key a second turn takes other jobs of it, and counts each start once', async () => {
    const store = await opened(freshPostgres());
    const burst: KeyRule = { concurrency: 9, rate: { limit: 9, perMs: 3_600_000, burst: 9 } };
    await store.jobs.insert([keyed('a'), ...Array.from({ length: 12 }, (_, n) => keyed('b', n))]);
    const jobs = await claimed(store, burst, 10);
    expect(keysOf(jobs)).toEqual(['a', ...Array.from({ length: 9 }, () => 'b')]);
    expect(new Set(jobs.map(({ id }) => id)).size).toBe(10);
    const plain = new Map([['work', { max: 20, rank: 0, of: 1, keys: burst }]]);
    await store.jobs.settle(jobs.map((job) => done(job)));
    // The rate of b is used up by its nine starts, and not before.
    expect((await store.jobs.claim(aClaim(anInstance(), { limits: plain, total: 20 }))).jobs).toEqual([]);
  });

  it('jobs that were inserted by hand, with a key and without one, are offered at once', async () => {
    const schema = freshSchema();
    const store = await opened(freshPostgres({ schema }));
    await pool.query(
      `insert into ${namesIn(schema).jobs} (name, limit_key) values ('work', 'a'), ('work', null)`,
    );
    expect(keysOf(await claimed(store))).toEqual(['', 'a']);
  });

  it('a key is free when a program that knows no keys claims and ends its job', async () => {
    const schema = freshSchema();
    const store = await opened(freshPostgres({ schema }));
    await store.jobs.insert([keyed('a'), keyed('a')]);
    const plain = new Map([['work', { max: 1, rank: 0, of: 1 }]]);
    const { jobs } = await store.jobs.claim(aClaim(anInstance(), { limits: plain, total: 1 }));
    expect(await claimed(store)).toEqual([]);
    await pool.query(`update ${namesIn(schema).jobs} set status = 'completed' where id = $1`, [jobs[0]?.id]);
    expect(await claimed(store)).toHaveLength(1);
  });

  it('a key that is not offered although it could be is found by a repair', async () => {
    const schema = freshSchema();
    const store = await opened(freshPostgres({ schema }));
    await store.jobs.insert([keyed('lost'), keyed('asleep'), keyed('busy'), keyed('busy')]);
    const jobs = await claimed(store);
    await store.jobs.settle(jobs.filter(({ limitKey }) => limitKey !== 'busy').map((job) => done(job)));
    await store.jobs.insert([keyed('lost'), keyed('asleep')]);
    const { table } = namesIn(schema);
    await pool.query(`delete from ${table('key_wakes')}`);
    await pool.query(
      `insert into ${table('job_keys')} (name, key, rule, at) values ('work', 'asleep', 'x', 'infinity')`,
    );
    await pool.query(
      `update ${table('job_keys')} set rule = (select rule from ${table('job_keys')} where key = 'busy')`,
    );
    expect(await claimed(store)).toEqual([]);
    expect(await store.limits.repairKeys?.({ kind: 'job', name: 'work' }, ONE)).toBe(2);
    expect(await store.limits.repairKeys?.({ kind: 'job', name: 'work' }, ONE)).toBe(0);
    expect(keysOf(await claimed(store))).toEqual(['asleep', 'lost']);
  });

  it('keys that were looked at by another rule are looked at again', async () => {
    const store = await opened(freshPostgres());
    await store.jobs.insert([keyed('a'), keyed('a'), keyed('a')]);
    expect(await claimed(store, ONE)).toHaveLength(1);
    expect(await claimed(store, ONE)).toHaveLength(0);
    expect(await claimed(store, { concurrency: 2 })).toHaveLength(1);
    expect(await claimed(store, {})).toHaveLength(1);
  });

  it('names with and without keys in one claim share its places', async () => {
    const store = await opened(freshPostgres());
    await store.jobs.insert([
      ...Array.from({ length: 5 }, () => keyed('a')),
      ...Array.from({ length: 5 }, () => aJob({ name: 'plain' })),
    ]);
    const limits = new Map([
      ['work', { max: 10, rank: 0, of: 1, keys: { concurrency: 3 } }],
      ['plain', { max: 10, rank: 0, of: 1 }],
    ]);
    const first = await store.jobs.claim(aClaim(anInstance(), { limits, total: 4 }));
    const count = (name: string): number => first.jobs.filter((job) => job.name === name).length;
    expect([count('work'), count('plain')]).toEqual([2, 2]);
    expect(first.more).toBe(true);
    const second = await store.jobs.claim(aClaim(anInstance(), { limits, total: 10 }));
    expect(second.jobs.map(({ name }) => name).sort()).toEqual(['plain', 'plain', 'plain', 'work']);
    expect(second.heldUp?.get('work')).toBeNull();
  });

  it('limits hold in a database whose default isolation is serializable', async () => {
    const own = new pg.Pool({
      connectionString: inject('postgresUrl'),
      max: 6,
      options: '-c default_transaction_isolation=serializable',
    });
    const store = freshPostgres({ pool: own });
    const holder = {};
    try {
      await store.acquire(holder);
      await store.jobs.insert(['a', 'b'].flatMap((key) => [keyed(key), keyed(key)]));
      const jobs = (await Promise.all([1, 2, 3].map(() => claimed(store)))).flat();
      expect(keysOf(jobs)).toEqual(['a', 'b']);
    } finally {
      await store.release(holder);
      await own.end();
    }
  });

  it('no key is lost or runs twice while claimers are killed at any moment', async () => {
    const schema = freshSchema();
    const store = await opened(freshPostgres({ schema }));
    const keys = ['a', 'b', 'c', 'd', 'e'];
    const COUNT = 150;
    await store.jobs.insert(Array.from({ length: COUNT }, (_one, n) => keyed(keys[n % 5] ?? '', n)));
    let over = false;
    let killed = 0;
    // A machine that is slow enough would see each claim killed, so the kills end at some point.
    const kill = async (): Promise<void> => {
      while (!over && killed < 200) {
        const { rowCount } = await pool.query(
          `select pg_terminate_backend(pid) from pg_stat_activity
          where pid <> pg_backend_pid() and query like '%' || $1 || '%' and random() < 0.2`,
          [schema],
        );
        killed += rowCount ?? 0;
      }
    };
    const killing = kill();
    onTestFinished(async () => {
      over = true;
      await killing;
    });
    const most = new Map<string, number>();
    const run = async (): Promise<void> => {
      const own = await opened(freshPostgres({ schema, migrate: false })).catch(() => undefined);
      while (own !== undefined && !over) {
        const instance = anInstance();
        const limits = new Map([['work', { max: 3, rank: 0, of: 1, keys: { concurrency: 2 } }]]);
        const request = aClaim(instance, { limits, total: 3 });
        // What a lost answer took is found by its token, as the claim loop does.
        const jobs = await own.jobs.claim(request).then(
          (answer) => answer.jobs,
          () => found(() => own.jobs.claimedUnder(instance, request.token)),
        );
        const { rows } = await found(() =>
          pool.query<{ key: string; count: number }>(`select limit_key as key, count(*)::integer as count
            from ${namesIn(schema).jobs} where status = 'processing' group by 1`),
        );
        for (const { key, count } of rows) most.set(key, Math.max(most.get(key) ?? 0, count));
        if (jobs.length > 0) await found(() => own.jobs.settle(jobs.map((job) => done(job))));
        over ||= (await found(() => own.jobs.count({ status: ['completed'] }))) === COUNT;
      }
    };
    await Promise.all([run(), run(), run()]);
    await killing;
    expect(killed).toBeGreaterThan(0);
    expect(await store.jobs.count({ status: ['completed'] })).toBe(COUNT);
    expect(Math.max(...most.values())).toBeLessThanOrEqual(2);
  }, 180_000);
});

/** Repeats a call until it has an answer. */
async function found<T>(call: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await call();
    } catch {
      await new Promise((resolve) => setImmediate(resolve));
    }
  }
}
