import pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Queryable } from '../../src/postgres/index.js';
import { namesIn } from '../../src/sql/schema/names.js';
import { aMill, gate, rarely, until } from '../support/mills.js';
import { opened } from '../support/port.js';
import { freshPostgres, rawPool } from '../support/stores.js';

const pool = rawPool();

/** Runs `work` on the test's own client, as an application would. */
async function inTransaction<T>(
  work: (client: pg.PoolClient) => Promise<T>,
  { commit = true, begin = 'begin' } = {},
): Promise<T> {
  const client = await pool.connect();
  try {
    await client.query(begin);
    const answer = await work(client);
    await client.query(commit ? 'commit' : 'rollback');
    return answer;
  } finally {
    client.release();
  }
}

describe("a user's own PostgreSQL transaction", () => {
  it('a job enqueued in a transaction exists only if the transaction commits', async () => {
    const mill = aMill(freshPostgres());
    const kept = await inTransaction((transaction) => mill.enqueue('x', 1, { transaction }));
    const gone = await inTransaction((transaction) => mill.enqueue('x', 2, { transaction }), {
      commit: false,
    });
    expect((await mill.jobs.get(kept.id))?.data).toBe(1);
    expect(await mill.jobs.get(gone.id)).toBeUndefined();
  });

  it('a taken unique key does not abort the transaction, even if it is taken while waiting', async () => {
    const mill = aMill(freshPostgres());
    await mill.enqueue('x', 'old', { uniqueKey: 'taken' });
    const [inserted, waiting] = [gate(), gate()];
    const first = inTransaction(async (transaction) => {
      await mill.enqueue('x', 'first', { uniqueKey: 'race', transaction });
      inserted.open();
      await waiting.promise;
    });
    await inserted.promise;
    const second = inTransaction(async (transaction) => {
      const taken = await mill.enqueue('x', 'new', { uniqueKey: 'taken', transaction });
      const race = mill.enqueue('x', 'second', { uniqueKey: 'race', transaction });
      waiting.open();
      await transaction.query('select 1');
      return [taken, await race];
    });
    await first;
    expect((await second).map(({ data, outcome }) => [data, outcome])).toEqual([
      ['old', 'existing'],
      ['first', 'existing'],
    ]);
  });

  it("complete() commits a job's end together with the user's writes, or not at all", async () => {
    const store = await opened(freshPostgres());
    const mill = aMill(store);
    await pool.query('create table if not exists test_effects (id text primary key)');
    let tries = 0;
    mill.job('pay', { retryPolicy: { type: 'fixed', interval: 0 } }, async (job) => {
      tries += 1;
      await inTransaction(
        async (transaction) => {
          await transaction.query('insert into test_effects values ($1)', [job.id]);
          await job.complete({ transaction, result: 'paid' });
        },
        { commit: tries > 1 },
      );
      if (tries === 1) throw new Error('rolled back');
    });
    await mill.start();
    const job = await mill.enqueue('pay', {});
    expect(await mill.jobs.result(job.id)).toBe('paid');
    expect(tries).toBe(2);
    const { rows } = await pool.query('select id from test_effects where id = $1', [job.id]);
    expect(rows).toHaveLength(1);
  });

  it('accepts any object with query(text, values) as a transaction', async () => {
    const mill = aMill(freshPostgres());
    const job = await inTransaction((client) => {
      const transaction: Queryable = {
        query: async (text, values) => ({
          rows: (await client.query<Record<string, unknown>>(text, values)).rows,
        }),
      };
      return mill.enqueue('x', { at: new Date(5) }, { transaction, uniqueKey: 'k' });
    });
    expect((await mill.jobs.get(job.id))?.data).toEqual({ at: new Date(5) });
  });

  it.each([
    ['a client of pg', (client: pg.PoolClient): Queryable => client],
    [
      'another object with query()',
      (client: pg.PoolClient): Queryable => ({ query: client.query.bind(client) }),
    ],
  ])('complete() rejects a client on which BEGIN was not called: %s', async (_what, handle) => {
    const mill = aMill(freshPostgres());
    const client = await pool.connect();
    onTestFinished(() => client.release());
    const transaction = handle(client);
    const [running, go] = [gate(), gate()];
    const refused: unknown[] = [];
    mill.job('pay', async (job) => {
      await job.complete({ transaction }).catch((error: unknown) => refused.push(error));
      running.open();
      await go.promise;
      // Sent, and not answered yet: what follows is inside all the same.
      void client.query('begin');
      await job.complete({ transaction, result: 'paid' });
      await client.query('commit');
    });
    await mill.start();
    const job = await mill.enqueue('pay', {});
    await running.promise;
    expect(refused).toMatchObject([
      { code: 'BAD_OPTION', message: expect.stringMatching(/Call BEGIN on it first/u) as string },
    ]);
    expect((await mill.jobs.get(job.id))?.status).toBe('processing');
    go.open();
    expect(await mill.jobs.result(job.id)).toBe('paid');
  });

  it('enqueue() rejects a client on which BEGIN was not called, and writes nothing', async () => {
    const mill = aMill(freshPostgres());
    const client = await pool.connect();
    onTestFinished(() => client.release());
    await expect(mill.enqueue('x', 1, { transaction: client })).rejects.toMatchObject({
      code: 'BAD_OPTION',
      message: expect.stringMatching(/Call BEGIN on it first/u) as string,
    });
    expect(await mill.jobs.count()).toBe(0);
    // Sent, and not answered yet: what follows is inside all the same.
    void client.query('begin');
    await mill.enqueue('x', 2, { transaction: client });
    await client.query('rollback');
    expect(await mill.jobs.count()).toBe(0);
    await client.query('begin');
    await mill.enqueue('x', 3, { transaction: client });
    await client.query('commit');
    expect(await mill.jobs.count()).toBe(1);
  });

  it('rejects a pool or another object in place of a transaction, with the fix', async () => {
    const mill = aMill(freshPostgres());
    await expect(mill.enqueue('x', 1, { transaction: pool })).rejects.toThrow(
      'Pass the client on which you called BEGIN',
    );
    await expect(mill.enqueue('x', 1, { transaction: {} })).rejects.toThrow(
      'must be a handle of the postgres store',
    );
    expect(await mill.jobs.count()).toBe(0);
  });

  it('works with any isolation level, time zone, date style and type parsers', async () => {
    const types = { getTypeParser: () => () => 'overridden' } as unknown as pg.CustomTypesConfig;
    const odd = rawPool({
      types,
      options: '-c TimeZone=Pacific/Kiritimati -c DateStyle=SQL,DMY -c IntervalStyle=iso_8601',
    });
    const mill = aMill(freshPostgres({ pool: rawPool({ options: '-c TimeZone=America/Caracas' }) }));
    mill.job('x', (job) => job.data);
    await mill.start();
    const data = { late: new Date('9999-12-31T23:59:59.999Z'), early: new Date('0001-01-01T00:00:00Z') };
    const runAt = new Date('9999-12-31T23:59:59.999Z');
    const client = await odd.connect();
    await client.query('begin isolation level serializable');
    const transaction: Queryable = {
      // Without its own type parsers the client would answer nothing at all.
      query: async (text, values) => client.query({ text, values: values ?? [], types: pg.types }),
    };
    const later = await mill.enqueue('later', data, { transaction, runAt });
    const now = await mill.enqueue('x', data, { transaction });
    await client.query('commit');
    client.release();
    expect(await mill.jobs.result(now.id)).toEqual(data);
    expect(await mill.jobs.get(later.id)).toMatchObject({ nextRunAt: runAt, data });
  });

  it('a job enqueued in a transaction wakes an idle worker, with either notify option', async () => {
    for (const notify of ['later', 'commit'] as const) {
      const schema = `test_wake_${notify}_${Math.random().toString(36).slice(2)}`;
      const worker = aMill(freshPostgres({ schema }), { pollInterval: rarely });
      const producer = aMill(freshPostgres({ schema, notify }));
      worker.job('x', () => 'ran');
      await worker.start();
      await until('it listens', () => worker.health().wakeUp === 'stream');
      const job = await inTransaction((transaction) => producer.enqueue('x', {}, { transaction }));
      expect(await producer.jobs.result(job.id, { timeout: '45s' })).toBe('ran');
    }
  });
});

describe('withTransaction on PostgreSQL', () => {
  it('withTransaction retries after a deadlock', async () => {
    const store = await opened(freshPostgres());
    const mill = aMill(store);
    await pool.query('create table if not exists test_deadlock (id integer primary key, n integer)');
    await pool.query('insert into test_deadlock values (1, 0), (2, 0) on conflict do nothing');
    const both = [gate(), gate()];
    const crossing = (own: number): Promise<void> =>
      mill.withTransaction(async (handle) => {
        const transaction = handle as Queryable;
        const lock = 'update test_deadlock set n = n + 1 where id = $1::integer';
        await transaction.query(lock, [own + 1]);
        both[own]?.open();
        await both[1 - own]?.promise;
        await transaction.query(lock, [2 - own]);
      });
    await Promise.all([crossing(0), crossing(1)]);
    const { rows } = await pool.query<{ n: number }>('select n from test_deadlock');
    expect(rows.map(({ n }) => n)).toEqual([2, 2]);
  });

  it('withTransaction rejects if the error of a failed statement was swallowed', async () => {
    const mill = aMill(freshPostgres());
    const swallowing = mill.withTransaction(async (handle) => {
      const transaction = handle as Queryable;
      await mill.enqueue('x', {}, { transaction });
      await transaction.query('select 1/0').catch(() => undefined);
    });
    await expect(swallowing).rejects.toThrow('its error was caught, so nothing was written');
    expect(await mill.jobs.count()).toBe(0);
  });

  it('withTransaction passes a client on which the application can work', async () => {
    const mill = aMill(freshPostgres({ pool }));
    const rows = await mill.withTransaction(
      async (handle) => (await (handle as Queryable).query('select $1::text as said', ['hello'])).rows,
    );
    expect(rows).toEqual([{ said: 'hello' }]);
  });
});

describe('rows written by hand on PostgreSQL', () => {
  it('a row inserted by hand with nothing but a name runs', async () => {
    const schema = `test_hand_${Math.random().toString(36).slice(2)}`;
    const mill = aMill(freshPostgres({ schema }), { pollInterval: { min: 20, max: 50 } });
    mill.job('x', (job) => ({ data: job.data, attempt: job.attempt }));
    await mill.start();
    const insert = `insert into ${namesIn(schema).jobs} (name, data) values ('x', $1) returning id`;
    const { rows } = await pool.query<{ id: string }>(insert, [JSON.stringify({ by: 'hand' })]);
    expect(await mill.jobs.result(rows[0]?.id ?? '')).toEqual({ data: { by: 'hand' }, attempt: 1 });
    const bare = await pool.query<{ id: string }>(
      `insert into ${namesIn(schema).jobs} (name) values ('x') returning id`,
    );
    expect(await mill.jobs.result(bare.rows[0]?.id ?? '')).toEqual({ data: null, attempt: 1 });
    await expect(
      pool.query(`insert into ${namesIn(schema).jobs} (name, next_run_at) values ('x', 'infinity')`),
    ).rejects.toThrow('next_run_at');
  });

  it('a running row of an older program is stray only after its own heartbeat interval', async () => {
    const schema = `test_old_${Math.random().toString(36).slice(2)}`;
    const store = await opened(freshPostgres({ schema }));
    const { jobs } = namesIn(schema);
    await pool.query(`insert into ${jobs} (id, name, status, locked_at, claimed_by, heartbeat_interval) values
      ('old', 'x', 'processing', now() - interval '10 minutes', 'legacy', 1000),
      ('patient', 'x', 'processing', now() - interval '10 minutes', 'legacy', 900000),
      ('fresh', 'x', 'processing', now(), 'legacy', 1000),
      ('odd', 'x', 'processing', null, null, null)`);
    const strays = await store.jobs.strays({
      lives: [],
      olderThanMs: 1_000,
      legacyAfterMs: 90_000,
      limit: 10,
    });
    expect(strays.map(({ id }) => id).sort()).toEqual(['odd', 'old']);
  });
});
