import { describe, expect, it } from 'vitest';
import { until } from '../../support/mills.js';
import { Tables } from './tables.js';

const WHOLE = 'create table orders (id integer primary key, status text) partition by range (id)';
const PART = 'create table orders_1 partition of orders for values from (0) to (100)';
const PLAIN = 'create table orders (id integer primary key, status text)';
const PAID = { collection: 'orders', filter: { status: 'paid' }, watchProjection: { status: 1 } } as const;
const ATTACH = 'alter table orders attach partition orders_2 for values from (100) to (200)';

const matched = async (tables: Tables): Promise<readonly unknown[]> =>
  (await tables.ask(`select matched from ${tables.schema}.tasks order by key`)).map((row) => row['matched']);

/** A mill that has come and gone, so that only what its successor finds at its start counts. */
async function visited(tables: Tables): Promise<void> {
  const mill = await tables.started(PAID);
  await tables.ask(`insert into orders values (1, 'paid')`);
  await tables.ran(1);
  await mill.stop();
  tables.reconciled.length = 0;
}

describe('changes that no trigger captured', () => {
  it.each([
    [
      'in a partition that was attached with rows in it',
      [WHOLE, PART],
      [
        'create table orders_2 (like orders including all)',
        `insert into orders_2 values (102, 'paid')`,
        ATTACH,
      ],
      102,
    ],
    [
      'in a partition that was detached, written to and attached again',
      [WHOLE, PART, 'create table orders_2 partition of orders for values from (100) to (200)'],
      ['alter table orders detach partition orders_2', `insert into orders_2 values (102, 'paid')`, ATTACH],
      102,
    ],
    [
      'in a partition whose triggers were off for a moment',
      [WHOLE, PART],
      [
        'alter table orders_1 disable trigger user',
        `insert into orders values (2, 'paid')`,
        'alter table orders_1 enable trigger user',
      ],
      2,
    ],
    [
      'where triggers were off for a moment',
      [PLAIN],
      [
        'alter table orders disable trigger user',
        `insert into orders values (2, 'paid')`,
        'alter table orders enable trigger user',
      ],
      2,
    ],
    [
      'where triggers were left to replication',
      [PLAIN],
      [
        `do $$ declare name text; begin for name in select tgname from pg_trigger where tgrelid = 'orders'::regclass loop
          execute format('alter table orders enable replica trigger %I', name); end loop; end $$`,
        `insert into orders values (2, 'paid')`,
      ],
      2,
    ],
    [
      'where a column was rewritten as the same type',
      [PLAIN, `insert into orders values (2, 'PAID')`],
      ['alter table orders alter column status type text using lower(status)'],
      2,
    ],
    [
      'where the expression of a generated column is another one',
      [
        `create table orders (id integer primary key, given text, status text generated always as (given) stored)`,
        `insert into orders (id, given) values (2, 'PAID')`,
      ],
      ['alter table orders alter column status set expression as (lower(given))'],
      2,
    ],
  ])('finds rows that changed without a trigger: %s', async (_what, before, during, id) => {
    const tables = await Tables.make(...before);
    const first = await tables.started(PAID);
    await first.stop();
    for (const statement of during) await tables.ask(statement);
    tables.reconciled.length = 0;
    await tables.started(PAID);
    await tables.ran(id);
  });

  it.each([
    ['an enum', []],
    ['an enum in an array', ['alter table orders add column past mood[]']],
    [
      'an enum behind a domain',
      [
        'create domain feeling as mood',
        'create domain feelings as feeling[]',
        'alter table orders add past feelings',
      ],
    ],
  ])('reconciles after a label of %s was renamed', async (_what, statements) => {
    const tables = await Tables.make(
      `create type mood as enum ('bad', 'paid')`,
      `create table orders (id integer primary key, status ${statements.length === 0 ? 'mood' : 'text'})`,
      ...statements,
    );
    await visited(tables);
    await tables.ask(`alter type mood rename value 'bad' to 'good'`);
    await (await tables.started(PAID)).stop();
    expect(tables.reconciled).toHaveLength(1);
  });

  it('finds a partition that was truncated by itself, and its rows run when they return', async () => {
    const tables = await Tables.make(WHOLE, PART);
    await visited(tables);
    await tables.ask('truncate orders_1');
    await tables.started(PAID);
    expect(await matched(tables)).toEqual([false]);
    await tables.ask(`insert into orders values (1, 'paid')`);
    await tables.ran(1, 2);
  });

  it('finds uncaptured changes while a leader plans, also repeatedly', async () => {
    const tables = await Tables.make(PLAIN);
    await tables.started(PAID);
    const unseen = async (id: number): Promise<void> => {
      await tables.ask('alter table orders disable trigger user');
      await tables.ask('insert into orders values ($1, $2)', [id, 'paid']);
      await tables.ask('alter table orders enable trigger user');
    };
    await unseen(1);
    await tables.ran(1);
    await unseen(2);
    await tables.ran(2);
    expect(tables.errors).toEqual([]);
  });

  it('does not reconcile after VACUUM FULL, a new index or ANALYZE', async () => {
    const tables = await Tables.make(PLAIN);
    await visited(tables);
    await tables.ask('vacuum full orders');
    await tables.ask('create index on orders (status)');
    await tables.ask('analyze orders');
    const mill = tables.mill();
    void tables.define(mill, PAID);
    await mill.start();
    await tables.ask(`insert into orders values (2, 'paid')`);
    await tables.ran(2);
    expect(tables.reconciled).toEqual([]);
  });

  it('records a fingerprint for a table of an older version without reconciling it', async () => {
    const tables = await Tables.make(PLAIN);
    await visited(tables);
    await tables.ask(`update ${tables.schema}.sources set fingerprint = null`);
    const mill = tables.mill();
    void tables.define(mill, PAID);
    await mill.start();
    await mill.stop();
    expect(tables.reconciled).toEqual([]);
    const [kept] = await tables.ask(`select fingerprint from ${tables.schema}.sources`);
    expect(kept?.['fingerprint']).toEqual(expect.any(String));
  });
});

describe('row-level security that hides rows from the store', () => {
  /** A separate role for the store, which owns neither the table nor everything. */
  async function secured(): Promise<{ tables: Tables; role: string; url: string }> {
    const tables = await Tables.make(PLAIN);
    const role = `worker_${tables.data}`;
    await tables.ask(`create role ${role} login`);
    await tables.ask(`create schema ${tables.schema} authorization ${role}`);
    await tables.ask(`grant usage on schema ${tables.data} to ${role}`);
    await tables.ask(`grant select, trigger on orders to ${role}`);
    const url = new URL(tables.url);
    url.username = role;
    url.password = '';
    return { tables, role, url: url.href };
  }

  it('start rejects a table whose row-level security hides rows, with the fix', async () => {
    const { tables, role, url } = await secured();
    await tables.ask('alter table orders enable row level security');
    const mill = tables.mill(tables.store({ url }));
    void tables.define(mill, PAID);
    await expect(mill.start()).rejects.toThrow(/row-level security hides rows.*ALTER ROLE … BYPASSRLS/su);
    await tables.ask(`alter role ${role} bypassrls`);
    const allowed = tables.mill(tables.store({ url }));
    void tables.define(allowed, PAID);
    await allowed.start();
    await tables.ask(`insert into orders values (1, 'paid')`);
    await tables.ran(1);
  });

  it('row-level security that is enabled later stops the task with the reason, and loses nothing', async () => {
    const { tables, url } = await secured();
    const mill = tables.mill(tables.store({ url }));
    void tables.define(mill, PAID);
    await mill.start();
    await tables.ask(`insert into orders values (1, 'paid')`);
    await tables.ran(1);
    await tables.quiet();
    await tables.ask('alter table orders enable row level security');
    await tables.ask(`insert into orders values (2, 'paid'); update orders set status = 'paid' where id = 1`);
    await until('the reason is told', () =>
      tables.errors.some(({ message }) => /row-level security hides rows/u.test(message)),
    );
    expect(await matched(tables)).toEqual([true]);
    await tables.ask('alter table orders disable row level security');
    await tables.ran(2);
    expect(tables.of(1)).toHaveLength(1);
  });
});
