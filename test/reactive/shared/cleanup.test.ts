import { expect, it } from 'vitest';
import type { Tidemill } from '../../../src/index.js';
import { gate, until } from '../../support/mills.js';
import { statusesOf, withProbeTask } from '../probes.js';
import { eachPlanner, type StoredTask, type TestDatabase } from './test-databases.js';

const AT_ONCE = { collection: 'things', debounce: 0 } as const;
const HOUR_MS = 3_600_000;

/** Waits until one more cleanup of the task has begun and ended. */
async function cleanedAgain({ state }: TestDatabase, task: string): Promise<void> {
  const last = async (): Promise<number> => (await state(task))?.lastCleanedAt?.getTime() ?? 0;
  for (let round = 0; round < 2; round += 1) {
    const before = await last();
    await until('a cleanup has ended', async () => (await last()) > before);
  }
}

/** A stored task of a document that never existed. */
function orphan(task: string, id: number, fields: Partial<StoredTask> = {}): StoredTask {
  const old = new Date(Date.now() - 2 * HOUR_MS);
  return {
    ...{ task, sourceDocId: id, status: 'completed', attempts: 1, matched: true },
    ...{ scheduledAt: old, initialScheduledAt: old, createdAt: old, updatedAt: old, lastFinalizedAt: old },
    lastObservedValues: { _id: id },
    ...fields,
  };
}

const idsOf = async ({ tasks }: TestDatabase): Promise<number[]> =>
  (await tasks()).map(({ sourceDocId }) => Number(sourceDocId)).sort((a, b) => a - b);

interface Absence {
  readonly go: (database: TestDatabase) => Promise<unknown>;
  readonly comeBack: (database: TestDatabase) => Promise<unknown>;
}

eachPlanner('deleteWhen with keepFor 0', (aDatabase) => {
  const deleted: Absence = {
    go: ({ docs }) => docs.deleteOne({ _id: 1 }),
    comeBack: ({ docs }) => docs.insertOne({ _id: 1, status: 'on' }),
  };
  const left: Absence = {
    go: ({ docs }) => docs.updateOne({ _id: 1 }, { $set: { status: 'off' } }),
    comeBack: ({ docs }) => docs.updateOne({ _id: 1 }, { $set: { status: 'on' } }),
  };

  it.each([
    ['sourceDocumentDeleted', 'deleted', deleted, false],
    ['sourceDocumentDeleted', 'out of the filter', left, true],
    ['sourceDocumentDeletedOrNoLongerMatching', 'deleted', deleted, false],
    ['sourceDocumentDeletedOrNoLongerMatching', 'out of the filter', left, false],
    ['never', 'deleted', deleted, true],
    ['never', 'out of the filter', left, true],
  ] as const)(
    'deleteWhen %s deletes or keeps the task of a document that is %s, and its return runs again',
    async (...given) => {
      const [deleteWhen, , absence, stays] = given;
      const database = await aDatabase();
      const mill = database.mill();
      let runs = 0;
      await mill.reactiveTask({
        ...AT_ONCE,
        task: 't',
        filter: { status: 'on' },
        cleanupPolicy: { deleteWhen, keepFor: 0 },
        handler: () => (runs += 1),
      });
      await withProbeTask(mill);
      await mill.start();
      await database.docs.insertOne({ _id: 1, status: 'on' });
      await database.reaches(mill, 't', 1, 'completed');
      await absence.go(database);
      await database.planned();
      const kept = await database.raw('t', 1);
      if (stays) expect(kept).toMatchObject({ status: 'completed' });
      else expect(kept).toBeUndefined();
      // Whether the task was deleted or not, the document runs again when it returns unchanged.
      await absence.comeBack(database);
      await until('it ran again', () => runs === 2);
      const back = await database.reaches(mill, 't', 1, 'completed');
      expect(statusesOf(back)).toEqual(stays ? ['completed', 'completed'] : ['completed']);
    },
  );
});

/** A mill that cleans up often, with a task whose records are kept for an hour. */
async function keepingForAnHour({ mill: aMill }: TestDatabase): Promise<Tidemill> {
  const mill = aMill({ reactive: { cleanupInterval: 200 } });
  await mill.reactiveTask({
    ...AT_ONCE,
    task: 't',
    cleanupPolicy: { keepFor: '1h' },
    handler: () => undefined,
  });
  return mill;
}

eachPlanner('keepFor', (aDatabase) => {
  it('keepFor counts from the later of updatedAt and lastFinalizedAt', async () => {
    const database = await aDatabase();
    const mill = await keepingForAnHour(database);
    await mill.start();
    const recent = new Date(Date.now() - HOUR_MS / 2);
    const future = new Date(Date.now() + HOUR_MS);
    await database.docs.insertOne({ _id: 9 });
    await database.reaches(mill, 't', 9, 'completed');
    await database.amendTasks('t', { updatedAt: new Date(0), lastFinalizedAt: new Date(0) });
    await database.putTasks([
      orphan('t', 1),
      orphan('t', 2, { updatedAt: recent }),
      orphan('t', 3, { lastFinalizedAt: recent }),
      orphan('t', 4, { status: 'failed' }),
      orphan('t', 5, { status: 'pending', scheduledAt: future, lastFinalizedAt: null }),
      orphan('t', 6, { status: 'pending', scheduledAt: future, updatedAt: recent, lastFinalizedAt: null }),
      orphan('other', 7),
    ]);
    await cleanedAgain(database, 't');
    expect(await idsOf(database)).toEqual([2, 3, 6, 7, 9]);
  });

  it('keepFor is a day by default', async () => {
    const database = await aDatabase();
    const mill = database.mill({ reactive: { cleanupInterval: 200 } });
    await mill.reactiveTask({ ...AT_ONCE, task: 't', handler: () => undefined });
    await mill.start();
    const ago = (hours: number): Record<string, Date> => {
      const at = new Date(Date.now() - hours * HOUR_MS);
      return { updatedAt: at, lastFinalizedAt: at };
    };
    await database.putTasks([orphan('t', 1, ago(23)), orphan('t', 2, ago(25))]);
    await cleanedAgain(database, 't');
    expect(await idsOf(database)).toEqual([1]);
  });

  it('a document that disappears and returns within keepFor keeps its history and runs again', async () => {
    const database = await aDatabase();
    const mill = database.mill({ reactive: { cleanupInterval: 200 } });
    let runs = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      cleanupPolicy: { keepFor: '1h' },
      handler: () => (runs += 1),
    });
    await withProbeTask(mill);
    await mill.start();
    await database.docs.insertOne({ _id: 1, n: 1 });
    const first = await database.reaches(mill, 't', 1, 'completed');
    await database.docs.deleteOne({ _id: 1 });
    await database.planned();
    await cleanedAgain(database, 't');
    expect(await database.raw('t', 1)).toMatchObject({ status: 'completed', matched: false });
    await database.docs.insertOne({ _id: 1, n: 1 });
    await until('it ran again', () => runs === 2);
    const second = await database.reaches(mill, 't', 1, 'completed');
    expect(second.createdAt).toEqual(first.createdAt);
    expect(statusesOf(second)).toEqual(['completed', 'completed']);
    // Its document exists: however old its task is, it stays.
    await database.amendTasks('t', { updatedAt: new Date(0), lastFinalizedAt: new Date(0) });
    await cleanedAgain(database, 't');
    expect(await database.raw('t', 1)).toBeDefined();
  });

  it('a cleanup deletes a running task only after it has ended', async () => {
    const database = await aDatabase();
    const mill = database.mill({ reactive: { cleanupInterval: 200 } });
    const [started, go] = [gate(), gate()];
    let ended = false;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      cleanupPolicy: { keepFor: 0 },
      handler: async () => {
        started.open();
        await go.promise;
        ended = true;
      },
    });
    await withProbeTask(mill);
    await mill.start();
    await database.docs.insertOne({ _id: 1 });
    await started.promise;
    await database.docs.deleteOne({ _id: 1 });
    await database.planned();
    await cleanedAgain(database, 't');
    expect(await database.raw('t', 1)).toMatchObject({ status: 'processing' });
    go.open();
    await until('it is gone', async () => (await database.raw('t', 1)) === undefined);
    expect(ended).toBe(true);
  });

  it('a cleanup deletes the task of a document that left the filter by the passing of time alone', async () => {
    const database = await aDatabase();
    const mill = database.mill({ reactive: { cleanupInterval: 200 } });
    const ran: unknown[] = [];
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      filter: database.filters.notOver,
      cleanupPolicy: { deleteWhen: 'sourceDocumentDeletedOrNoLongerMatching', keepFor: 100 },
      handler: ({ docId }) => ran.push(docId),
    });
    await mill.start();
    await database.docs.insertOne({ _id: 0, until: new Date(Date.now() + HOUR_MS) });
    await database.reaches(mill, 't', 0, 'completed');
    // On a slow machine its time may be over before it was planned; then one with more time takes its place.
    const passing = async (_id: number, leftMs: number): Promise<number> => {
      const over = Date.now() + leftMs;
      await database.docs.insertOne({ _id, until: new Date(over) });
      await until('it ran, or its time is over', () => ran.includes(_id) || Date.now() > over);
      return ran.includes(_id) ? _id : passing(_id + 1, leftMs * 2);
    };
    const id = await passing(1, 1_000);
    await until('its time is over', async () => (await database.raw('t', id)) === undefined);
    expect(await database.raw('t', 0)).toBeDefined();
    // A replaced document may still have run, too late to be waited for.
    expect(ran.filter((one) => one === 0 || one === id)).toEqual([0, id]);
  });
});

eachPlanner('cleanupInterval', (aDatabase) => {
  it.each([
    ['a duration', '300ms'],
    ['milliseconds', 300],
    ['cron', 'CRON * * * * * *'],
  ])('cleans up repeatedly with a cleanupInterval given as %s', async (_what, cleanupInterval) => {
    const database = await aDatabase();
    const mill = database.mill({ reactive: { cleanupInterval } });
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      cleanupPolicy: { keepFor: '1h' },
      handler: () => undefined,
    });
    await mill.start();
    for (const id of [1, 2, 3]) {
      await database.putTasks([orphan('t', id)]);
      await until('it is cleaned up', async () => (await database.raw('t', id)) === undefined);
    }
  });

  it('the first cleanup comes a day after the first registration by default', async () => {
    const database = await aDatabase();
    const mill = database.mill();
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      cleanupPolicy: { keepFor: '1h' },
      handler: () => undefined,
    });
    await withProbeTask(mill);
    await mill.start();
    await database.putTasks([orphan('t', 2)]);
    await database.docs.insertOne({ _id: 9 });
    await database.reaches(mill, 't', 9, 'completed');
    await database.planned();
    await mill.tasks.reconcile('t');
    await until('it was looked at', async () => (await database.raw('t', 2))?.['matched'] === false);
    expect(await database.raw('t', 2)).toBeDefined();
  });

  it('a cleanup deletes orphaned tasks in batches, and nothing else', async () => {
    const database = await aDatabase();
    const mill = await keepingForAnHour(database);
    // Opens the store, which creates what tasks are kept in.
    await mill.countReactiveTasks();
    const ids = Array.from({ length: 2_500 }, (_, id) => id);
    await database.putTasks(ids.map((id) => orphan('t', id)));
    await database.docs.insertMany(ids.filter((id) => id % 10 === 0).map((_id) => ({ _id })));
    await mill.start();
    await until('all orphans are gone', async () => (await database.count({})) === 250);
    await cleanedAgain(database, 't');
    expect(await database.count({})).toBe(250);
  });
});
