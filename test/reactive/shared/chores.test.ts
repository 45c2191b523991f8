import { expect, it } from 'vitest';
import type { Tidemill, TidemillOptions } from '../../../src/index.js';
import { until } from '../../support/mills.js';
import { startedUp } from '../probes.js';
import { eachPlanner, type TestDatabase } from './test-databases.js';

const LONG_AGO = new Date(0);

const numbers = (count: number) => Array.from({ length: count }, (_, _id) => ({ _id, n: 1 }));

/** A mill whose reconciliation of `things` takes long, with a record of its handlers' calls. */
function aMill(database: TestDatabase, reactive: TidemillOptions['reactive'] = {}) {
  const mill = database.mill({
    pollInterval: { min: 10, max: 1_000 },
    // Slow enough not to end before what it must not hold up, also on a busy machine.
    reactive: { reconcileRate: 100, ...reactive },
  });
  const [runs, reconciled]: string[][] = [[], []];
  mill.on('reconcile:complete', ({ tasks }) => reconciled?.push(...tasks));
  const define = (task: string, collection: string, filter: object): Promise<void> =>
    mill.reactiveTask({
      task,
      collection,
      filter,
      debounce: 0,
      handler: ({ docId }) => void runs?.push(`${task} ${String(docId)}`),
    });
  return { mill, runs: runs ?? [], reconciled: reconciled ?? [], define };
}

const begun = (mill: Tidemill): Promise<unknown> =>
  until('the large one is looked at', async () =>
    (await mill.tasks.planning()).reconciling.some(({ processed }) => processed > 0),
  );

eachPlanner('a long reconciliation', (aDatabase) => {
  it('a long reconciliation does not hold up the first one of a smaller collection', async () => {
    const database = await aDatabase();
    await database.docs.insertMany(numbers(5_000));
    await database.others.insertOne({ _id: 1 });
    const { mill, runs, reconciled, define } = aMill(database);
    await define('large', 'things', { n: 2 });
    await mill.start();
    await begun(mill);
    await define('small', 'others', {});
    await until('the small one is handled', () => runs.includes('small 1'));
    expect(reconciled).not.toContain('large');
  });

  it('a long reconciliation does not hold up documents that were written since the start', async () => {
    const database = await aDatabase();
    await database.docs.insertMany(numbers(5_000));
    const { mill, runs, reconciled, define } = aMill(database);
    await define('large', 'things', { n: 2 });
    await mill.start();
    await database.docs.insertOne({ _id: 1_000_000, n: 2 });
    await until('the new document is handled', () => runs.includes('large 1000000'));
    expect(reconciled).toEqual([]);
    // A pass visits it last.
    const { reconciling } = await mill.tasks.planning();
    expect(reconciling).toMatchObject([{ task: 'large' }]);
    expect(reconciling[0]?.processed).toBeLessThan(4_000);
  });
});

/** Completed tasks of documents that are gone. */
const oldTasks = (count: number) =>
  Array.from({ length: count }, (_, sourceDocId) => ({
    task: 't',
    sourceDocId,
    status: 'completed' as const,
    scheduledAt: LONG_AGO,
    initialScheduledAt: LONG_AGO,
    createdAt: LONG_AGO,
    updatedAt: LONG_AGO,
    attempts: 1,
    matched: false,
  }));

eachPlanner('a cleanup begun by another leader', (aDatabase) => {
  it('a new leader continues a cleanup from where the previous one stopped', async () => {
    const database = await aDatabase();
    const { mill: first, define } = aMill(database);
    await define('t', 'things', {});
    await startedUp(first, 't');
    await first.stop();
    await database.putTasks(oldTasks(20));
    await database.begunCleanup('t', 12);
    const { mill, define: defineAgain } = aMill(database, { cleanupInterval: '1h' });
    await defineAgain('t', 'things', {});
    await mill.start();
    await until('the rest is gone', async () => (await database.count({ task: 't' })) === 12);
    await until('it has ended', async () => (await database.state('t'))?.cleanedUpTo === null);
    expect(await database.count({ task: 't' })).toBe(12);
  });

  it('a cleanup stays below reconcileRate', async () => {
    const database = await aDatabase();
    const { mill: first, define } = aMill(database);
    await define('t', 'things', {});
    await startedUp(first, 't');
    await first.stop();
    await database.putTasks(oldTasks(2_000));
    await database.begunCleanup('t', 1);
    const { mill, define: defineAgain, runs } = aMill(database, { cleanupInterval: '1h' });
    await defineAgain('t', 'things', {});
    await mill.start();
    await until('it has begun', async () => (await database.count({ task: 't' })) < 2_000);
    await database.docs.insertOne({ _id: 1_000_000, n: 2 });
    await until('a new document is handled meanwhile', () => runs.includes('t 1000000'));
    expect(await database.count({ task: 't' })).toBeGreaterThan(1_000);
  });
});
