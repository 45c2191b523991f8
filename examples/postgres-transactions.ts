// runs in: npm run check
//
// Jobs and your own writes in one PostgreSQL transaction, with your own pool of node-postgres: a job that exists if and
// only if the order does, and a completion that happens if and only if the handler's write does.
import assert from 'node:assert/strict';
import { startPostgres } from '@tidemill/servers';
import pg from 'pg';
import { Tidemill } from 'tidemill';
import { postgres } from 'tidemill/postgres';

await using server = await startPostgres();
// A pool of your own: transactions span your tables and the jobs. It is yours to close.
const pool = new pg.Pool({ connectionString: server.url });
await pool.query('create table orders (id text primary key, charged integer not null default 0)');

const mill = new Tidemill({ store: postgres({ pool }), logger: false });

let calls = 0;
const charge = mill.job<{ order: string }>(
  'charge',
  { retryPolicy: { type: 'fixed', interval: '50ms' } },
  async (job) => {
    calls += 1;
    await mill.withTransaction(async (transaction) => {
      await transaction.query('update orders set charged = charged + 1 where id = $1', [job.data.order]);
      await job.complete({ transaction, result: 'charged' });
      // Fails after both writes and before the commit, the first time: neither is kept.
      if (job.attempt === 1) throw new Error('the power went out');
    });
  },
);

/** As an application does it: a client of the pool, BEGIN, and COMMIT or ROLLBACK. */
async function place(order: string, sure: boolean): Promise<{ id: string }> {
  const client = await pool.connect();
  try {
    await client.query('begin');
    await client.query('insert into orders (id) values ($1)', [order]);
    const job = await charge.enqueue({ order }, { transaction: client });
    if (!sure) throw new Error('changed my mind');
    await client.query('commit');
    return job;
  } catch (error) {
    await client.query('rollback');
    throw error;
  } finally {
    client.release();
  }
}

// 1. Rolled back: neither the order nor the job exists.
await assert.rejects(place('A', false), /changed my mind/u);
assert.equal(await mill.jobs.count(), 0);
assert.deepEqual((await pool.query('select id from orders')).rows, []);

// 2. Committed: both exist.
const { id } = await place('B', true);
assert.equal((await mill.jobs.get(id))?.status, 'pending');

// 3. The handler runs twice, its write happens once.
await mill.start();
assert.equal(await mill.jobs.result(id, { timeout: '20s' }), 'charged');
assert.equal(calls, 2);
assert.deepEqual((await pool.query('select * from orders')).rows, [{ id: 'B', charged: 1 }]);

await mill.stop();
await pool.end();
console.log('called twice, charged once');
