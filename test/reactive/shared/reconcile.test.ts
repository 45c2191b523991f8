import { expect, it } from 'vitest';
import type { ReactiveTaskDefinition, Tidemill, TidemillOptions } from '../../../src/index.js';
import { gate, until } from '../../support/mills.js';
import { collect, Handled, keepLines } from '../mills.js';
import { eachPlanner, type Thing, type TestDatabase } from './test-databases.js';

const fast: Partial<TidemillOptions> = { pollInterval: { min: 10, max: 200 } };
const HOUR_MS = 3_600_000;

const numbers = (to: number): Thing[] => count(to).map((n) => ({ _id: n, n }));

/** A mill with the task `pay` on `things`; what it handled is recorded as (id, n). */
async function aPayer(
  database: TestDatabase,
  handled: Handled,
  definition: Partial<ReactiveTaskDefinition<Thing>> = {},
  options: Partial<TidemillOptions> = {},
): Promise<Tidemill> {
  const mill = database.mill({ ...fast, ...options });
  await mill.reactiveTask<Thing>({
    task: 'pay',
    collection: 'things',
    debounce: 0,
    handler: async ({ docId, getDocument }) => {
      handled.note(docId, Number((await getDocument()).n));
    },
    ...definition,
  });
  return mill;
}

const ids = (handled: Handled): number[] => handled.runs.map(({ id }) => Number(id)).sort((a, b) => a - b);
const count = (n: number, from = 0): number[] => Array.from({ length: n }, (_, index) => from + index);

/** Waits until every request made so far has been served. */
async function reconciled({ state }: TestDatabase, times: number, task = 'pay'): Promise<void> {
  await until(
    `${task} was reconciled ${String(times)} times`,
    async () => ((await state(task))?.done ?? 0) >= times,
  );
}

eachPlanner('the first registration of a task', (aDatabase) => {
  it('a new task runs once for every existing document that matches', async () => {
    const database = await aDatabase();
    await database.docs.insertMany(numbers(2_500));
    const handled = new Handled();
    const filter = { n: { $gte: 500 } };
    const mill = await aPayer(database, handled, { filter }, { reactive: { concurrency: 50 } });
    const completed = collect(mill, 'reconcile:complete');
    await mill.start();
    await until('all were handled', () => handled.runs.length >= 2_000);
    await until('it has ended', () => completed.length > 0);
    expect(ids(handled)).toEqual(count(2_000, 500));
    expect(completed).toMatchObject([{ tasks: ['pay'], processed: 2_500 }]);
  });

  it('a restart does not reconcile a known task again', async () => {
    const database = await aDatabase();
    await database.docs.insertMany(numbers(10));
    const handled = new Handled();
    const first = await aPayer(database, handled);
    await first.start();
    await until('all were handled', () => handled.runs.length >= 10);
    await reconciled(database, 1);
    await first.stop();
    const second = await aPayer(database, handled);
    const started = collect(second, 'reconcile:start');
    await second.start();
    await database.docs.insertOne({ _id: 10, n: 10 });
    await until('the new one was handled', () => handled.times(10) === 1);
    expect(started).toEqual([]);
    expect(ids(handled)).toEqual(count(11));
  });
});

eachPlanner('a changed filter', (aDatabase) => {
  it('a wider filter runs only for documents that it newly matches', async () => {
    const database = await aDatabase();
    await database.docs.insertMany(numbers(100));
    const handled = new Handled();
    const narrow = await aPayer(database, handled, { filter: { n: { $gte: 60 } } });
    await narrow.start();
    await until('the first were handled', () => handled.runs.length >= 40);
    await reconciled(database, 1);
    await narrow.stop();
    const wide = await aPayer(database, handled, { filter: { n: { $gte: 30 } } });
    const { length: before } = handled.runs;
    await wide.start();
    await reconciled(database, 2);
    await until('the others were handled', () => handled.runs.length >= 70);
    expect(before).toBe(40);
    expect(ids(handled)).toEqual(count(70, 30));
  });

  it('a narrower filter skips waiting tasks without calling their handler', async () => {
    const database = await aDatabase();
    await database.docs.insertMany(numbers(20));
    const handled = new Handled();
    const wide = await aPayer(database, handled, { filter: { n: { $gte: 0 } } });
    await wide.tasks.pause('pay');
    await wide.start();
    await until('all are planned', async () => (await wide.countReactiveTasks({ status: 'pending' })) === 20);
    await reconciled(database, 1);
    await wide.stop();
    const narrow = await aPayer(database, handled, { filter: { n: { $gte: 15 } } });
    const skipped = collect(narrow, 'task:skip');
    await narrow.start();
    await reconciled(database, 2);
    await narrow.tasks.resume('pay');
    await until('none waits', async () => (await narrow.countReactiveTasks({ status: 'completed' })) === 20);
    await until('every skip is told', () => skipped.length >= 15);
    expect(skipped).toHaveLength(15);
    expect(ids(handled)).toEqual(count(5, 15));
    const [task] = (await narrow.getReactiveTasks({ sourceDocFilter: { _id: 3 } })).items;
    expect(task?.executionHistory?.map(({ status }) => status)).toEqual(['skipped']);
  });

  it('reconcileOnTriggerChange: false does not reconcile after a filter change', async () => {
    const database = await aDatabase();
    await database.docs.insertMany(numbers(20));
    const handled = new Handled();
    const narrow = await aPayer(database, handled, { filter: { n: { $gte: 15 } } });
    await narrow.start();
    await until('the first were handled', () => handled.runs.length >= 5);
    await reconciled(database, 1);
    await narrow.stop();
    const wide = await aPayer(database, handled, {
      filter: { n: { $gte: 10 } },
      evolution: { reconcileOnTriggerChange: false },
    });
    const started = collect(wide, 'reconcile:start');
    await wide.start();
    await database.docs.updateOne({ _id: 10 }, { $set: { n: 11 } });
    await until('the changed one was handled', () => handled.times(10) === 1);
    expect(started).toEqual([]);
    expect(ids(handled)).toEqual([10, ...count(5, 15)]);
  });
});

eachPlanner('tasks.reconcile', (aDatabase) => {
  it('reconcile restores tasks that were deleted by hand, and reruns nothing else', async () => {
    const database = await aDatabase();
    await database.docs.insertMany(numbers(30));
    const handled = new Handled();
    const mill = await aPayer(database, handled);
    await mill.start();
    await until('all were handled', () => handled.runs.length >= 30);
    await reconciled(database, 1);
    await until(
      'all are settled',
      async () => (await mill.countReactiveTasks({ status: 'completed' })) === 30,
    );
    await database.deleteTasks('pay', count(10));
    expect(await mill.tasks.reconcile('pay')).toEqual({ tasks: ['pay'] });
    await reconciled(database, 2);
    await until('they ran again', () => handled.runs.length >= 40);
    expect(ids(handled)).toEqual([...count(10), ...count(30)].sort((a, b) => a - b));
  });

  it('reconcile can be called as soon as the mill has started, and rejects unknown tasks', async () => {
    const database = await aDatabase();
    const mill = await aPayer(database, new Handled());
    await mill.start();
    expect(await mill.tasks.reconcile('pay')).toEqual({ tasks: ['pay'] });
    await expect(mill.tasks.reconcile('other')).rejects.toMatchObject({
      code: 'TASK_MISSING',
      message: expect.stringContaining('"other"') as string,
    });
  });

  it('reconcile without a name covers all tasks, in one pass per collection', async () => {
    const database = await aDatabase();
    await database.docs.insertMany(numbers(5));
    const mill = database.mill(fast);
    for (const [task, collection] of [
      ['a', 'things'],
      ['b', 'things'],
      ['c', 'others'],
    ] as const)
      await mill.reactiveTask({ task, collection, debounce: 0, handler: () => undefined });
    const completed = collect(mill, 'reconcile:complete');
    await mill.start();
    // Events follow the record.
    const told = (): readonly string[] => completed.flatMap(({ tasks }) => tasks);
    await until('all were looked at', () => ['a', 'b', 'c'].every((task) => told().includes(task)));
    const { length: before } = completed;
    expect([...(await mill.tasks.reconcile()).tasks].sort()).toEqual(['a', 'b', 'c']);
    for (const task of ['a', 'b', 'c']) await reconciled(database, 2, task);
    await until('both passes have ended', () => completed.length >= before + 2);
    const passes = completed.slice(before).map(({ tasks }) => [...tasks].sort().join());
    expect(passes.sort()).toEqual(['a,b', 'c']);
  });
});

eachPlanner('periodic reconciliation', (aDatabase) => {
  it.each([
    ['every', 300],
    ['by a CRON', 'CRON * * * * * *'],
  ] as const)(
    'reconcileEvery (%s) finds documents that come to match by time alone',
    async (_, reconcileEvery) => {
      const database = await aDatabase();
      const handled = new Handled();
      const mill = await aPayer(database, handled, { filter: database.filters.over, reconcileEvery });
      await mill.start();
      await reconciled(database, 1);
      const now = Date.now();
      await database.docs.insertMany([
        { _id: 1, n: 1, until: new Date(now + 1_500) },
        { _id: 2, n: 1, until: new Date(now + HOUR_MS) },
      ]);
      await until('it was handled when its time came', () => handled.times(1) === 1);
      expect(Date.now() - now).toBeGreaterThanOrEqual(1_400);
      expect(ids(handled)).toEqual([1]);
    },
  );
});

eachPlanner('passes of a reconciliation', (aDatabase) => {
  it('a reconciliation starts over if another task joins', async () => {
    const database = await aDatabase();
    await database.docs.insertMany(numbers(6_000));
    const first = await aPayer(database, new Handled(), {}, { reactive: { reconcileRate: 500 } });
    await first.start({ roles: ['plan'] });
    await until('a checkpoint is kept', async () => (await database.checkpoint()) !== undefined);
    await first.stop();
    const second = await aPayer(database, new Handled());
    await second.reactiveTask({ task: 'more', collection: 'things', handler: () => undefined });
    const completed = collect(second, 'reconcile:complete');
    await second.start({ roles: ['plan'] });
    await until('both are reconciled', () => completed.length > 0);
    expect(completed.map(({ tasks, processed }) => ({ tasks: [...tasks].sort(), processed }))).toEqual([
      { tasks: ['more', 'pay'], processed: 6_000 },
    ]);
    for (const task of ['more', 'pay']) expect(await second.countReactiveTasks({ task })).toBe(6_000);
  });

  it('a reconciliation keeps to its rate and reports its progress', async () => {
    const database = await aDatabase();
    await database.docs.insertMany(numbers(7_000));
    const { logger, lines } = keepLines();
    const mill = await aPayer(
      database,
      new Handled(),
      { filter: { n: -1 } },
      {
        logger,
        reactive: { reconcileRate: 1_000 },
      },
    );
    const [started, progress, completed] = [
      collect(mill, 'reconcile:start'),
      collect(mill, 'reconcile:progress'),
      collect(mill, 'reconcile:complete'),
    ];
    const times: number[] = [];
    for (const event of ['reconcile:start', 'reconcile:complete'] as const)
      mill.on(event, () => times.push(performance.now()));
    await mill.start();
    await until('it has ended', () => completed.length > 0);
    expect(started).toHaveLength(1);
    expect((times[1] ?? 0) - (times[0] ?? 0)).toBeGreaterThan(5_500);
    expect(progress.length).toBeGreaterThan(0);
    expect(progress[0]).toMatchObject({ tasks: ['pay'] });
    expect(progress[0]!.processed).toBeGreaterThan(0);
    expect(progress[0]!.processed).toBeLessThan(7_000);
    expect(lines.some(({ text }) => /\d+ documents so far/u.test(text))).toBe(true);
  });

  it('a reconciliation beside live writes loses no state and runs none twice', async () => {
    const database = await aDatabase();
    await database.docs.insertMany(numbers(1_500));
    const handled = new Handled();
    const mill = await aPayer(database, handled, {}, { reactive: { concurrency: 50, reconcileRate: 1_000 } });
    const completed = collect(mill, 'reconcile:complete');
    await mill.start();
    const latest = new Map(numbers(1_500).map(({ _id, n }) => [String(_id), n]));
    let written = 0;
    for (let id = 0; completed.length === 0; id = (id + 37) % 1_500) {
      written += 1;
      await database.docs.updateOne({ _id: id }, { $set: { n: 100_000 + written } });
      latest.set(String(id), 100_000 + written);
      // An embedded database answers without the event loop, so nothing else would ever run.
      await new Promise((resolve) => setImmediate(resolve));
    }
    let left: string[] = [];
    await until(
      () =>
        `the last state of every document was handled; missing: ${left.slice(0, 10).join()} of ${String(left.length)}`,
      () => {
        const last = new Map(handled.runs.map(({ id, version }) => [id, version]));
        left = [...latest].filter(([id, n]) => last.get(id) !== n).map(([id]) => id);
        return left.length === 0;
      },
    );
    expect(written).toBeGreaterThan(0);
    const states = handled.runs.map(({ id, version }) => `${id}@${String(version)}`);
    expect(states.length - new Set(states).size).toBe(0);
  });

  it('a reconciliation holds up neither due tasks nor the start', async () => {
    const database = await aDatabase();
    await database.docs.insertMany(numbers(5_000));
    const handled = new Handled();
    const mill = await aPayer(
      database,
      handled,
      { filter: { n: { $gte: 10_000 } } },
      // So slow that it cannot end before the test does.
      { reactive: { reconcileRate: 50 } },
    );
    const completed = collect(mill, 'reconcile:complete');
    const started = gate();
    mill.on('reconcile:start', () => started.open());
    await mill.start();
    await started.promise;
    await database.docs.insertOne({ _id: 10_000, n: 10_000 });
    await until('the new one was handled', () => handled.times(10_000) === 1);
    expect(completed).toEqual([]);
  });
});
