import { describe, expect, it } from 'vitest';
import { until } from '../../support/mills.js';
import { sql } from '../../../src/postgres/index.js';
import { Tables } from './tables.js';

const ORDERS = 'create table orders (id integer primary key, status text, total numeric, info jsonb)';

describe('reactiveTask on PostgreSQL: bad definitions', () => {
  it.each([
    [
      'a view',
      [`create view seen as select 1 as id`],
      { collection: 'seen' },
      /is a view.*name the table behind it/u,
    ],
    [
      'a materialized view',
      [`create materialized view seen as select 1 as id`],
      { collection: 'seen' },
      /materialized view/u,
    ],
    [
      'no primary key',
      [`create table bare (id integer)`],
      { collection: 'bare' },
      /no primary key.*ADD PRIMARY KEY/u,
    ],
    [
      'inheritance',
      [`create table a (id integer primary key)`, `create table b () inherits (a)`],
      { collection: 'a' },
      /children by inheritance/u,
    ],
    [
      'no such table',
      [ORDERS],
      { collection: 'order' },
      /no table "order" on the search path\. Did you mean "orders"\?/u,
    ],
    ['no such schema', [ORDERS], { collection: 'sales.orders' }, /no table "orders" in the schema "sales"/u],
    [
      'no such column',
      [ORDERS],
      { collection: 'orders', filter: { stats: 1 } },
      /no column "stats"\. Did you mean "status"\?/u,
    ],
    [
      'no such column to watch',
      [ORDERS],
      { collection: 'orders', watchProjection: { totl: 1 } },
      /Did you mean "total"\?/u,
    ],
    [
      'a fragment that the server does not take',
      [ORDERS],
      { collection: 'orders', filter: sql`totals > 1` },
      /refuses filter or watchProjection: column "totals" does not exist/u,
    ],
    [
      'a value that is none of the type',
      ['create table events (id integer primary key, at timestamptz)'],
      { collection: 'events', filter: { at: { $gt: 'soon' } } },
      /refuses filter or watchProjection: invalid input syntax/u,
    ],
    [
      'a value of another type',
      [ORDERS],
      { collection: 'orders', filter: sql`total > ${'x'}` },
      /refuses filter/u,
    ],
  ])('start rejects a task on a table with a problem: %s', async (_what, statements, definition, message) => {
    const tables = await Tables.make(...statements);
    const mill = tables.mill();
    void tables.define(mill, definition);
    await expect(mill.start()).rejects.toThrow(message);
  });

  it.each([
    [{ collection: 'orders', database: 'other' }, /database applies to MongoDB only.*'sales\.orders'/u],
    [{ collection: 'a.b.c' }, /such as 'orders' or 'sales\.orders'/u],
    [{ collection: 'orders', watchProjection: { total: 0 } }, /must not exclude "total"/u],
    [{ collection: 'orders', watchProjection: { total: { $add: [1, 2] } } }, /must not compute "total"/u],
    [{ collection: 'orders', watchProjection: {} }, /must name columns/u],
    [{ collection: 'orders', filter: { total: { $regex: 'a' } } }, /\$regex, which has no translation/u],
  ])('reactiveTask on PostgreSQL rejects %o', async (definition, message) => {
    const tables = await Tables.make(ORDERS);
    const mill = tables.mill();
    expect(() => mill.reactiveTask({ task: 't', handler: () => undefined, ...definition })).toThrow(message);
  });

  it('createTriggers: false rejects with the statements to run, and works after they ran', async () => {
    const tables = await Tables.make(ORDERS);
    const careful = tables.mill(tables.store({ createTriggers: false }));
    void tables.define(careful, { collection: 'orders' });
    const error = await careful.start().then(
      () => undefined,
      (problem: unknown) => problem as Error,
    );
    expect(error?.message).toMatch(/createTriggers is off\. Run this as its owner/u);
    await tables.ask(error?.message.slice(error.message.indexOf('\n')) ?? '');
    const mill = tables.mill(tables.store({ createTriggers: false }));
    void tables.define(mill, { collection: 'orders' });
    await mill.start();
    await tables.ask(`insert into orders values (1)`);
    await tables.ran(1);
  });
});

describe('hostile names of tables and columns', () => {
  it.each([
    [`it's`, `id"; drop table x; --`],
    [`a.b"c`, `"`],
    ['$1', `') or true; --`],
    ['ORDER', 'select'],
    ['ünï $$ code', `\\'`],
  ])('watches a table named %s with a column named %s', async (table, column) => {
    const quote = (name: string): string => `"${name.replaceAll('"', '""')}"`;
    const tables = new Tables(`Odd "schema" 'of' ${Math.random().toString(36).slice(2)}`);
    await tables.ask(`create schema ${tables.data}`);
    await tables.ask(`create table ${quote(table)} (${quote(column)} text primary key, "va'l\\ue" jsonb)`);
    const mill = tables.mill();
    void tables.define(mill, {
      task: `task '";--$1`,
      collection: quote(table),
      filter: { "va'l\\ue.k'\"\\.x": { $ne: `'); drop table y; --` }, [column]: { $gte: '' } },
      watchProjection: { [column]: 1, "va'l\\ue.k'\"\\.x": 1 },
    });
    await mill.start();
    const key = `'"; -- \\ $1 \u{1F600}`;
    await tables.ask(`insert into ${quote(table)} values ($1, $2)`, [key, { 'k\'"\\': { x: 1 } }]);
    const [run] = await tables.ran(key);
    expect(run?.values).toEqual({ [column]: key, "va'l\\ue": { 'k\'"\\': { x: 1 } } });
    expect(run?.document).toEqual({ [column]: key, "va'l\\ue": { 'k\'"\\': { x: 1 } } });
    expect(await mill.tasks.count({ sourceDocFilter: { [column]: key } })).toBe(1);
    expect(tables.errors).toEqual([]);
  });
});

describe('rows on which the SQL filter errors', () => {
  it('parks a row on which the SQL filter errors, and runs the rest of the batch', async () => {
    const tables = await Tables.make(ORDERS);
    const mill = await tables.started({ collection: 'orders', filter: sql`100 / total > 1` });
    await tables.ask(`insert into orders select n, 'x', n - 5 from generate_series(1, 20) n`);
    await tables.ran(20);
    await tables.quiet();
    expect(tables.runs.map(({ id }) => id as number).sort((a, b) => a - b)).toEqual(
      Array.from({ length: 15 }, (_, at) => at + 6),
    );
    const task = await tables.settled(mill, 5, 'failed');
    expect(task.lastError).toMatch(/could not be planned: division by zero/u);
    await tables.ask(`update orders set total = 1 where id = 5`);
    await tables.ran(5);
  });
});

async function functionsOf(tables: Tables): Promise<unknown> {
  const [row] = await tables.ask(
    `select count(*)::int as n from pg_proc where pronamespace = $1::regnamespace and proname like 'capture%'`,
    [tables.schema],
  );
  return row?.['n'];
}

describe('leftover triggers', () => {
  it('leftoverTables lists unused triggers, and dropTriggers drops them unless a task runs', async () => {
    const tables = await Tables.make(ORDERS);
    const mill = await tables.started({ collection: 'orders' });
    const store = tables.store();
    const holder = {};
    await store.acquire(holder);
    expect(await store.leftoverTables()).toEqual([]);
    await expect(store.dropTriggers('orders')).rejects.toThrow(/live instances run task on this table/u);
    await mill.stop();
    await until('it is a leftover', async () => (await store.leftoverTables()).length === 1);
    expect(await store.leftoverTables()).toEqual([`${tables.data}.orders`]);
    expect(await store.dropTriggers('orders')).toBe(true);
    expect(await store.dropTriggers('orders')).toBe(false);
    expect(await store.leftoverTables()).toEqual([]);
    await tables.ask(`insert into orders values (1)`);
    expect(await tables.ask(`select * from ${tables.schema}.changes`)).toEqual([]);
    expect(await functionsOf(tables)).toBe(0);
    await store.release(holder);
  });

  it('dropTriggers drops the function as well, unless a renamed table still uses it', async () => {
    const tables = await Tables.make(ORDERS);
    const mill = await tables.started({ collection: 'orders' });
    await mill.stop();
    const change = 'alter table orders alter column id type bigint';
    // PostgreSQL names the trigger that depends on the column.
    const refusal = await tables.ask(change).catch((error: unknown) => error as { detail: string });
    const detail = 'detail' in refusal ? refusal.detail : '';
    const [, named = ''] = /trigger (?<name>\S+) on table/u.exec(detail) ?? [];
    await tables.ask(`drop trigger ${named} on orders; ${change}`);
    await (await tables.started({ collection: 'orders' })).stop();
    expect(await functionsOf(tables)).toBe(1);
    await tables.ask(`alter table orders rename to orders_before`);
    await tables.ask(`create table orders (id bigint primary key)`);
    await (await tables.started({ collection: 'orders' })).stop();
    const store = tables.store();
    const holder = {};
    await store.acquire(holder);
    expect(await store.dropTriggers('orders')).toBe(true);
    expect(await functionsOf(tables)).toBe(1);
    expect(await store.dropTriggers('orders_before')).toBe(true);
    expect(await functionsOf(tables)).toBe(0);
    await store.release(holder);
  });

  it('a planner does not recreate dropped triggers of an absent service', async () => {
    const tables = await Tables.make(ORDERS, 'create table items (id integer primary key)');
    const planner = await tables.started({ collection: 'orders' });
    const service = tables.mill();
    await tables.define(service, { task: 'absent', collection: 'items' });
    await service.start();
    await tables.ask('insert into items values (1)');
    await tables.ran(1);
    await service.stop();
    const store = tables.store();
    const holder = {};
    await store.acquire(holder);
    await until('it is a leftover', async () => (await store.leftoverTables()).length === 1);
    expect(await store.dropTriggers('items')).toBe(true);
    // The planner inspects all tables from time to time: when it has repaired one, it has seen the other.
    const triggers = (table: string): Promise<Record<string, unknown>[]> =>
      tables.ask(`select tgname from pg_trigger where tgrelid = $1::regclass and not tgisinternal`, [table]);
    for (const { tgname } of await triggers('orders'))
      await tables.ask(`drop trigger ${String(tgname)} on orders`);
    await until('the planner has looked', async () => (await triggers('orders')).length > 0);
    expect(await triggers('items')).toEqual([]);
    expect(await store.leftoverTables()).toEqual([]);
    expect(planner.health().leader).toBe(true);
    await store.release(holder);
  });

  it('triggers dropped while an instance registers are recreated, and no change is missed', async () => {
    const tables = await Tables.make(ORDERS);
    await (await tables.started({ collection: 'orders' })).stop();
    const other = tables.store();
    const holder = {};
    await other.acquire(holder);
    const store = tables.store();
    const register = store.instances.register.bind(store.instances);
    let dropped: boolean | undefined;
    store.instances.register = async (registration) => {
      dropped ??= await other.dropTriggers('orders');
      await tables.ask('insert into orders values (1)');
      return register(registration);
    };
    const mill = tables.mill(store);
    await tables.define(mill, { collection: 'orders' });
    await mill.start();
    await tables.ran(1);
    expect(dropped).toBe(true);
    await tables.ask('insert into orders values (2)');
    await tables.ran(2);
    await other.release(holder);
  });
});

describe('values of watched rows', () => {
  it('rows arrive as JSON values, with zoned times as dates and long numbers as text', async () => {
    const tables = await Tables.make(
      `create table wide (id integer primary key, big bigint, small bigint, money numeric, at timestamptz, local timestamp,
        day date, never timestamptz, list integer[], info jsonb, raw bytea, nothing text)`,
    );
    await tables.started({ collection: 'wide' });
    await tables.ask(
      `insert into wide values (1, 9223372036854775807, 5, 12345678901234567890.12, '2024-01-02T03:04:05.678Z', '2024-01-02 03:04',
        '2024-01-02', 'infinity', '{1,2}', '{"at":"2024-01-01","n":9007199254740993}', '\\x00ff', null)`,
    );
    const [run] = await tables.ran(1);
    const expected = {
      id: 1,
      big: '9223372036854775807',
      small: 5,
      money: '12345678901234567890.12',
      at: new Date('2024-01-02T03:04:05.678Z'),
      local: '2024-01-02T03:04:00',
      day: '2024-01-02',
      never: 'infinity',
      list: [1, 2],
      info: { at: '2024-01-01', n: '9007199254740993' },
      raw: '\\x00ff',
      nothing: null,
    };
    expect(run?.document).toEqual(expected);
    expect(run?.values).toEqual(expected);
  });
});
