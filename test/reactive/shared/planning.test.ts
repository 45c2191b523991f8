import { expect, it } from 'vitest';
import type { ReactiveTaskDefinition, TaskContext, Tidemill } from '../../../src/index.js';
import { gate, until } from '../../support/mills.js';
import { statusesOf, withProbeTask } from '../probes.js';
import { eachDatabase, type TestDatabase } from './test-databases.js';

const PAID = {
  task: 't',
  collection: 'things',
  debounce: 0,
  filter: { status: 'paid' },
  watchProjection: { status: 1, n: 1 },
} as const;

interface Runs {
  readonly mill: Tidemill;
  readonly of: (id: number) => readonly TaskContext[];
  readonly ran: (id: number, times?: number) => Promise<void>;
}

/** A mill with one task that records its runs. */
async function started(
  database: TestDatabase,
  definition: Partial<ReactiveTaskDefinition> = {},
  handler: (context: TaskContext) => unknown = () => undefined,
): Promise<Runs> {
  const mill = database.mill();
  const runs: TaskContext[] = [];
  const of = (id: number): readonly TaskContext[] => runs.filter((run) => run.docId === id);
  const done = gate();
  mill.on('reconcile:complete', ({ tasks }) => {
    if (tasks.includes('t')) done.open();
  });
  await mill.reactiveTask({
    ...PAID,
    ...definition,
    handler: async (context) => {
      runs.push(context);
      await handler(context);
    },
  });
  await withProbeTask(mill);
  await mill.start();
  await done.promise;
  return {
    mill,
    of,
    ran: async (id, times = 1) => {
      await until(`${String(id)} ran ${String(times)} times`, () => of(id).length >= times);
    },
  };
}

/** Everything that was written before is planned and has run. */
async function quiet({ planned, count }: TestDatabase): Promise<void> {
  await planned();
  // A later batch than that of the first.
  await planned();
  await until('nothing is in flight', async () => {
    const open = await Promise.all(
      (['pending', 'processing', 'processing_dirty'] as const).map((status) => count({ status, task: 't' })),
    );
    return open.every((number) => number === 0);
  });
}

eachDatabase('planning of changes', (aDatabase) => {
  it('runs a document when it comes to match, and not before', async () => {
    const database = await aDatabase();
    const { of, ran } = await started(database);
    await database.docs.insertMany([
      { _id: 1, status: 'paid', n: 1 },
      { _id: 2, status: 'new' },
    ]);
    await ran(1);
    expect(of(1)[0]).toMatchObject({ attempt: 1, watchedValues: { status: 'paid', n: 1 } });
    await quiet(database);
    expect(await database.count({ task: 't' })).toBe(1);
    await database.docs.updateOne({ _id: 2 }, { $set: { status: 'paid' } });
    await ran(2);
  });

  it('runs a document when watched fields change, not when others do or values stay the same', async () => {
    const database = await aDatabase();
    const { of, ran } = await started(database);
    await database.docs.insertOne({ _id: 1, status: 'paid', n: 1, other: 1 });
    await ran(1);
    await quiet(database);
    const before = await database.raw('t', 1);
    await database.docs.updateOne({ _id: 1 }, { $set: { other: 2 } });
    await database.docs.updateOne({ _id: 1 }, { $set: { n: 1 } });
    await quiet(database);
    expect(await database.raw('t', 1)).toEqual(before);
    await database.docs.updateOne({ _id: 1 }, { $set: { n: 9 } });
    await ran(1, 2);
    expect(of(1)[1]?.watchedValues).toMatchObject({ n: 9 });
  });

  it('runs a document when any field changes if there is no projection', async () => {
    const database = await aDatabase();
    const { of, ran } = await started(database, { watchProjection: undefined } as never);
    await database.docs.insertOne({ _id: 1, status: 'paid', n: 1 });
    await ran(1);
    expect(of(1)[0]?.watchedValues).toMatchObject({ _id: 1, status: 'paid', n: 1 });
    await database.docs.updateOne({ _id: 1 }, { $set: { other: 5 } });
    await ran(1, 2);
  });

  it('runs a document again when it returns with the same values after it left or was deleted', async () => {
    const database = await aDatabase();
    const { ran } = await started(database);
    await database.docs.insertOne({ _id: 1, status: 'paid', n: 1 });
    await ran(1);
    await database.docs.updateOne({ _id: 1 }, { $set: { status: 'open' } });
    await quiet(database);
    expect(await database.raw('t', 1)).toMatchObject({ status: 'completed', matched: false });
    await database.docs.updateOne({ _id: 1 }, { $set: { status: 'paid' } });
    await ran(1, 2);
    await database.docs.deleteOne({ _id: 1 });
    await quiet(database);
    expect(await database.raw('t', 1)).toMatchObject({ matched: false });
    await database.docs.insertOne({ _id: 1, status: 'paid', n: 1 });
    await ran(1, 3);
  });

  it('runs a document when a watched path through nested arrays finds another value', async () => {
    const database = await aDatabase();
    const documents: unknown[] = [];
    const { of, ran } = await started(
      database,
      { watchProjection: { 'info.lines.sku': 1 } },
      async ({ getDocument }) => {
        documents.push(await getDocument({ projection: { 'info.lines.sku': 1 } }));
      },
    );
    const lines = (sku: string, n: number): unknown => ({ lines: [{ sku, n }, [{ sku: 'in' }, 5], 7, {}] });
    const seen = (sku: string): unknown => ({ info: { lines: [{ sku }, [{ sku: 'in' }], {}] } });
    await database.docs.insertOne({ _id: 1, status: 'paid', info: lines('A', 1) });
    await ran(1);
    await database.docs.updateOne({ _id: 1 }, { $set: { info: lines('A', 2) } });
    await quiet(database);
    await database.docs.updateOne({ _id: 1 }, { $set: { info: lines('B', 2) } });
    await ran(1, 2);
    await quiet(database);
    expect(of(1).map(({ watchedValues }) => watchedValues)).toMatchObject([seen('A'), seen('B')]);
    expect(documents).toMatchObject([seen('A'), seen('B')]);
    expect(of(1)).toHaveLength(2);
  });

  it('runs documents that existed before the task was defined', async () => {
    const database = await aDatabase();
    await database.docs.insertMany([
      { _id: 1, status: 'paid' },
      { _id: 2, status: 'new' },
    ]);
    const { of, ran } = await started(database);
    await ran(1);
    await quiet(database);
    expect(of(2)).toEqual([]);
  });

  it('a burst of updates leads to one run with the last values', async () => {
    const database = await aDatabase();
    const { of } = await started(database, { debounce: '1h' });
    await database.docs.insertOne({ _id: 1, status: 'paid', n: 0 });
    for (let n = 1; n <= 20; n += 1) await database.docs.updateOne({ _id: 1 }, { $set: { n } });
    await database.planned();
    expect(of(1)).toEqual([]);
    await database.makeDue('t');
    await quiet(database);
    expect(of(1).map(({ watchedValues }) => watchedValues['n'])).toEqual([20]);
  });

  it('debounce schedules a task exactly its wait after the change', async () => {
    const database = await aDatabase();
    const { mill, ran } = await started(database, { debounce: 300 });
    await database.docs.insertOne({ _id: 1, status: 'paid' });
    await ran(1);
    const task = await database.reaches(mill, 't', 1, 'completed');
    expect(task.scheduledAt.getTime() - task.updatedAt.getTime()).toBe(300);
  });
});

eachDatabase('changes while a task runs', (aDatabase) => {
  it('any number of changes while a task runs leads to exactly one more run', async () => {
    const database = await aDatabase();
    const [inside, go] = [gate(), gate()];
    const { mill, of, ran } = await started(database, {}, async ({ watchedValues }) => {
      if (watchedValues['n'] !== 1) return;
      inside.open();
      await go.promise;
    });
    await database.docs.insertOne({ _id: 1, status: 'paid', n: 1 });
    await inside.promise;
    for (let n = 2; n <= 5; n += 1) await database.docs.updateOne({ _id: 1 }, { $set: { n } });
    await database.planned();
    await database.reaches(mill, 't', 1, 'processing_dirty');
    go.open();
    await ran(1, 2);
    await quiet(database);
    expect(of(1).map(({ watchedValues }) => watchedValues['n'])).toEqual([1, 5]);
  });

  it('getDocument skips the attempt if the document changed, and the change runs', async () => {
    const database = await aDatabase();
    const [inside, go] = [gate(), gate()];
    const seen: unknown[] = [];
    const { mill, ran } = await started(database, {}, async ({ watchedValues, getDocument }) => {
      if (watchedValues['n'] === 1) {
        inside.open();
        await go.promise;
      }
      seen.push(await getDocument());
    });
    await database.docs.insertOne({ _id: 1, status: 'paid', n: 1 });
    await inside.promise;
    await database.docs.updateOne({ _id: 1 }, { $set: { n: 2 } });
    await database.planned();
    go.open();
    await ran(1, 2);
    const task = await database.reaches(mill, 't', 1, 'completed');
    expect(statusesOf(task)).toEqual(['skipped', 'completed']);
    expect(seen).toMatchObject([{ _id: 1, n: 2, status: 'paid' }]);
  });
});

eachDatabase('documents that leave the filter', (aDatabase) => {
  it('skips a document that left before its task was claimed, and runs it when it returns', async () => {
    const database = await aDatabase();
    const { mill, of, ran } = await started(database);
    await mill.tasks.pause('t');
    await database.docs.insertOne({ _id: 1, status: 'paid' });
    await until('it is planned', async () => (await database.raw('t', 1)) !== undefined);
    await database.docs.updateOne({ _id: 1 }, { $set: { status: 'open' } });
    await database.planned();
    await mill.tasks.resume('t');
    const task = await database.reaches(mill, 't', 1, 'completed');
    expect(statusesOf(task)).toEqual(['skipped']);
    expect(of(1)).toEqual([]);
    await database.docs.updateOne({ _id: 1 }, { $set: { status: 'paid' } });
    await ran(1);
  });

  it.each([
    ['sourceDocumentDeleted', [1, 3]],
    ['sourceDocumentDeletedOrNoLongerMatching', [3]],
    ['never', [1, 2, 3]],
  ] as const)('with keepFor 0, cleanup of tasks follows deleteWhen %s at once', async (deleteWhen, kept) => {
    const database = await aDatabase();
    const { ran } = await started(database, { cleanupPolicy: { deleteWhen, keepFor: 0 } });
    await database.docs.insertMany([1, 2, 3].map((_id) => ({ _id, status: 'paid' })));
    await Promise.all([1, 2, 3].map((id) => ran(id)));
    await quiet(database);
    await database.docs.updateOne({ _id: 1 }, { $set: { status: 'open' } });
    await database.docs.deleteOne({ _id: 2 });
    await quiet(database);
    const left = (await database.tasks())
      .filter(({ task }) => task === 't')
      .map((task) => task['sourceDocId']);
    expect(left.sort()).toEqual(kept);
  });
});

eachDatabase('finding and retrying tasks', (aDatabase) => {
  it('finds, counts and retries tasks by task, status, error, document and id', async () => {
    const database = await aDatabase();
    const { mill, ran } = await started(
      database,
      { retryPolicy: { type: 'fixed', interval: '1h', maxAttempts: 1 } },
      ({ docId }) => {
        if (docId === 2) throw new Error('the Service is down');
      },
    );
    await database.docs.insertMany([1, 2, 3].map((_id) => ({ _id, status: 'paid', n: _id })));
    await Promise.all([1, 2, 3].map((id) => ran(id)));
    await database.reaches(mill, 't', 2, 'failed');
    await quiet(database);
    const ids = async (filter: Parameters<Tidemill['tasks']['find']>[0]): Promise<unknown[]> =>
      (await mill.tasks.find({ task: 't', ...filter })).items.map((task) => task.sourceDocId).sort();
    expect(await ids({})).toEqual([1, 2, 3]);
    expect(await ids({ status: ['failed', 'pending'] })).toEqual([2]);
    expect(await ids({ errorMessage: 'Service' })).toEqual([2]);
    expect(await ids({ errorMessage: 'sERVICE' })).toEqual([2]);
    expect(await ids({ errorMessage: /SERVICE\b.*down$/iu })).toEqual([2]);
    expect(await ids({ hasError: false })).toEqual([1, 3]);
    expect(await ids({ sourceDocFilter: { n: { $gt: 1 } } })).toEqual([2, 3]);
    expect(await ids({ sourceDocFilter: { _id: 3 } })).toEqual([3]);
    expect(await ids({ _id: { task: 't', id: 1 } })).toEqual([1]);
    expect(await mill.tasks.count({ task: 't', status: 'completed' })).toBe(2);
    expect(await mill.retryReactiveTasks({ task: 't', status: 'failed' })).toEqual({ modifiedCount: 1 });
    await ran(2, 2);
  });

  it('pages through all tasks in order, forwards and backwards', async () => {
    const database = await aDatabase();
    const { mill } = await started(database);
    await database.docs.insertMany(Array.from({ length: 25 }, (_, _id) => ({ _id, status: 'paid' })));
    await until(
      'all have run',
      async () => (await mill.tasks.count({ task: 't', status: 'completed' })) === 25,
    );
    const seen: unknown[] = [];
    const order = { limit: 10, sort: { createdAt: 1 } } as const;
    let page = await mill.tasks.find({ task: 't' }, order);
    for (;;) {
      seen.push(...page.items.map(({ sourceDocId }) => sourceDocId));
      if (page.next === null) break;
      page = await mill.tasks.find({ task: 't' }, { ...order, cursor: page.next });
    }
    expect(new Set(seen).size).toBe(25);
    expect(seen).toHaveLength(25);
    const back = await mill.tasks.find({ task: 't' }, { ...order, cursor: page.previous ?? '' });
    expect(back.items.map(({ sourceDocId }) => sourceDocId)).toEqual(seen.slice(10, 20));
  });
});

eachDatabase('markCompleted', (aDatabase) => {
  it('markCompleted completes the task with its transaction, or not at all', async () => {
    const database = await aDatabase();
    let tries = 0;
    const { mill } = await started(
      database,
      { retryPolicy: { type: 'fixed', interval: 1, maxAttempts: 3 } },
      async ({ getDocument, markCompleted }) => {
        tries += 1;
        await mill.withTransaction(async (transaction) => {
          expect(await getDocument({ transaction })).toMatchObject({ _id: 1, n: 1 });
          await markCompleted({ transaction });
          if (tries === 1) throw new Error('not yet');
        });
      },
    );
    await database.docs.insertOne({ _id: 1, status: 'paid', n: 1 });
    const task = await database.reaches(mill, 't', 1, 'completed');
    expect(tries).toBe(2);
    expect(statusesOf(task)).toEqual(['failed', 'completed']);
  });
});
