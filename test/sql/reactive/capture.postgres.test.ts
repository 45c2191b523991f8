import { describe, expect, it } from 'vitest';
import { gate, until } from '../../support/mills.js';
import { Tables } from './tables.js';

const ORDERS = 'create table orders (id integer primary key, status text, total numeric)';
const PAID = { collection: 'orders', filter: { status: 'paid' } } as const;
/** For an instance that has thousands of rows to handle. */
const MANY = { reactive: { concurrency: 50 } } as const;

describe('captured changes and transactions', () => {
  it('a change is planned when its transaction commits, and never after a rollback', async () => {
    const tables = await Tables.make(ORDERS);
    await tables.started(PAID);
    const [kept, dropped] = [await tables.connection(), await tables.connection()];
    await kept.query('begin');
    await dropped.query('begin');
    await kept.query(`insert into orders values (1, 'paid', 1)`);
    await dropped.query(`insert into orders values (2, 'paid', 1)`);
    await tables.ask(`insert into orders values (3, 'paid', 1)`);
    await tables.ran(3);
    expect(tables.of(1)).toEqual([]);
    await dropped.query('rollback');
    await kept.query('commit');
    await tables.ran(1);
    await tables.quiet();
    expect(tables.runs.map(({ id }) => id).sort()).toEqual([1, 3]);
  });

  it('a change is not lost if its transaction commits after later ones were planned', async () => {
    const tables = await Tables.make(ORDERS);
    await tables.started(PAID, MANY);
    const slow = await tables.connection();
    await slow.query('begin');
    await slow.query(`insert into orders values (1, 'paid', 1)`);
    // Later numbers are read, planned and deleted meanwhile, in more than one page.
    await tables.ask(`insert into orders select n, 'paid', n from generate_series(2, 1500) n`);
    await tables.ran(1500);
    await tables.quiet();
    await slow.query('commit');
    await tables.ran(1);
    await tables.quiet();
    expect(tables.runs).toHaveLength(1_500);
  });

  it('the next leader plans changes that the previous one had not deleted, without extra runs', async () => {
    const tables = await Tables.make(ORDERS);
    const mill = await tables.started(PAID);
    await tables.ask(`insert into orders values (1, 'paid', 1)`);
    await tables.ran(1);
    await tables.quiet();
    await mill.stop();
    await tables.ask(`update orders set total = 2`);
    await tables.ask(
      `insert into ${tables.schema}.changes (source, key, kind) select source, key, kind from ${tables.schema}.changes`,
    );
    const next = tables.mill();
    void tables.define(next, PAID);
    await next.start();
    await tables.ran(1, 2);
    await tables.quiet();
    expect(tables.of(1)).toHaveLength(2);
    expect(tables.reconciled).toHaveLength(1);
  });
});

describe('the sequence of changes', () => {
  it('changes are planned even after their sequence went back, as after a failover', async () => {
    const tables = await Tables.make(ORDERS);
    await tables.started(PAID);
    for (let id = 1; id <= 5; id += 1) {
      await tables.ask(`insert into orders values ($1, 'paid', 1)`, [id]);
      await tables.ran(id);
    }
    await tables.quiet();
    await tables.ask(`select setval('${tables.schema}.change_numbers', 1)`);
    await tables.ask(`insert into orders values (6, 'paid', 1)`);
    await tables.ran(6);
  });
});

describe('capture of every kind of write', () => {
  it('captures updates, upserts, merges and deletes, and ignores writes that change nothing', async () => {
    const tables = await Tables.make(ORDERS);
    const mill = await tables.started(PAID);
    await tables.ask(`insert into orders select n, 'new', n from generate_series(1, 50) n`);
    await tables.ask(`update orders set status = 'paid' where id <= 10`);
    await tables.ask(
      `insert into orders values (11, 'paid', 1), (51, 'paid', 1) on conflict (id) do update set status = excluded.status`,
    );
    // PostgreSQL 14 has no merge.
    const [server] = await tables.ask(
      `select current_setting('server_version_num')::int >= 150000 as merges`,
    );
    await tables.ask(
      server?.['merges'] === true
        ? `merge into orders o using (values (12, 'paid'), (52, 'paid')) as v(id, status) on o.id = v.id
           when matched then update set status = v.status when not matched then insert values (v.id, v.status, 0)`
        : `with u as (update orders set status = 'paid' where id = 12) insert into orders values (52, 'paid', 0)`,
    );
    await Promise.all([1, 10, 11, 12, 51, 52].map((id) => tables.ran(id)));
    await tables.quiet();
    const ids = tables.runs.map(({ id }) => id as number).sort((a, b) => a - b);
    expect(ids).toEqual([...Array.from({ length: 12 }, (_, at) => at + 1), 51, 52]);
    await tables.ask(`update orders set status = status`);
    await tables.ask(`delete from orders where id > 10`);
    await tables.quiet();
    expect(tables.runs).toHaveLength(14);
    expect(await mill.tasks.count({ sourceDocFilter: { status: 'paid' } })).toBe(10);
  });

  it('a changed primary key ends one task and begins another', async () => {
    const tables = await Tables.make(ORDERS);
    await tables.started({ ...PAID, cleanupPolicy: { keepFor: 0 } });
    await tables.ask(`insert into orders values (1, 'paid', 1)`);
    await tables.ran(1);
    await tables.quiet();
    await tables.ask(`update orders set id = 2`);
    await tables.ran(2);
    await until('the task of the old key is gone', async () => {
      const rows = await tables.ask(`select key from ${tables.schema}.tasks`);
      return rows.length === 1 && rows[0]?.['key'] === '["2"]';
    });
  });

  it('a truncation deletes the tasks of its rows', async () => {
    const tables = await Tables.make(ORDERS);
    await tables.started({ ...PAID, cleanupPolicy: { keepFor: 0 } });
    await tables.ask(`insert into orders values (1, 'paid', 1), (2, 'paid', 1)`);
    await Promise.all([tables.ran(1), tables.ran(2)]);
    await tables.quiet();
    await tables.ask(`truncate orders`);
    await until('no task is left', async () => {
      const [row] = await tables.ask(`select count(*)::int as n from ${tables.schema}.tasks`);
      return row?.['n'] === 0;
    });
    await tables.ask(`insert into orders values (1, 'paid', 1)`);
    await tables.ran(1, 2);
  });

  it.each(['partitions', 'a partition by itself'])(
    'captures writes to %s, through the parent table or directly',
    async (which) => {
      const tables = await Tables.make(
        'create table orders (id integer, region text, status text, primary key (id, region)) partition by list (region)',
        `create table orders_eu partition of orders for values in ('eu')`,
        `create table orders_us partition of orders for values in ('us')`,
      );
      const collection = which === 'partitions' ? 'orders' : 'orders_eu';
      await tables.started({ ...PAID, collection });
      await tables.ask(`insert into orders values (1, 'eu', 'paid')`);
      await tables.ran({ id: 1, region: 'eu' });
      await tables.ask(`insert into orders_eu values (2, 'eu', 'paid')`);
      await tables.ran({ id: 2, region: 'eu' });
      if (which !== 'partitions') return;
      await tables.ask(`create table orders_as partition of orders for values in ('as')`);
      await tables.ask(`insert into orders_as values (3, 'as', 'paid')`);
      await tables.ran({ id: 3, region: 'as' });
      await tables.ask(`update orders set region = 'us' where id = 3`);
      await tables.ran({ id: 3, region: 'us' });
    },
  );

  it("captures writes by a role without rights on Tidemill's schema", async () => {
    const tables = await Tables.make(ORDERS);
    const role = `writer_${tables.data}`;
    await tables.started(PAID);
    await tables.ask(`create role ${role}`);
    await tables.ask(`grant usage on schema ${tables.data} to ${role}`);
    await tables.ask(`grant insert, select on orders to ${role}`);
    const writer = await tables.connection();
    await writer.query(`set role ${role}`);
    await writer.query(`insert into orders values (1, 'paid', 1)`);
    await expect(writer.query(`select * from ${tables.schema}.changes`)).rejects.toThrow(
      /permission denied/u,
    );
    await tables.ran(1);
  });
});

describe('primary keys of watched tables', () => {
  it.each([
    ['uuid', `'6f1c2d3e-0000-4000-8000-00000000abcd'`, '6f1c2d3e-0000-4000-8000-00000000abcd'],
    ['text', `'it''s "quoted", \\ and [1]'`, 'it\'s "quoted", \\ and [1]'],
    ['bigint', '9007199254740993', '9007199254740993'],
    ['bigint', '42', 42],
    ['numeric', '1.50', 1.5],
    ['timestamptz', `'2024-02-29 12:00:00.123456+02'`, '2024-02-29T10:00:00.123456+00:00'],
    ['date', `'2024-02-29'`, '2024-02-29'],
    ['boolean', 'true', true],
    ['char(5)', `'ab'`, 'ab   '],
    ['interval', `'1 day 02:00'`, '1 day 02:00:00'],
    ['bytea', `'\\xdeadbeef'`, '\\xdeadbeef'],
    ['double precision', '0.1', 0.1],
  ])('a primary key of type %s with the value %s is exact', async (type, sql, id) => {
    const tables = await Tables.make(`create table things (id ${type} primary key, n integer)`);
    // The session of a writer may have any settings.
    const writer = await tables.connection();
    await writer.query(
      `set timezone = 'Asia/Tokyo'; set datestyle = 'German'; set intervalstyle = 'iso_8601'; set bytea_output = 'escape'; set extra_float_digits = -5`,
    );
    const mill = await tables.started({ collection: 'things', filter: { n: { $lt: 3 } } });
    await writer.query(`insert into things values (${sql}, 1)`);
    const [run] = await tables.ran(id);
    // A time in the document is a date.
    expect(run?.document).toMatchObject({ id: type === 'timestamptz' ? new Date(id as string) : id, n: 1 });
    expect(await tables.settled(mill, id)).toMatchObject({ sourceDocId: id, _id: { task: 'task', id } });
    await writer.query(`update things set n = 2`);
    await tables.ran(id, 2);
    await writer.query(`delete from things`);
    await until('it has left', async () => {
      const [row] = await tables.ask(`select matched from ${tables.schema}.tasks`);
      return row?.['matched'] === false;
    });
  });

  it('a composite primary key is an object of its columns', async () => {
    const tables = await Tables.make(
      'create table lines (note text, line integer, "order" bigint, primary key ("order", line))',
    );
    const mill = await tables.started({ collection: 'lines' }, MANY);
    await tables.ask(`insert into lines select 'n', n % 7, n from generate_series(1, 2500) n`);
    await tables.ran({ line: 1, order: 1 });
    expect(await tables.settled(mill, { line: 1, order: 1 })).toMatchObject({
      sourceDocId: { line: 1, order: 1 },
    });
    await tables.quiet();
    expect(tables.runs).toHaveLength(2_500);
    await mill.tasks.reconcile('task');
    await until('all were looked at again', () => tables.reconciled.length === 2);
    await tables.quiet();
    expect(tables.runs).toHaveLength(2_500);
  });
});

describe('tables that change under a running mill', () => {
  it.each([
    ['dropped and made anew', [`drop table orders`, ORDERS]],
    ['renamed, and another takes its name', [`alter table orders rename to old_orders`, ORDERS]],
  ])('a table is watched again after it was %s', async (_how, statements) => {
    const tables = await Tables.make(ORDERS);
    await tables.started(PAID);
    await tables.ask(`insert into orders values (1, 'paid', 1)`);
    await tables.ran(1);
    for (const statement of statements) await tables.ask(statement);
    await tables.ask(`insert into orders values (2, 'paid', 1)`);
    await tables.ran(2);
    await tables.ask(`update orders set total = 2 where id = 2`);
    await tables.ran(2, 2);
  });

  it('a pending task runs although a column was added in between', async () => {
    const tables = await Tables.make(ORDERS);
    const mill = await tables.started(PAID);
    await mill.tasks.pause('task');
    await tables.ask(`insert into orders values (1, 'paid', 1)`);
    await until('it is planned', async () => (await mill.tasks.count({ status: 'pending' })) === 1);
    await tables.ask(`alter table orders add column note text default 'x'`);
    await mill.tasks.resume('task');
    const [run] = await tables.ran(1);
    expect(run?.document).toEqual({ id: 1, status: 'paid', total: 1, note: 'x' });
  });

  it('restores triggers that were dropped or disabled', async () => {
    const tables = await Tables.make(ORDERS);
    await tables.started(PAID);
    await tables.ask(`alter table orders disable trigger user`);
    await tables.ask(`insert into orders values (1, 'paid', 1)`);
    await tables.ran(1);
    await tables.ask(`insert into orders values (2, 'paid', 1)`);
    await tables.ran(2);
  });
});

describe('a task held by a transaction', () => {
  it('an open transaction on a task holds up no other, and its row is planned when it ends', async () => {
    const tables = await Tables.make(ORDERS);
    const [inside, go] = [gate(), gate()];
    let held = 0;
    const mill = await tables.started({
      ...PAID,
      handler: async ({ docId, markCompleted }) => {
        if (docId !== 1 || (held += 1) > 1) return;
        await mill.withTransaction(async (transaction) => {
          await markCompleted({ transaction });
          inside.open();
          await go.promise;
        });
      },
    });
    await tables.ask(`insert into orders values (1, 'paid', 1)`);
    await inside.promise;
    await tables.ask(`update orders set total = 2 where id = 1`);
    await tables.ask(`insert into orders values (2, 'paid', 1)`);
    await tables.ran(2);
    go.open();
    await tables.ran(1, 2);
    await tables.quiet();
    expect(tables.errors).toEqual([]);
  });
});
