import { describe, expect, it } from 'vitest';
import { until } from '../../support/mills.js';
import { Tables } from './tables.js';

const ORDERS = 'create table orders (id integer primary key)';
const OTHERS = 'create table others (id integer primary key)';

/** Two tables under one leader, both reconciled once. */
async function watched(): Promise<{ tables: Tables; troubles: () => readonly string[] }> {
  const tables = await Tables.make(ORDERS, OTHERS);
  const mill = tables.mill(tables.store(), { leaseDuration: 1_000 });
  void tables.define(mill, { task: 'orders', collection: 'orders' });
  void tables.define(mill, { task: 'others', collection: 'others' });
  await mill.start();
  await until('both tables were looked at', () => tables.reconciled.length === 2);
  return { tables, troubles: () => mill.health().troubles };
}

const ranOn = (tables: Tables, task: string, id: number): Promise<true> =>
  until(
    () => `${task} ran for ${String(id)}; errors: ${tables.errors.map(String).join('; ')}`,
    () => tables.runs.some((run) => run.task === task && run.id === id),
  );

describe('a table whose triggers are missing', () => {
  it('a table whose triggers cannot be created because of an open transaction holds up no other', async () => {
    const { tables } = await watched();
    const holder = await tables.connection();
    await tables.ask('alter table orders disable trigger user');
    await holder.query('begin');
    await holder.query('insert into orders values (1)');
    await until('the leader has noticed', async () => {
      const [state] = await tables.ask(
        `select wanted from ${tables.schema}.task_states where task = 'orders'`,
      );
      return Number(state?.['wanted']) > 1;
    });
    await tables.ask('insert into others values (1)');
    await ranOn(tables, 'others', 1);
    await holder.query('commit');
    await ranOn(tables, 'orders', 1);
  });

  it('a table without a primary key is a trouble until it has one, and is then planned', async () => {
    const { tables, troubles } = await watched();
    await tables.ask('drop table orders');
    // Without a key its rows cannot be distinguished.
    await tables.ask('create table orders (id integer)');
    await tables.ask('insert into orders values (1)');
    const told = (): boolean => troubles().some((trouble) => trouble.includes('no primary key'));
    await until('the trouble is told', told);
    await tables.ask('insert into others values (1)');
    await ranOn(tables, 'others', 1);
    expect(told()).toBe(true);
    await tables.ask('alter table orders add primary key (id)');
    await ranOn(tables, 'orders', 1);
    await until('the trouble is over', () => !told());
  });
});
