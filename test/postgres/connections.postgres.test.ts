import type { Socket } from 'node:net';
import pg from 'pg';
import { describe, expect, inject, it, onTestFinished } from 'vitest';
import type { Tidemill } from '../../src/index.js';
import { besideOf } from '../../src/postgres/beside.js';
import { Connections } from '../../src/postgres/connections.js';
import { postgres, type Queryable } from '../../src/postgres/index.js';
import { inTransaction } from '../../src/postgres/transaction.js';
import { namesIn } from '../../src/sql/schema/names.js';
import { aMill, gate, until } from '../support/mills.js';
import { behindPostgresProxy } from '../support/flaky-proxy.js';
import { opened } from '../support/port.js';
import { freshPostgres, rawPool } from '../support/stores.js';

const aSchema = (): string => `test_connections_${Math.random().toString(36).slice(2)}`;

/** A pool that is closed after its test. */
function aPool(options: pg.PoolConfig = {}): pg.Pool {
  const pool = new pg.Pool({ connectionString: inject('postgresUrl'), ...options });
  pool.on('error', () => undefined);
  onTestFinished(() => pool.end());
  return pool;
}

/** A pool whose connections are all open, so that no time limit is spent on opening one. */
async function aConnectedPool(max: number): Promise<pg.Pool> {
  const pool = aPool({ max });
  const clients = await Promise.all(Array.from({ length: max }, () => pool.connect()));
  for (const client of clients) client.release();
  return pool;
}

/** How many connections listen on the channel of a schema. */
const listening = async (on: pg.Pool, schema: string): Promise<number> => {
  const text = `select count(*)::integer as n from pg_stat_activity where query = $1`;
  const { rows } = await on.query<{ n: number }>(text, [`listen "${namesIn(schema).channel}"`]);
  return rows[0]?.n ?? 0;
};

describe('handlers that hold PostgreSQL connections', () => {
  it('handlers in transactions starve neither the lease nor each other on four connections', async () => {
    const store = freshPostgres({ connections: 4 });
    // Shorter than all of them take together, and longer than any pause of a busy machine.
    const mill = aMill(store, { leaseDuration: 3_000 });
    const lost: unknown[] = [];
    mill.on('lease:lost', (event) => lost.push(event));
    let open = 0;
    mill.job('exact', { concurrency: 12 }, (job) =>
      mill.withTransaction(async (handle) => {
        open += 1;
        await (handle as Queryable).query('select pg_sleep(0.8)');
        await job.complete({ transaction: handle, result: 'done' });
      }),
    );
    const jobs = await mill.enqueueMany(Array.from({ length: 12 }, () => ({ name: 'exact' })));
    await mill.start();
    for (const { id } of jobs) expect(await mill.jobs.result(id, { timeout: '50s' })).toBe('done');
    expect(open).toBe(12);
    expect(lost).toEqual([]);
    expect(await mill.jobs.count({ status: 'completed' })).toBe(12);
  });

  it('handlers inside transactions can enqueue without their handle', async () => {
    const mill = aMill(freshPostgres({ connections: 4 }));
    mill.job('outer', { concurrency: 20 }, () =>
      mill.withTransaction(async (handle) => {
        await (handle as Queryable).query('select 1');
        await mill.enqueue('inner', {});
      }),
    );
    const jobs = await mill.enqueueMany(Array.from({ length: 20 }, () => ({ name: 'outer' })));
    await mill.start();
    for (const { id } of jobs) await mill.jobs.result(id);
    expect(await mill.jobs.count({ name: 'inner' })).toBe(20);
  });

  it('health names an exhausted user pool, and the lease is still renewed', async () => {
    const pool = aPool({ max: 2 });
    const mill = aMill(freshPostgres({ pool }), { leaseDuration: 3_000 });
    const lost: unknown[] = [];
    mill.on('lease:lost', (event) => lost.push(event));
    await mill.start();
    const clients = [await pool.connect(), await pool.connect()];
    const asked = mill.enqueue('x', {});
    const reason = await until('health is not well', () =>
      mill.health().reasons.find((one) => one.startsWith('No')),
    );
    expect(reason).toMatch(
      /of 2 connections.*your own code holds 2; \d+ calls wait.*raise `max` of your pool/u,
    );
    expect(mill.health().troubles).toHaveLength(1);
    for (const client of clients) client.release();
    expect((await asked).outcome).toBe('created');
    await until('health is well again', () => mill.isHealthy() && mill.health().troubles.length === 0);
    expect(lost).toEqual([]);
  });
});

describe('an exhausted PostgreSQL pool', () => {
  const patience = { ownMs: 200, lentMs: 200, nestedMs: 100 };
  const transaction = (connections: Connections, work: () => Promise<unknown>): Promise<unknown> =>
    inTransaction(connections, 'lent', work, 30_000);

  it('the error of an exhausted pool says who holds the connections, and that nothing was sent', async () => {
    const pool = await aConnectedPool(2);
    const connections = new Connections(pool, { size: 2, remedy: 'raise its max', patience });
    const client = await pool.connect();
    const asked = transaction(connections, () => connections.use((one) => one.query('select 1'), 30_000));
    await expect(asked).rejects.toMatchObject({
      code: 'STORE',
      transient: true,
      outcomeUnknown: false,
      message: expect.stringMatching(
        /of 2 connections, withTransaction holds 1, .* your own code holds 1; 1 calls wait.*raise its max\. Nothing was sent/u,
      ) as string,
    });
    client.release();
    await connections.use((one) => one.query('select 1'), 30_000);
  });

  it('nested transactions that exhaust the pool are rejected instead of deadlocking', async () => {
    const connections = new Connections(await aConnectedPool(4), { size: 4, remedy: '', patience });
    const both = [gate(), gate()];
    const nested = both.map((one, n) =>
      transaction(connections, async () => {
        one.open();
        await both[1 - n]?.promise;
        await transaction(connections, () => Promise.resolve());
      }),
    );
    for (const one of await Promise.allSettled(nested))
      expect(one).toMatchObject({
        reason: { message: expect.stringContaining('withTransaction holds 2') as string },
      });
  });
});

describe('the connection beside the pool', () => {
  it('a statement that lacks a privilege beside the pool runs on the pool', async () => {
    const beside = besideOf({ connectionString: inject('postgresUrl') });
    onTestFinished(() => beside.end());
    const pool = aPool({ max: 1 });
    pool.on('connect', (client) => void client.query(`set application_name = 'with a role'`));
    const renew = async (client: Queryable): Promise<unknown> => {
      const { rows } = await client.query(`select current_setting('application_name') as name`);
      if (rows[0]?.['name'] === 'with a role') return 'renewed';
      throw Object.assign(new Error('permission denied'), { code: '42501' });
    };
    const main = new Connections(pool, { size: 1, remedy: '' });
    expect(await beside.ask(main, renew, 10_000)).toBe('renewed');
  });
});

describe('several mills on one PostgreSQL pool', () => {
  it('a dozen mills start on a default pool and listen on one connection', async () => {
    const pool = aPool();
    const schema = aSchema();
    const mills = Array.from({ length: 12 }, (_, n) => {
      const mill = aMill(postgres({ pool, schema }), { instanceId: `mill-${String(n)}` });
      mill.job(`job-${String(n)}`, () => n);
      return mill;
    });
    await Promise.all(mills.map((mill) => mill.start()));
    await until('all of them listen', () => mills.every((mill) => mill.health().wakeUp === 'stream'));
    const [first] = mills as [Tidemill];
    const jobs = await first.enqueueMany(mills.map((_mill, n) => ({ name: `job-${String(n)}` })));
    for (const [n, { id }] of jobs.entries()) expect(await first.jobs.result(id)).toBe(n);
    expect(await listening(rawPool(), schema)).toBe(1);
  });
});

describe('PostgreSQL connections that do not answer', () => {
  it('a connection that does not answer is given up after the limit, with all older ones', async () => {
    const pool = aPool({ max: 2 });
    const connections = new Connections<pg.PoolClient>(pool, { size: 2, remedy: '' });
    const pidOf = async (client: pg.PoolClient): Promise<number> =>
      (await client.query<{ pid: number }>('select pg_backend_pid() as pid')).rows[0]?.pid ?? 0;
    const both = [gate(), gate()];
    const at = (n: number): Promise<number> =>
      connections.use(async (client) => {
        both[n]?.open();
        await both[1 - n]?.promise;
        return pidOf(client);
      }, 30_000);
    const before = await Promise.all([at(0), at(1)]);
    await expect(connections.use((client) => client.query('select pg_sleep(60)'), 200)).rejects.toThrow(
      'did not answer within 0.2 s',
    );
    for (let round = 0; round < 3; round += 1)
      expect(before).not.toContain(await connections.use(pidOf, 30_000));
  });

  it('a distrusted idle connection is cut off, so that its socket does not stay open', async () => {
    const pool = aPool({ max: 1 });
    const cutOff: Socket[] = [];
    pool.on('connect', (client) => {
      const { stream } = (client as unknown as { connection: { stream: Socket } }).connection;
      const destroy = stream.destroy.bind(stream);
      stream.destroy = (error) => {
        if (!stream.writableEnded) cutOff.push(stream);
        return destroy(error);
      };
    });
    const connections = new Connections<pg.PoolClient>(pool, { size: 1, remedy: '' });
    const ask = (): Promise<unknown> => connections.use((client) => client.query('select 1'), 30_000);
    await ask();
    connections.distrust();
    await ask();
    expect(cutOff).toHaveLength(1);
  });

  it('the lease is renewed again after a renewal that did not answer', async () => {
    const schema = aSchema();
    const store = await opened(freshPostgres({ schema }));
    const registration = {
      instanceId: 'a',
      life: 'a',
      names: [],
      tasks: [],
      policies: {},
      host: 'h',
      pid: 1,
    };
    await store.instances.register({ ...registration, leaseMs: 3_000 });
    const holder = await rawPool().connect();
    onTestFinished(() => holder.release());
    await holder.query('begin');
    await holder.query(`select from "${schema}".instances for update`);
    await expect(store.instances.renew({ ...registration, leaseMs: 3_000 })).rejects.toThrow(
      'did not answer',
    );
    await holder.query('rollback');
    expect(await store.instances.renew({ ...registration, leaseMs: 3_000 })).toBe('renewed');
  });

  it('a frozen connection does not hold up a handler that completes its job in a transaction', async () => {
    const { proxy, url } = await behindPostgresProxy();
    const mill = aMill(freshPostgres({ url, connections: 2 }), {
      leaseDuration: 2_000,
      pollInterval: { min: 50, max: 200 },
    });
    mill.on('error', () => undefined);
    const refused: unknown[] = [];
    mill.job('pay', { retryPolicy: { type: 'fixed', interval: 0 } }, (job) =>
      mill.withTransaction(async (transaction) => {
        if (job.attempt === 1 && refused.length === 0) proxy.freeze();
        await job.complete({ transaction, result: 'paid' }).catch((error: unknown) => {
          refused.push(error);
          throw error;
        });
      }),
    );
    await mill.start();
    const { id } = await mill.enqueue('pay', {});
    expect(await mill.jobs.result(id, { timeout: '50s' })).toBe('paid');
    expect(refused[0]).toMatchObject({
      code: 'STORE',
      transient: true,
      outcomeUnknown: false,
      message: expect.stringMatching(
        /did not answer within 5 s.*Nothing of the transaction is committed/u,
      ) as string,
    });
  });

  it('a frozen connection does not hold up a handler that completes its task in a transaction', async () => {
    const { proxy, url } = await behindPostgresProxy();
    const mill = aMill(freshPostgres({ url, connections: 2 }), {
      leaseDuration: 2_000,
      pollInterval: { min: 50, max: 200 },
    });
    mill.on('error', () => undefined);
    const collection = aSchema();
    await rawPool().query(`create table ${collection} (id integer primary key)`);
    let runs = 0;
    await mill.reactiveTask({
      task: 'pay',
      collection,
      debounce: 0,
      retryPolicy: { type: 'fixed', interval: 0, maxAttempts: -1 },
      handler: ({ markCompleted }) =>
        mill.withTransaction(async (transaction) => {
          runs += 1;
          if (runs === 1) proxy.freeze();
          await markCompleted({ transaction });
        }),
    });
    const looked = gate();
    mill.on('reconcile:complete', () => looked.open());
    await mill.start();
    // A planning statement that freezes would keep its row locked on the server, which sees no end.
    await looked.promise;
    await rawPool().query(`insert into ${collection} values (1)`);
    await until('the task is completed', async () => {
      const task = await mill.tasks.get('pay', 1).catch(() => undefined);
      return task?.status === 'completed';
    });
    expect(runs).toBeGreaterThan(1);
  });

  it('a transaction on a frozen connection rolls back even if the caller catches the error', async () => {
    const { proxy, url } = await behindPostgresProxy();
    const mill = aMill(freshPostgres({ url }), { leaseDuration: 2_000 });
    mill.on('error', () => undefined);
    await mill.start();
    const caught = mill.withTransaction(async (transaction) => {
      proxy.freeze();
      await mill.enqueue('x', {}, { transaction }).catch(() => undefined);
    });
    await expect(caught).rejects.toMatchObject({
      code: 'STORE',
      message: expect.stringContaining('Nothing of the transaction is committed') as string,
    });
    const tried = await until('others work', () => mill.enqueue('x', {}).catch(() => undefined));
    expect(tried.outcome).toBe('created');
  });

  it("enqueue on a user's frozen client rejects and says to close the client", async () => {
    const { proxy, url } = await behindPostgresProxy();
    const schema = aSchema();
    const mill = aMill(freshPostgres({ schema }), { leaseDuration: 2_000 });
    await mill.start();
    const client = new pg.Client(url);
    client.on('error', () => undefined);
    await client.connect();
    await client.query('begin');
    proxy.freeze();
    await expect(mill.enqueue('x', {}, { transaction: client })).rejects.toMatchObject({
      code: 'STORE',
      message: expect.stringContaining('roll back this transaction and close its client') as string,
    });
  });

  it('jobs continue after all connections froze at once', async () => {
    const { proxy, url } = await behindPostgresProxy();
    const schema = aSchema();
    const mill = aMill(freshPostgres({ url, schema }), {
      leaseDuration: 2_000,
      pollInterval: { min: 50, max: 200 },
    });
    mill.on('error', () => undefined);
    mill.job('x', (job) => job.data);
    await mill.start();
    const job = await mill.enqueue('x', 'before');
    expect(await mill.jobs.result(job.id)).toBe('before');
    proxy.freeze();
    const beside = aMill(freshPostgres({ schema }));
    const jobs = await beside.enqueueMany(Array.from({ length: 5 }, (_, data) => ({ name: 'x', data })));
    for (const [data, { id }] of jobs.entries())
      expect(await beside.jobs.result(id, { timeout: '50s' })).toBe(data);
  });
});
