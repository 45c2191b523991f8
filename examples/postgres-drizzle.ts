// runs in: npm run check
//
// Jobs inside a transaction of Drizzle. What Tidemill needs of a transaction is `query(text, values)`, so an adapter is
// a few lines.
import assert from 'node:assert/strict';
import { startPostgres } from '@tidemill/servers';
import { eq, sql } from 'drizzle-orm';
import { drizzle, type NodePgDatabase } from 'drizzle-orm/node-postgres';
import { integer, pgTable, text } from 'drizzle-orm/pg-core';
import pg from 'pg';
import { Tidemill } from 'tidemill';
import { postgres, type SqlTransaction } from 'tidemill/postgres';

const orders = pgTable('orders', { id: text().primaryKey(), charged: integer().notNull() });

/** Drizzle writes placeholders itself: the statement is cut at ours, and the values are put in between. */
const handle = (tx: Pick<NodePgDatabase, 'execute'>): SqlTransaction => ({
  query: (statement, values = []) =>
    tx.execute(
      sql.join(
        statement
          .split(/\$(\d+)/u)
          .map((part, i) => (i % 2 === 0 ? sql.raw(part) : sql`${values[Number(part) - 1]}`)),
      ),
    ),
});

await using server = await startPostgres();
const pool = new pg.Pool({ connectionString: server.url });
const db = drizzle(pool);
await pool.query('create table orders (id text primary key, charged integer not null)');

const mill = new Tidemill({ store: postgres({ pool }), logger: false });

const charge = mill.job<{ order: string }>('charge', async (job) => {
  await db.transaction(async (tx) => {
    const { order } = job.data;
    await tx.update(orders).set({ charged: 1 }).where(eq(orders.id, order));
    await job.complete({ transaction: handle(tx), result: `charged ${order}` });
  });
});

const place = (order: string, sure: boolean): Promise<{ id: string }> =>
  db.transaction(async (tx) => {
    await tx.insert(orders).values({ id: order, charged: 0 });
    const job = await charge.enqueue({ order }, { transaction: handle(tx), uniqueKey: order });
    if (!sure) throw new Error('changed my mind');
    return job;
  });

await assert.rejects(place('A', false), /changed my mind/u);
assert.equal(await mill.jobs.count(), 0);
const { id } = await place('B', true);

await mill.start();
assert.equal(await mill.jobs.result(id, { timeout: '20s' }), 'charged B');
assert.deepEqual(await db.select().from(orders), [{ id: 'B', charged: 1 }]);

await mill.stop();
await pool.end();
console.log('an order and its job, together');
