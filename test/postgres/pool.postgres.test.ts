import pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';
import { postgres } from '../../src/postgres/index.js';
import { aMill, until } from '../support/mills.js';
import { Tables } from '../sql/reactive/tables.js';

it.each([
  ['three connections are enough', 3, false],
  ['one is enough where listening has its own', 1, true],
])("of a user's pool %s for jobs, tasks and transactions", async (_what, max, apart) => {
  const tables = await Tables.make('create table orders (id integer primary key)');
  const pool = new pg.Pool({ connectionString: tables.url, max });
  onTestFinished(() => pool.end());
  const store = postgres({ pool, schema: tables.schema, ...(apart ? { listenUrl: tables.url } : {}) });
  const mill = aMill(store);
  const handled = new Set<unknown>();
  const exactly = (work: (transaction: pg.PoolClient) => Promise<void>): Promise<void> =>
    mill.withTransaction((transaction) => work(transaction as pg.PoolClient));
  mill.job('plain', (job) => job.data);
  mill.job('exact', (job) => exactly((transaction) => job.complete({ transaction, result: 'done' })));
  await mill.reactiveTask({
    task: 't',
    collection: 'orders',
    debounce: 0,
    handler: ({ docId, markCompleted }) =>
      exactly(async (transaction) => {
        await markCompleted({ transaction });
        handled.add(docId);
      }),
  });
  await mill.start();
  for (let round = 0; round < 3; round += 1) {
    // Idle in between, while it listens for everything.
    await until('it leads and is idle', () => mill.health().leader && mill.health().running === 0);
    await tables.ask(`insert into orders select n from generate_series($1::int, $1::int + 19) n`, [
      round * 20,
    ]);
    const jobs = await mill.enqueueMany(
      Array.from({ length: 20 }, (_, n) => ({ name: n % 2 === 0 ? 'plain' : 'exact', data: n })),
    );
    for (const { id } of jobs) await mill.jobs.result(id);
    await until('all rows were handled', () => handled.size === (round + 1) * 20);
  }
  await mill.stop();
  expect(await mill.jobs.count({ status: 'completed' })).toBe(60);
});

describe("an error of an idle connection of a user's pool", () => {
  it('is reported as an error that no caller sees, and ends nothing', async () => {
    const tables = await Tables.make('create table unused (id integer primary key)');
    const pool = new pg.Pool({ connectionString: tables.url, max: 3 });
    onTestFinished(() => pool.end());
    const backends = new Set<number>();
    const pidOf = (client: unknown): number => (client as { readonly processID: number }).processID;
    pool.on('connect', (client) => backends.add(pidOf(client)));
    pool.on('remove', (client) => backends.delete(pidOf(client)));
    const mill = aMill(postgres({ pool, schema: tables.schema }));
    const reported: string[] = [];
    mill.on('error', ({ error, where }) => reported.push(`${where}: ${error.message}`));
    mill.job('a', (job) => job.data);
    await mill.start();
    await mill.jobs.result((await mill.enqueue('a', 1)).id);
    expect(pool.listenerCount('error')).toBe(1);
    await until('all connections are idle', () => pool.idleCount === pool.totalCount && pool.totalCount > 0);
    const ended = [...backends];
    for (const pid of ended) await tables.ask('select pg_terminate_backend($1::integer)', [pid]);
    // An enqueue on a connection whose end the driver does not know of yet would fail, and rightly so.
    await until('the pool has dropped them all', () => ended.every((pid) => !backends.has(pid)));
    await until('it is reported', () =>
      reported.some((text) => text.includes('idle connection: terminating')),
    );
    expect(await mill.jobs.result((await mill.enqueue('a', 2)).id)).toBe(2);
    await mill.stop();
    expect(pool.listenerCount('error')).toBe(0);
  });

  it('is left to a listener of the user', async () => {
    const tables = await Tables.make('create table unused (id integer primary key)');
    const pool = new pg.Pool({ connectionString: tables.url, max: 3 });
    onTestFinished(() => pool.end());
    pool.on('error', () => undefined);
    const mill = aMill(postgres({ pool, schema: tables.schema }));
    expect(await mill.jobs.count()).toBe(0);
    expect(pool.listenerCount('error')).toBe(1);
    await mill.stop();
    expect(pool.listenerCount('error')).toBe(1);
  });
});
