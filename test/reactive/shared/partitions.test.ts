import { expect, it, onTestFinished } from 'vitest';
import type { Tidemill } from '../../../src/index.js';
import type { MillEvents } from '../../../src/mill/events.js';
import type { Partitioning } from '../../../src/store/reactive/partitions.js';
import type { TaskPlan, TaskState, Term } from '../../../src/store/reactive/reactive.js';
import { mergeStates } from '../../../src/reactive/planner/partitions/division.js';
import { until } from '../../support/mills.js';
import { collect, keepLines } from '../mills.js';
import { eachPlanner, type TestDatabase } from './test-databases.js';

const FAST = { pollInterval: { min: 10, max: 200 } } as const;

type Gained = MillEvents['leader:gained'];

/** An instance with one task on `things`, which notes what it ran. */
class Planning {
  readonly runs: number[] = [];
  readonly #database: TestDatabase;

  constructor(database: TestDatabase) {
    this.#database = database;
  }

  async mill(
    partitions: number,
    options: Parameters<TestDatabase['mill']>[0] = {},
  ): Promise<{
    readonly mill: Tidemill;
    readonly gained: Gained[];
    readonly lost: MillEvents['leader:lost'][];
  }> {
    const mill = this.#database.mill({ ...FAST, reactive: { partitions, concurrency: 20 }, ...options });
    const [gained, lost] = [collect(mill, 'leader:gained'), collect(mill, 'leader:lost')];
    await mill.reactiveTask({
      task: 't',
      collection: 'things',
      debounce: 0,
      handler: ({ docId }) => void this.runs.push(docId as number),
    });
    return { mill, gained, lost };
  }

  insert(from: number, to: number): Promise<unknown> {
    return this.#database.docs.insertMany(
      Array.from({ length: to - from }, (_, index) => ({ _id: from + index, n: 1 })),
    );
  }

  /** Every thing so far has run, and none of them twice. */
  async ranOnce(count: number): Promise<void> {
    const { count: countOf } = this.#database;
    const completed = { task: 't', status: 'completed' } as const;
    await until(`${String(count)} things ran`, async () => (await countOf(completed)) >= count);
    expect(new Set(this.runs).size).toBe(count);
    expect(this.runs).toHaveLength(count);
  }
}

type Led = Awaited<ReturnType<Planning['mill']>>;

/** The partitions that an instance leads, by what it has said. */
const led = ({ gained, lost }: Led): readonly number[] => {
  const count = (events: readonly { readonly partition: number }[], index: number): number =>
    events.filter(({ partition }) => partition === index).length;
  return [...new Set(gained.map(({ partition }) => partition))]
    .filter((index) => count(gained, index) > count(lost, index))
    .sort((a, b) => a - b);
};

const spread = (...mills: readonly Led[]): string => JSON.stringify(mills.map(led).sort());

/** The number of partitions in force, once no change is under way. */
const inForce = async (database: TestDatabase): Promise<number | undefined> => {
  const store = database.store();
  const holder = {};
  await store.acquire(holder);
  try {
    const { leader } = await store.instances.list();
    return (leader?.next ?? null) === null ? (leader?.partitions ?? 1) : undefined;
  } finally {
    await store.release(holder);
  }
};

eachPlanner('partitions', (aDatabase) => {
  it('two instances plan a partition each, and every change is planned once', async () => {
    const database = await aDatabase();
    const planning = new Planning(database);
    const [one, other] = [await planning.mill(2), await planning.mill(2)];
    await planning.insert(0, 50);
    await Promise.all([one.mill.start(), other.mill.start()]);
    await until('each leads one', () => spread(one, other) === '[[0],[1]]');
    await planning.insert(50, 200);
    await planning.ranOnce(200);
    expect([one, other].filter(({ mill }) => mill.health().leader)).toHaveLength(1);
  });

  it('reconciles each document in one partition only', async () => {
    const database = await aDatabase();
    const planning = new Planning(database);
    const [one, other] = [await planning.mill(3), await planning.mill(3)];
    const processed: number[] = [];
    for (const { mill } of [one, other])
      mill.on('reconcile:complete', (event) => processed.push(event.processed));
    await planning.insert(0, 90);
    await Promise.all([one.mill.start(), other.mill.start()]);
    await until('all are led', () => [...led(one), ...led(other)].length === 3);
    await planning.ranOnce(90);
    await until('nothing is left to reconcile', async () => {
      const { reconciling } = await one.mill.tasks.planning();
      return reconciling.length === 0;
    });
    const before = processed.length;
    await one.mill.tasks.reconcile('t');
    // An event of an earlier pass may be late: the last three are those of this one.
    const last = (): readonly number[] => processed.slice(before).slice(-3);
    await until('the passes of all partitions have seen each document once', () => {
      return last().length === 3 && last().reduce((sum, count) => sum + count, 0) === 90;
    });
    expect(Math.min(...last())).toBeGreaterThan(0);
    expect(planning.runs).toHaveLength(90);
  });

  it('partitions move to an instance that joins and back when it stops, each once', async () => {
    const database = await aDatabase();
    const planning = new Planning(database);
    const first = await planning.mill(4);
    await first.mill.start();
    await until('it leads all', () => spread(first) === '[[0,1,2,3]]');
    const before = first.gained.length;
    const second = await planning.mill(4);
    await second.mill.start();
    await until('each leads two', () => led(first).length === 2 && led(second).length === 2);
    await planning.insert(0, 40);
    await planning.ranOnce(40);
    expect(led(first)).toContain(0);
    expect(first.gained).toHaveLength(before);
    expect(second.gained).toHaveLength(2);
    await second.mill.stop();
    await planning.insert(40, 80);
    await until('the first leads all again', () => spread(first) === '[[0,1,2,3]]');
    await planning.ranOnce(80);
    expect(first.gained).toHaveLength(before + 2);
  });

  it('changes the number of partitions while documents are written, and loses none', async () => {
    const database = await aDatabase();
    const planning = new Planning(database);
    const two = [await planning.mill(2), await planning.mill(2)] as const;
    await Promise.all(two.map(({ mill }) => mill.start()));
    await until('each leads one', () => spread(...two) === '[[0],[1]]');
    await planning.insert(0, 50);
    const three = await planning.mill(3);
    await three.mill.start();
    await planning.insert(50, 100);
    expect(await inForce(database)).toBe(2);
    await two[0].mill.stop();
    await planning.insert(100, 150);
    await two[1].mill.stop();
    await planning.insert(150, 200);
    await until('three are in force', async () => (await inForce(database)) === 3);
    await until('all three are led', () => spread(three) === '[[0,1,2]]');
    await planning.insert(200, 250);
    await planning.ranOnce(250);
    const one = await planning.mill(1);
    await three.mill.stop();
    await planning.insert(250, 300);
    await one.mill.start();
    await until('one is in force', async () => (await inForce(database)) === 1);
    await planning.insert(300, 350);
    await planning.ranOnce(350);
  });

  it('keeps the number in force, and says so, while instances are set to different numbers', async () => {
    const database = await aDatabase();
    const planning = new Planning(database);
    const first = await planning.mill(1);
    await first.mill.start();
    await until('it leads', () => first.mill.health().leader);
    const { logger, lines } = keepLines();
    const second = await planning.mill(2, { logger });
    await second.mill.start();
    await until('it says so', () => lines.some(({ text }) => text.includes('but 1 is in force')));
    await planning.insert(0, 20);
    await planning.ranOnce(20);
    expect(await inForce(database)).toBe(1);
    expect(spread(first, second)).toBe('[[],[0]]');
  });
});

const plan = (task: string): TaskPlan => ({
  task,
  source: { collection: 'things' },
  debounce: { waitMs: 0, maxWaitMs: 0 },
  resetRetriesOnDataChange: true,
  cleanup: { deleteWhen: 'never', keepForMs: 0 },
  evolution: { handlerVersion: 1, onHandlerVersionChange: 'none', reconcileOnTriggerChange: true },
});

const aState = (task: string): TaskState => ({
  task,
  definition: 'd',
  trigger: 't',
  version: 1,
  handlerVersion: 1,
  wanted: 1,
  done: 1,
  lastSeenAt: new Date(0),
});

eachPlanner('the records of partitions', (aDatabase) => {
  async function opened(): Promise<{ readonly database: TestDatabase; readonly store: Partitioning }> {
    const database = await aDatabase();
    const [store, holder] = [database.store(), {}];
    await store.acquire(holder);
    onTestFinished(() => store.release(holder));
    await store.reactive?.prepare([plan('t')]);
    return { database, store: store.reactive?.partitioning as Partitioning };
  }

  const lead = async (store: Partitioning, index: number, of: number, from?: number): Promise<Term> => {
    const life = `life-${String(index)}`;
    const term = await store.within({ index, of }).planner.lead({ instanceId: life, life }, from);
    return term as Term;
  };

  it('divides documents and tasks so that each is in one partition', async () => {
    const { database, store } = await opened();
    const ids = Array.from({ length: 100 }, (_, _id) => _id);
    await database.docs.insertMany(ids.map((_id) => ({ _id })));
    const all = { documents: [] as unknown[], tasks: [] as unknown[] };
    for (const index of [0, 1, 2]) {
      const { planning } = store.within({ index, of: 3 });
      const read: unknown[] = [];
      for (let after: string | undefined; ;) {
        const page = await planning.documents(plan('t').source, after, 7);
        read.push(...page.ids);
        after = page.after;
        if (after === undefined) break;
      }
      expect(read.length).toBeGreaterThan(10);
      await planning.plan(plan('t'), read, 10_000);
      const known = await planning.known(plan('t'), undefined, 1_000);
      expect(known.ids).toHaveLength(read.length);
      all.documents.push(...read);
      all.tasks.push(...known.ids);
    }
    expect(new Set(all.documents.map(String)).size).toBe(100);
    expect(all.documents).toHaveLength(100);
    expect(all.tasks).toHaveLength(100);
  });

  it('refuses what a leader writes after its partition was divided anew', async () => {
    const { store } = await opened();
    const first = await lead(store, 0, 1);
    const division = { from: 1, to: 2, ended: new Map(), merge: mergeStates };
    expect(await store.within({ index: 0, of: 1 }).planner.saveState(first, 't', aState('t'))).toBe(true);
    expect(await store.divide(first, division)).toBe(true);
    expect(await store.divide(first, division)).toBe(false);
    const term = (await store.leaders()).get(1)?.term;
    const second = await lead(store, 1, 2, term);
    const { planner } = store.within({ index: 1, of: 2 });
    expect(await planner.load(second)).toBeDefined();
    // With another number of partitions it would plan documents of other leaders.
    expect(await store.within({ index: 1, of: 3 }).planner.load(second)).toBeUndefined();
    expect(await planner.states()).toMatchObject([{ task: 't', wanted: 1, done: 1 }]);
    const chief = await lead(store, 0, 2, first.term + 1);
    const back = { from: 2, to: 3, ended: new Map(), merge: mergeStates };
    expect(await store.divide(chief, back)).toBe(false);
    await planner.resign(second);
    expect(await store.announce(chief, 3)).toBe(true);
    expect(await store.divide(chief, back)).toBe(true);
    expect(await planner.saveTokens(second, {})).toBe(false);
    expect(await planner.saveState(second, 't', { done: 5 })).toBe(false);
    expect(await planner.saveCheckpoint(second, plan('t').source, undefined)).toBeTypeOf('boolean');
    expect(await planner.load(second)).toBeUndefined();
    expect([...(await store.leaders()).keys()].sort()).toEqual([1, 2]);
  });

  it('a request reaches every partition, and unfinished work in one is begun anew in all', async () => {
    const { store } = await opened();
    const first = await lead(store, 0, 1);
    await store.within({ index: 0, of: 1 }).planner.saveState(first, 't', aState('t'));
    await store.divide(first, { from: 1, to: 2, ended: new Map(), merge: mergeStates });
    const [zero, one] = [store.within({ index: 0, of: 2 }), store.within({ index: 1, of: 2 })];
    await zero.planner.request(['t'], 'test');
    expect(await zero.planner.states()).toMatchObject([{ wanted: 2, done: 1, reason: 'test' }]);
    expect(await one.planner.states()).toMatchObject([{ wanted: 2, done: 1, reason: 'test' }]);
    const chief = await lead(store, 0, 2, first.term + 1);
    await zero.planner.saveState(chief, 't', { done: 2 });
    await store.divide(chief, { from: 2, to: 1, ended: new Map(), merge: mergeStates });
    expect(await store.within({ index: 0, of: 1 }).planner.states()).toMatchObject([{ wanted: 3, done: 2 }]);
  });
});
