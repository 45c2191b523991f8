import { randomBytes } from 'node:crypto';
import { expect, it } from 'vitest';
import { sql } from '../../../src/postgres/index.js';
import type { TaskPlan } from '../../../src/store/reactive/reactive.js';
import {
  encoded,
  fromStoredPlan,
  storedFilter,
  toStoredPlan,
} from '../../../src/sql/reactive/plan/stored-plan.js';
import { until } from '../../support/mills.js';
import { Tables } from './tables.js';

const aPlan = (filter?: unknown): TaskPlan => ({
  task: 'task',
  source: { collection: 'public.orders' },
  ...(filter === undefined ? {} : { filter }),
  debounce: { waitMs: 0, maxWaitMs: 0 },
  resetRetriesOnDataChange: true,
  cleanup: { deleteWhen: 'never', keepForMs: 0 },
  evolution: { handlerVersion: 1, onHandlerVersionChange: 'none', reconcileOnTriggerChange: true },
});

const stored = (plan: TaskPlan): Record<string, unknown> =>
  JSON.parse(toStoredPlan(plan)) as Record<string, unknown>;
const again = (plan: TaskPlan): TaskPlan => fromStoredPlan(stored(plan));

it.each([
  undefined,
  { status: 'paid', at: { $gt: new Date('2026-01-01') } },
  sql`true`,
  sql`total > ${100} and at < ${new Date('2026-01-01')} and big = ${9_007_199_254_740_993n} and name = ${'1'} and ${true}`,
])('a stored definition comes back with its filter: %o', (filter) => {
  expect(again(aPlan(filter))).toEqual(aPlan(filter));
});

it('stores an SQL fragment in its own field, beside the form that older instances read', () => {
  expect(stored(aPlan(sql`total > ${100}`))).toMatchObject({
    filterSql: { text: 'total > $1', values: [100] },
    filter: { sql: 'total > $1', values: [100] },
  });
});

it('stores a comparison with a column named sql so that no instance takes it for a fragment', () => {
  expect(stored(aPlan({ sql: '1=0' }))['filter']).toEqual({ $and: [{ sql: '1=0' }] });
  expect(again(aPlan({ sql: '1=0' })).filter).toEqual({ $and: [{ sql: '1=0' }] });
});

it('reads a fragment that an older instance stored', () => {
  const plan = { ...aPlan(), filter: { sql: 'total > $1 or total = $1', values: [100] } };
  const { text, values } = fromStoredPlan(JSON.parse(JSON.stringify(plan))).filter as ReturnType<typeof sql>;
  expect([text, values]).toEqual(['total > $1 or total = $1', [100]]);
});

it('plans a definition with a fragment that another service, also an older one, has stored', async () => {
  const tables = await Tables.make('create table orders (id integer primary key, total integer)');
  const task = `other_${randomBytes(3).toString('hex')}`;
  const service = tables.mill();
  await service.reactiveTask({
    task,
    collection: 'orders',
    debounce: 0,
    filter: sql`total > ${100}`,
    handler: () => undefined,
  });
  await service.start({ roles: ['work'] });
  const [row] = await tables.ask(`select plan, trigger from ${tables.schema}.definitions`);
  expect(row?.['plan']).toMatchObject({ filterSql: { text: 'total > $1', values: [100] } });
  // As an older instance would have stored it.
  await tables.ask(`update ${tables.schema}.definitions set plan = plan - 'filterSql'`);

  const leader = tables.mill();
  await leader.start({ roles: ['plan', 'maintain'] });
  await tables.ask('insert into orders values (1, 50), (2, 200)');
  await until(
    'the matching row was handled',
    async () => (await leader.tasks.count({ task, status: 'completed' })) === 1,
  );
  await tables.quiet();
  const { items } = await leader.tasks.find({ task });
  expect(items.map(({ sourceDocId }) => sourceDocId)).toEqual([2]);
  expect(tables.errors).toEqual([]);
});

it('identifies a fragment by its older form, so that an upgrade reconciles nothing', () => {
  expect(encoded(storedFilter(sql`total > ${100}`))).toBe('{"sql":"total > $1","values":[100]}');
  expect(encoded(storedFilter(sql`true`))).toBe('{"sql":"true"}');
});
