import { expect, it } from 'vitest';
import type { ReactiveTaskDefinition, Tidemill } from '../../../src/index.js';
import { until } from '../../support/mills.js';
import { startedUp, withProbeTask } from '../probes.js';
import { eachDatabase, type TestDatabase } from './test-databases.js';

/** A mill with several tasks on `things`, which records what ran. */
async function several(
  database: TestDatabase,
  tasks: Readonly<Record<string, Partial<ReactiveTaskDefinition>>>,
): Promise<{ readonly mill: Tidemill; readonly ran: (...what: string[]) => Promise<void> }> {
  const mill = database.mill();
  const runs: string[] = [];
  for (const [task, definition] of Object.entries(tasks))
    await mill.reactiveTask({
      task,
      collection: 'things',
      debounce: 0,
      ...definition,
      handler: ({ docId }) => void runs.push(`${task} ${String(docId)}`),
    });
  await withProbeTask(mill);
  await startedUp(mill, Object.keys(tasks)[0] ?? '');
  /** Waits until these have run since the last call. */
  const ran = async (...what: string[]): Promise<void> => {
    await until(`${what.join(', ')} have run`, () => what.every((one) => runs.includes(one)));
    runs.length = 0;
  };
  return { mill, ran };
}

/** Which tasks of a document count as matching. */
const matched = async (database: TestDatabase, id: number): Promise<readonly string[]> =>
  (await database.tasks())
    .filter(({ sourceDocId, matched }) => sourceDocId === id && matched === true)
    .map(({ task }) => String(task))
    .sort();

eachDatabase('several tasks on one collection', (aDatabase) => {
  it('plans each task by its own filter, projection and debounce, and notices documents that leave', async () => {
    const database = await aDatabase();
    const { ran } = await several(database, {
      paid: { filter: { status: 'paid' }, watchProjection: { status: 1, n: 1 } },
      $named: { filter: { status: 'paid' }, watchProjection: { n: 1 }, debounce: '1h' },
      open: { filter: { status: 'open' }, watchProjection: { n: 1 }, evolution: { handlerVersion: 2 } },
      each: { watchProjection: { other: 1 } },
      large: { filter: { n: { $gt: 10 } } },
    });
    await database.docs.insertMany([
      { _id: 1, status: 'paid', n: 1, other: 5 },
      { _id: 2, status: 'open', n: 20 },
    ]);
    await ran('paid 1', 'open 2', 'each 1', 'each 2', 'large 2');
    await database.planned();
    expect(await matched(database, 1)).toEqual(['$named', 'each', 'paid']);
    expect(await matched(database, 2)).toEqual(['each', 'large', 'open']);
    const waits = await database.raw('$named', 1);
    expect(waits).toMatchObject({ status: 'pending', attempts: 0 });
    const wait = (waits?.['scheduledAt'] as Date).getTime() - (waits?.['createdAt'] as Date).getTime();
    expect(wait).toBe(3_600_000);
    await database.docs.updateOne({ _id: 1 }, { $set: { status: 'open', n: 11 } });
    await ran('open 1', 'large 1');
    await database.docs.deleteOne({ _id: 2 });
    await database.planned();
    expect(await matched(database, 1)).toEqual(['each', 'large', 'open']);
    expect(await matched(database, 2)).toEqual([]);
    await database.docs.updateOne({ _id: 1 }, { $set: { status: 'paid' } });
    await ran('paid 1');
  });

  it('runs a task again whose document changes while it runs', async () => {
    const database = await aDatabase();
    const mill = database.mill();
    const seen: unknown[] = [];
    for (const task of ['a', 'b'])
      await mill.reactiveTask({
        task,
        collection: 'things',
        debounce: 0,
        filter: { status: 'paid' },
        handler: async ({ docId, watchedValues }) => {
          const { n } = watchedValues as { n: number };
          if (task === 'a' && n === 1) {
            await database.docs.updateOne({ _id: docId as number }, { $set: { n: 2 } });
            await until('it is dirty', async () => {
              const { status } = (await database.raw('a', docId)) ?? {};
              return status === 'processing_dirty';
            });
          }
          seen.push(`${task}${String(n)}`);
        },
      });
    await withProbeTask(mill);
    await startedUp(mill, 'a');
    await database.docs.insertOne({ _id: 1, status: 'paid', n: 1 });
    await until('both saw the last state', () => seen.includes('a2') && seen.includes('b2'));
  });

  it('a document on which the filter of one task fails holds up no other task and no other document', async () => {
    const database = await aDatabase();
    const { mill, ran } = await several(database, {
      good: { filter: { status: 'paid' } },
      bad: { filter: database.filters.failing },
      other: {},
    });
    await database.docs.insertMany([
      { _id: 1, status: 'paid', other: 1 },
      { _id: 2, status: 'paid', other: 0 },
      { _id: 3, status: 'paid', other: 1 },
    ]);
    await ran('good 1', 'good 2', 'good 3', 'bad 1', 'bad 3', 'other 2');
    await database.reaches(mill, 'bad', 2, 'failed');
    await database.docs.updateOne({ _id: 2 }, { $set: { other: 1 } });
    await database.docs.insertOne({ _id: 4, status: 'paid', other: 1 });
    await ran('bad 2', 'bad 4', 'good 4', 'other 4');
  });
});
