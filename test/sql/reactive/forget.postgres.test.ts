import { expect, it } from 'vitest';
import { Tables } from './tables.js';

const triggersOf = async (tables: Tables, table: string): Promise<number> => {
  const [row] = await tables.ask(
    `select count(*)::int as n from pg_trigger where tgrelid = $1::regclass and not tgisinternal`,
    [`${tables.data}.${table}`],
  );
  return row?.['n'] as number;
};

it('forget drops the triggers of a table only if no other task is defined on it', async () => {
  const tables = await Tables.make('create table orders (id integer primary key, status text)');
  const mill = tables.mill();
  await tables.define(mill, { task: 'first', collection: 'orders' });
  await tables.define(mill, { task: 'second', collection: 'orders' });
  await mill.start();
  await mill.stop();
  const tool = tables.mill();
  expect(await triggersOf(tables, 'orders')).toBeGreaterThan(0);
  await tool.tasks.forget('first');
  expect(await triggersOf(tables, 'orders')).toBeGreaterThan(0);
  await tool.tasks.forget('second');
  expect(await triggersOf(tables, 'orders')).toBe(0);
  expect(
    await tables.ask(
      `select p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace
       where n.nspname = $1 and starts_with(p.proname, 'capture_')`,
      [tables.schema],
    ),
  ).toEqual([]);
  expect(await tables.ask(`select * from ${tables.schema}.sources`)).toEqual([]);
});

it('forget removes a task whose table is gone', async () => {
  const tables = await Tables.make('create table orders (id integer primary key, status text)');
  const mill = tables.mill();
  await tables.define(mill, { task: 'first', collection: 'orders' });
  await mill.start();
  await mill.stop();
  await tables.ask('drop table orders');
  await tables.mill().tasks.forget('first');
  expect(await tables.ask(`select * from ${tables.schema}.definitions`)).toEqual([]);
});
