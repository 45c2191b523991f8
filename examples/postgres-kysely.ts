// runs in: npm run check
//
// Jobs inside a transaction of Kysely. What Tidemill needs of a transaction is `query(text, values)`, so an adapter is
// one line.
import assert from 'node:assert/strict';
import { startPostgres } from '@tidemill/servers';
import { CompiledQuery, Kysely, PostgresDialect, type Transaction } from 'kysely';
import pg from 'pg';
import { Tidemill } from 'tidemill';
import { postgres, type SqlTransaction } from 'tidemill/postgres';

interface Shop {
  orders: { id: string; charged: number };
}

const handle = (trx: Transaction<Shop>): SqlTransaction => ({
  query: (text, values = []) => trx.executeQuery<Record<string, unknown>>(CompiledQuery.raw(text, values)),
});

await using server = await startPostgres();
const pool = new pg.Pool({ connectionString: server.url });
const db = new Kysely<Shop>({ dialect: new PostgresDialect({ pool }) });
await pool.query('create table orders (id text primary key, charged integer not null)');

const mill = new Tidemill({ store: postgres({ pool }), logger: false });

const charge = mill.job<{ order: string }>('charge', async (job) => {
  await db.transaction().execute(async (trx) => {
    const { order } = job.data;
    await trx.updateTable('orders').set({ charged: 1 }).where('id', '=', order).execute();
    await job.complete({ transaction: handle(trx), result: `charged ${order}` });
  });
});

const place = (order: string, sure: boolean): Promise<{ id: string }> =>
  db.transaction().execute(async (trx) => {
    await trx.insertInto('orders').values({ id: order, charged: 0 }).execute();
    const job = await charge.enqueue({ order }, { transaction: handle(trx), uniqueKey: order });
    if (!sure) throw new Error('changed my mind');
    return job;
  });

await assert.rejects(place('A', false), /changed my mind/u);
assert.equal(await mill.jobs.count(), 0);
const { id } = await place('B', true);

await mill.start();
assert.equal(await mill.jobs.result(id, { timeout: '20s' }), 'charged B');
assert.deepEqual(await db.selectFrom('orders').selectAll().execute(), [{ id: 'B', charged: 1 }]);

await mill.stop();
await db.destroy();
console.log('an order and its job, together');
