import { expect, it } from 'vitest';
import { until } from '../../support/mills.js';
import { Tables } from './tables.js';

const TABLES = ['y24', 'y25'].map((name) => `create table ${name} (id integer primary key, kind text)`);
const ROWS = ['y24', 'y25'].map((name) => `insert into ${name} values (1, 'new'), (2, 'new')`);

/** Deploys the task on a table, and waits for the given number of runs. */
async function deployed(tables: Tables, collection: string, runs: number): Promise<void> {
  const before = tables.runs.length;
  const mill = tables.mill();
  void tables.define(mill, { collection, watchProjection: { kind: 1 } });
  await mill.start();
  await until('all have run', () => tables.runs.length === before + runs);
  await tables.quiet();
  await mill.stop();
}

/** As if left by an instance that does not record the table of a task. */
const asBefore = async (tables: Tables): Promise<void> => {
  await tables.ask(`update ${tables.schema}.tasks set source = null`);
  await tables.ask(`update ${tables.schema}.task_states set origin = $1`, [`${tables.data}.y24`]);
};

it('tasks of an earlier version run again only if their task moves to another table', async () => {
  const tables = await Tables.make(...TABLES, ...ROWS);
  await deployed(tables, 'y24', 2);
  await asBefore(tables);
  await tables.ask(`insert into y24 values (3, 'new')`);
  await deployed(tables, 'y24', 1);
  expect(tables.runs.map(({ id }) => id)).toEqual(expect.arrayContaining([1, 2, 3]));
  await asBefore(tables);
  await deployed(tables, 'y25', 2);
});

it('a table name with its schema means the same table', async () => {
  const tables = await Tables.make(...TABLES, ...ROWS);
  await deployed(tables, 'y24', 2);
  await tables.ask(`insert into y24 values (3, 'new')`);
  await deployed(tables, `${tables.data}.y24`, 1);
});

it('a task that moves to another table keeps nothing of an earlier failure', async () => {
  const tables = await Tables.make(...TABLES, ...ROWS);
  const mill = tables.mill();
  void tables.define(mill, {
    collection: 'y24',
    retryPolicy: { type: 'fixed', interval: 1, maxAttempts: 1, resetRetriesOnDataChange: false },
    handler: () => {
      throw new Error('on purpose');
    },
  });
  await mill.start();
  await tables.settled(mill, 1, 'failed');
  await mill.stop();
  const next = tables.mill();
  void tables.define(next, { collection: 'y25' });
  await next.start();
  const task = await tables.settled(next, 1);
  expect(task).toMatchObject({ attempts: 1 });
  expect(task.executionHistory?.map(({ status }) => status)).toEqual(['completed']);
});
