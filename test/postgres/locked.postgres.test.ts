import { describe, expect, it, onTestFinished } from 'vitest';
import type { JobRecord } from '../../src/core/records/job.js';
import { namesIn } from '../../src/sql/schema/names.js';
import type { PostgresStore } from '../../src/postgres/index.js';
import { aMill, gate, until } from '../support/mills.js';
import { aClaim, aJob, anInstance, done, opened } from '../support/port.js';
import { freshPostgres, rawPool } from '../support/stores.js';

const pool = rawPool();
const retention = () => ({ completed: 1e6, failed: 1e6, cancelled: 1e6 });

/** A store, and a way to hold one of its jobs in an open transaction, as user code might. */
async function withLocks(): Promise<{
  store: PostgresStore;
  schema: string;
  lock: (id: string) => Promise<() => Promise<void>>;
}> {
  const schema = `test_locked_${Math.random().toString(36).slice(2)}`;
  const store = await opened(freshPostgres({ schema }));
  const lock = async (id: string): Promise<() => Promise<void>> => {
    const client = await pool.connect();
    await client.query('begin');
    await client.query(`select from ${namesIn(schema).jobs} where id = $1 for update`, [id]);
    return async () => {
      await client.query('rollback');
      client.release();
    };
  };
  return { store, schema, lock };
}

describe('a job held by an open transaction', () => {
  it('a claim skips a job that a transaction holds', async () => {
    const { store, lock } = await withLocks();
    const [held] = await store.jobs.insert([aJob({ data: 'held' }), aJob({ data: 'free' })]);
    const unlock = await lock(held?.job.id ?? '');
    const { jobs } = await store.jobs.claim(aClaim(anInstance()));
    expect(jobs.map(({ data }) => data)).toEqual(['free']);
    await unlock();
    expect((await store.jobs.claim(aClaim(anInstance()))).jobs.map(({ data }) => data)).toEqual(['held']);
  });

  it('notes and reclaims skip a job that a transaction holds', async () => {
    const { store, lock } = await withLocks();
    await store.jobs.insert([aJob(), aJob()]);
    const instance = anInstance();
    const { jobs } = await store.jobs.claim(aClaim(instance));
    const [held, free] = jobs as [(typeof jobs)[number], (typeof jobs)[number]];
    const unlock = await lock(held.id);
    await store.jobs.note(jobs.map((job) => ({ lease: { ...done(job).lease }, progress: { value: 1 } })));
    const noted = await Promise.all([held.id, free.id].map((id) => store.jobs.get(id)));
    expect(noted.filter((job) => job?.progress === 1)).toHaveLength(1);
    const answers = await store.jobs.settle(
      [held, free].map((job) => done(job, { status: 'pending', set: {}, by: 'reclaimer' })),
    );
    expect(answers).toEqual(['blocked', 'settled']);
    await unlock();
    expect(await store.jobs.settle([done(held, { by: 'reclaimer' })])).toEqual(['settled']);
  });

  it('cancelMany skips a job that a transaction holds, and cancel rejects with the reason', async () => {
    const { store, lock } = await withLocks();
    const inserted = await store.jobs.insert([aJob(), aJob(), aJob()]);
    const [held] = inserted.map(({ job }) => job.id);
    const unlock = await lock(held ?? '');
    const jobs = inserted.map(({ job }) => job);
    expect(await store.jobs.cancelBatch(jobs, retention)).toBe(2);
    await expect(store.jobs.cancel(held ?? '', retention)).rejects.toThrow('held by an open transaction');
    await unlock();
    expect(await store.jobs.cancel(held ?? '', retention)).toMatchObject({ outcome: 'cancelled' });
  });

  it('cancelMany cancels a job whose transaction ends in the meantime', async () => {
    const { store, lock } = await withLocks();
    const [inserted] = await store.jobs.insert([aJob()]);
    const unlock = await lock(inserted?.job.id ?? '');
    const cancelling = store.jobs.cancelBatch([inserted!.job], retention);
    await unlock();
    expect(await cancelling).toBe(1);
  });

  it('a transaction longer than the lease costs no other job its lease', async () => {
    const { store } = await withLocks();
    const mill = aMill(store, { leaseDuration: 2_000 });
    const other = aMill(store, { leaseDuration: 2_000 });
    const [finish, inside] = [gate(), gate()];
    let runs = 0;
    for (const each of [mill, other]) {
      each.job('neighbour', async () => {
        runs += 1;
        await finish.promise;
      });
    }
    mill.job('slow', (job) =>
      mill.withTransaction(async (transaction) => {
        await job.complete({ transaction });
        inside.open();
        await finish.promise;
      }),
    );
    await Promise.all([mill.start(), other.start()]);
    const slow = await mill.enqueue('slow', {});
    const neighbours = await mill.enqueueMany(Array.from({ length: 4 }, () => ({ name: 'neighbour' })));
    await inside.promise;
    await until('all run', () => runs === 4);
    const before = mill.health().lastContactAt;
    await until('two leases have passed', () => {
      const { lastContactAt } = mill.health();
      return Number(lastContactAt) - Number(before) > 4_000;
    });
    finish.open();
    for (const job of [slow, ...neighbours]) await mill.jobs.result(job.id);
    expect(runs).toBe(4);
    expect(await mill.jobs.get(slow.id)).toMatchObject({ status: 'completed', failCount: 0 });
  });

  it.each([
    ['returned', {}],
    // Long enough for its transaction to lock the job first.
    ['ran past its timeout', { timeout: 2_000 }],
  ])('records other outcomes while a transaction holds a job whose handler %s', async (_how, options) => {
    const { store } = await withLocks();
    const mill = aMill(store);
    const retryPolicy = { type: 'fixed', interval: 10 } as const;
    const client = await pool.connect();
    onTestFinished(() => client.release(true));
    const pid = (await client.query<{ pid: number }>('select pg_backend_pid() as pid')).rows[0]?.pid;
    const over = gate();
    mill.job('careless', { retryPolicy, ...options }, async (job) => {
      if (job.attempt > 1) return;
      await client.query('begin');
      await job.complete({ transaction: client });
      // The transaction stays open, and holds the job.
      if ('timeout' in options) await over.promise;
    });
    mill.job('neighbour', () => 'recorded');
    await mill.start();
    const careless = await mill.enqueue('careless', {});
    await until('its outcome waits for the transaction', async () => {
      const waiting = `select from pg_stat_activity where $1 = any(pg_blocking_pids(pid))`;
      return (await pool.query(waiting, [pid])).rowCount === 1;
    });
    for (let n = 0; n < 3; n += 1)
      expect(await mill.jobs.result((await mill.enqueue('neighbour', n)).id)).toBe('recorded');
    await client.query('rollback');
    over.open();
    await mill.jobs.result(careless.id);
    expect(await mill.jobs.get(careless.id)).toMatchObject({ status: 'completed', failCount: 1 });
  });

  it("records other outcomes while a transaction holds a job, and that job's once it is free", async () => {
    const { store, lock } = await withLocks();
    const mill = aMill(store);
    const finish = gate();
    mill.job('held', async () => {
      await finish.promise;
      return 'recorded';
    });
    mill.job('neighbour', (job) => job.data);
    await mill.start();
    const held = await mill.enqueue('held', {});
    await until('it runs', async () => (await mill.jobs.get(held.id))?.status === 'processing');
    const unlock = await lock(held.id);
    finish.open();
    for (let n = 0; n < 5; n += 1)
      expect(await mill.jobs.result((await mill.enqueue('neighbour', n)).id)).toBe(n);
    expect((await mill.jobs.get(held.id))?.status).toBe('processing');
    await unlock();
    expect(await mill.jobs.result(held.id)).toBe('recorded');
    expect(await mill.jobs.get(held.id)).toMatchObject({ failCount: 0 });
  });

  it('settle answers "blocked" for a job that a transaction holds, and writes the rest of the batch', async () => {
    const { store, lock } = await withLocks();
    await store.jobs.insert([aJob(), aJob(), aJob()]);
    const { jobs } = await store.jobs.claim(aClaim(anInstance()));
    const [held, free, gone] = jobs as [JobRecord, JobRecord, JobRecord];
    const unlock = await lock(held.id);
    expect(await store.jobs.settle([done(held), done(free), done(gone, { remove: true })])).toEqual([
      'blocked',
      'settled',
      'settled',
    ]);
    expect(await store.jobs.get(gone.id)).toBeUndefined();
    await unlock();
    expect(await store.jobs.settle([done(held)])).toEqual(['settled']);
  });

  it('settle answers "blocked" for a locked table, also if the role has its own lock_timeout', async () => {
    const limited = rawPool({ options: '-c lock_timeout=50' });
    const schema = `test_locked_${Math.random().toString(36).slice(2)}`;
    const store = await opened(freshPostgres({ schema, pool: limited }));
    await store.jobs.insert([aJob(), aJob()]);
    const { jobs } = await store.jobs.claim(aClaim(anInstance()));
    const client = await pool.connect();
    await client.query('begin');
    await client.query(`lock table ${namesIn(schema).jobs} in share mode`);
    expect(await store.jobs.settle(jobs.map((job) => done(job)))).toEqual(['blocked', 'blocked']);
    await client.query('rollback');
    client.release();
    expect(await store.jobs.settle(jobs.map((job) => done(job)))).toEqual(['settled', 'settled']);
  });

  it('fence skips an instance whose row a transaction holds', async () => {
    const { store, schema } = await withLocks();
    const dead = [anInstance(), anInstance()];
    const about = { names: [], tasks: [], policies: {}, host: 'h', pid: 1, leaseMs: 0 };
    for (const instance of dead) await store.instances.register({ ...instance, ...about });
    const client = await pool.connect();
    await client.query('begin');
    await client.query(`select from ${namesIn(schema).instances} where life = $1 for update`, [
      dead[0]?.life,
    ]);
    expect(await store.instances.fence(dead[0]!)).toBeUndefined();
    expect(await store.instances.fence(dead[1]!)).toEqual({ policies: {} });
    await client.query('rollback');
    client.release();
    expect(await store.instances.fence(dead[0]!)).toEqual({ policies: {} });
  });

  it('stop() does not wait for a job that a transaction holds, and logs its outcome as unrecorded', async () => {
    const { store, lock } = await withLocks();
    const lines: string[] = [];
    const line = (_fields: object, message: string): void => void lines.push(message);
    const mill = aMill(store, { logger: { debug: line, info: line, warn: line, error: line } });
    const finish = gate();
    mill.job('x', () => finish.promise);
    await mill.start();
    const job = await mill.enqueue('x', {});
    await until('it runs', async () => (await mill.jobs.get(job.id))?.status === 'processing');
    const unlock = await lock(job.id);
    finish.open();
    await mill.stop();
    expect(lines.join()).toMatch(/1 outcomes? could not be recorded/u);
    await unlock();
  });
});
