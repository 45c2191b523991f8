import { expect, it, onTestFinished } from 'vitest';
import type { PostgresStore } from '../../../src/postgres/index.js';
import { mergeStates } from '../../../src/reactive/planner/partitions/division.js';
import type { Partitioning, PartitionStore } from '../../../src/store/reactive/partitions.js';
import type { Feed, FeedEvent, TaskPlan, Term } from '../../../src/store/reactive/reactive.js';
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

/** Two partitions, each with a leader and a feed. */
async function divided(
  store: PostgresStore,
): Promise<readonly { readonly partition: PartitionStore; readonly term: Term; readonly feed: Feed }[]> {
  const partitioning = store.reactive.partitioning as Partitioning;
  const first = await leads(store, 'a');
  await partitioning.divide(first, { from: 1, to: 2, ended: new Map(), merge: mergeStates });
  const opening = [first.term + 1, 1].map(async (from, index) => {
    const partition = partitioning.within({ index, of: 2 });
    const life = `life-${String(index)}`;
    const term = (await partition.planner.lead({ instanceId: life, life }, from)) as Term;
    const request = { database: undefined, collections: ['orders'], token: undefined, term };
    const feed = await partition.planning.openFeed(request);
    onTestFinished(() => feed.close());
    return { partition, term, feed };
  });
  return Promise.all(opening);
}

it('the reader of a partition deletes what it has planned, and leaves the changes of others', async () => {
  const { tables, store, noted } = await aTable();
  const parts = await divided(store);
  await tables.ask('insert into orders select generate_series(1, 2500)');
  await tables.ask('truncate orders');
  const seen = parts.map((): FeedEvent[] => []);
  for (const [at, { partition, term, feed }] of parts.entries()) {
    const events = seen[at] as FeedEvent[];
    void (async () => {
      for (;;) events.push(await feed.next());
    })().catch(() => undefined);
    const others = seen.slice(0, at).reduce((sum, one) => sum + one.length, 0);
    const save = (): Promise<boolean> => partition.planner.saveTokens(term, { '': feed.token });
    await until('it has deleted its own', async () => {
      await save();
      return events.length > 1_000 && (await noted()) === 2_501 - others - events.length;
    });
  }
  expect(await noted()).toBe(0);
  const keys = seen.flat().flatMap((event) => (event.kind === 'change' ? [event.change.key] : []));
  expect(new Set(keys).size).toBe(2_500);
  expect(keys).toHaveLength(2_500);
  // What concerns the whole table is reported once: its request for reconciliation reaches every partition.
  expect(seen.map((events) => events.filter(({ kind }) => kind === 'upheaval').length)).toEqual([1, 0]);
});

it('writers wake the planner while the reader of any partition is idle', async () => {
  const { store, tables, isArmed } = await aTable();
  const [one, other] = await divided(store);
  void one?.feed.next().catch(() => undefined);
  void other?.feed.next().catch(() => undefined);
  const idle = `select from ${tables.schema}.planner where idle union all
    select from ${tables.schema}.planner_partitions where idle`;
  await until('both ask to be woken', async () => (await tables.ask(idle)).length === 2);
  expect(await isArmed()).toBe(true);
  await one?.feed.close();
  expect(await isArmed()).toBe(true);
  await other?.feed.close();
  await until('none asks any more', async () => !(await isArmed()));
});
