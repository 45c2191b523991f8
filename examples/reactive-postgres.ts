// runs in: npm run check
//
// A table starts the work: no queue is written to, so an order and its task cannot get out of step. The handler's own
// writes and the end of its task are one transaction, so they happen exactly once. The same on a PostgreSQL server: give
// `postgres({ url })` in the place of `embedded()`.
import assert from 'node:assert/strict';
import { PGlite } from '@electric-sql/pglite';
import { Tidemill } from 'tidemill';
import { embedded } from 'tidemill/embedded';
import { until } from './support/until.js';

interface Order {
  id: number;
  customer: string;
  total: number;
  paid_at: Date;
}

await using database = await PGlite.create();
await database.exec(`
  create table orders (id bigint primary key, customer text, status text, total numeric, paid_at timestamptz, delivery jsonb);
  create table balances (customer text primary key, balance numeric not null);
`);

await using mill = new Tidemill({ store: embedded({ database }), logger: false });
await mill.reactiveTask<Order>({
  task: 'book-order',
  collection: 'orders',
  filter: { status: 'paid', total: { $gt: 0 }, 'delivery.country': { $in: ['DE', 'FR'] } },
  watchProjection: { total: 1, 'delivery.country': 1 },
  debounce: 0,
  handler: async ({ getDocument, complete }) => {
    await mill.withTransaction(async (transaction) => {
      const { customer, total, paid_at: paidAt } = await getDocument({ transaction });
      assert.ok(paidAt instanceof Date);
      await transaction.query(
        `insert into balances values ($1::text, $2::numeric)
         on conflict (customer) do update set balance = balances.balance + excluded.balance`,
        [customer, total],
      );
      await complete({ transaction });
    });
  },
});
await mill.start();

await database.exec(`
  begin;
  insert into orders values (1, 'ada', 'paid', 20.50, now(), '{"country":"DE"}'), (2, 'bob', 'paid', 5, now(), '{"country":"US"}');
  insert into orders values (3, 'ada', 'new', 7, null, '{"country":"FR"}');
  commit;
  update orders set status = 'paid', paid_at = now() where id = 3;
`);

await until('both orders of ada are booked', async () => {
  return (await mill.countReactiveTasks({ task: 'book-order', status: 'completed' })) === 2;
});
const { rows } = await database.query(`select customer, balance::text from balances`);
assert.deepEqual(rows, [{ customer: 'ada', balance: '27.5' }]);
console.log('two orders booked, each once');
