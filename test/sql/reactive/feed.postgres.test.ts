import { expect, it, onTestFinished } from 'vitest';
import type { PostgresStore } from '../../../src/postgres/index.js';
import type { Feed, TaskPlan, Term } from '../../../src/store/reactive.js';
import { until } from '../../support/mills.js';
import { Tables } from './tables.js';

const plan = (collection: string): TaskPlan => ({
  task: collection,
  source: { collection },
  debounce: { waitMs: 0, maxWaitMs: 0 },
  resetRetriesOnDataChange: true,
  cleanup: { deleteWhen: 'never', keepForMs: 0 },
  evolution: { handlerVersion: 1, onHandlerVersionChange: 'none', reconcileOnTriggerChange: true },
});

/** A watched table, planned by nothing but the test. */
async function aTable() {
  const tables = await Tables.make('create table orders (id integer primary key)');
  const [store, holder] = [tables.store(), {}];
  await store.acquire(holder);
  onTestFinished(() => store.release(holder));
  await store.reactive.prepare([plan('orders')]);
  const noted = async (): Promise<number> =>
    (await tables.ask(`select from ${tables.schema}.changes`)).length;
  const isArmed = async (): Promise<boolean> => {
    const [row] = await tables.ask(`select last_value::integer as value from ${tables.schema}.planner_idle`);
    return row?.['value'] === 1;
  };
  return { tables, store, noted, isArmed };
}

const leads = (store: PostgresStore, life: string, from?: number): Promise<Term> =>
  store.reactive.planner.lead({ instanceId: life, life }, from) as Promise<Term>;

async function opened(store: PostgresStore, term: Term): Promise<Feed> {
  const request = { database: undefined, collections: ['orders'], token: undefined, term };
  const feed = await store.reactive.planning.openFeed(request);
  onTestFinished(() => feed.close());
  return feed;
}

it('a resume point passes no change that was read but not delivered', async () => {
  const { tables, store, noted } = await aTable();
  const term = await leads(store, 'a');
  await tables.ask('insert into orders select generate_series(1, 3)');
  const feed = await opened(store, term);
  const save = (): Promise<boolean> => store.reactive.planner.saveTokens(term, { '': feed.token });
  await feed.next();
  await save();
  expect(await noted()).toBe(3);
  await feed.next();
  await save();
  expect(await noted()).toBe(2);
  await feed.next();
  void feed.next().catch(() => undefined);
  await until('the rest has arrived', async () => (await save()) && (await noted()) === 0);
});

it('a leader that wakes late does not clear the wake-up flag of its successor', async () => {
  const { store, isArmed } = await aTable();
  const late = await opened(store, await leads(store, 'a'));
  void late.next().catch(() => undefined);
  await until('it asks to be woken', isArmed);
  const current = await opened(store, await leads(store, 'b', 1));
  void current.next().catch(() => undefined);
  await until('the successor asks to be woken', isArmed);
  await late.close();
  expect(await isArmed()).toBe(true);
});
