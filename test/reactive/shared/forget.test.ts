import { expect, it } from 'vitest';
import type { Tidemill } from '../../../src/index.js';
import type { ReactiveStore } from '../../../src/store/reactive/reactive.js';
import { testMill } from '../../../src/testing/index.js';
import { until } from '../../support/mills.js';
import { startedUp, withProbeTask } from '../probes.js';
import { eachDatabase, type TestDatabase } from './test-databases.js';

const aTask = (mill: Tidemill, task: string, runs: string[] = []): Promise<void> =>
  mill.reactiveTask({
    task,
    collection: 'things',
    debounce: 0,
    handler: ({ docId }) => void runs.push(`${task} ${String(docId)}`),
  });

/** Uses the store as a tool beside the mills does. */
async function beside<T>(database: TestDatabase, work: (reactive: ReactiveStore) => Promise<T>): Promise<T> {
  const [store, holder] = [database.store(), {}];
  await store.acquire(holder);
  try {
    return await work(store.reactive as ReactiveStore);
  } finally {
    await store.release(holder);
  }
}

/** The tasks `gone` and `kept` have run for three documents; the only live instance leads, and defines `kept`. */
async function leftTheCode(aDatabase: () => Promise<TestDatabase>) {
  const database = await aDatabase();
  const runs: string[] = [];
  await database.docs.insertMany([1, 2, 3].map((_id) => ({ _id, n: 1 })));
  const before = database.mill({ pollInterval: { min: 10, max: 1_000 } });
  await aTask(before, 'gone', runs);
  await aTask(before, 'kept', runs);
  await before.start();
  await until('all have run', () => runs.length === 6);
  await before.stop();
  const mill = database.mill({ pollInterval: { min: 10, max: 1_000 } });
  await aTask(mill, 'kept', runs);
  await withProbeTask(mill);
  await startedUp(mill, 'probe');
  return { database, mill, runs };
}

const namesIn = (database: TestDatabase): Promise<readonly string[]> =>
  beside(database, async ({ planner }) =>
    [
      ...(await planner.plans()).map(({ plan }) => plan.task),
      ...(await planner.states()).map(({ task }) => task),
    ].sort(),
  );

eachDatabase('tasks.forget', (aDatabase) => {
  it('forget deletes the records, the definition, the state and the pause of a task that left the code', async () => {
    const { database, mill } = await leftTheCode(aDatabase);
    await mill.tasks.pause('gone');
    expect(await database.count({ task: 'gone' })).toBe(3);
    expect(await mill.tasks.forget('gone')).toEqual({ records: 3 });
    expect(await database.count({ task: 'gone' })).toBe(0);
    expect(await namesIn(database)).toEqual(['kept', 'kept', 'probe', 'probe']);
    expect(await database.count({ task: 'kept' })).toBe(3);
    expect(await database.paused()).not.toContain('gone');
    await expect(mill.tasks.forget('gone')).rejects.toThrow('no task "gone" is known to the database');

    await database.docs.insertOne({ _id: 4, n: 1 });
    await database.reaches(mill, 'kept', 4, 'completed');
    await database.planned();
    expect(await database.count({ task: 'gone' })).toBe(0);
  });

  it('forget refuses while a live instance runs the task, and names the instance', async () => {
    const { mill } = await leftTheCode(aDatabase);
    await expect(mill.tasks.forget('kept')).rejects.toThrow(
      `tasks.forget: live instances run the task "kept": ${mill.instanceId}. Deploy without it, or stop them, first.`,
    );
  });

  it('forget finishes what a crash interrupted', async () => {
    const { database, mill } = await leftTheCode(aDatabase);
    await beside(database, async ({ forgetting }) => {
      expect(await forgetting.retire('gone')).toBe(true);
      expect(await forgetting.deleteRecords('gone', 2)).toBe(2);
    });
    expect(await mill.tasks.forget('gone')).toEqual({ records: 1 });
    expect(await namesIn(database)).toEqual(['kept', 'kept', 'probe', 'probe']);
  });

  it('the leader deletes what it planned for a task while that was forgotten', async () => {
    const { database } = await leftTheCode(aDatabase);
    await beside(database, async ({ forgetting, planner }) => {
      await forgetting.deleteRecords('gone', 100);
      await database.docs.insertOne({ _id: 4, n: 1 });
      await until('the leader still planned it', async () => (await database.count({ task: 'gone' })) === 1);
      await forgetting.retire('gone');
      await forgetting.deleteDefinitions('gone');
      await planner.notifyPeers(true);
    });
    await until('the late record is gone', async () => (await database.count({ task: 'gone' })) === 0);
  });

  it('a leader does not restore a part of the state of a forgotten task', async () => {
    const { database } = await leftTheCode(aDatabase);
    await beside(database, async ({ forgetting, planner }) => {
      await forgetting.retire('gone');
      expect(await planner.saveState({ life: 'x', term: 1_000 }, 'gone', { done: 1 })).toBe(true);
      expect((await planner.states()).map(({ task }) => task).sort()).toEqual(['kept', 'probe']);
      expect(await planner.saveState({ life: 'x', term: 0 }, 'kept', { done: 1 })).toBe(false);
    });
  });

  it('a forgotten task that is deployed again starts as new', async () => {
    const { database, mill, runs } = await leftTheCode(aDatabase);
    await mill.tasks.forget('gone');
    runs.length = 0;
    await aTask(mill, 'gone', runs);
    await until('every document runs again', () => runs.length === 3);
    expect(runs.sort()).toEqual(['gone 1', 'gone 2', 'gone 3']);
    expect(await database.count({ task: 'gone' })).toBe(3);
  });

  it('the registry returns only the definitions that are asked for', async () => {
    const { database } = await leftTheCode(aDatabase);
    await beside(database, async ({ planner }) => {
      const all = await planner.plans();
      const kept = all.filter(({ plan }) => plan.task === 'kept');
      const names = kept.map(({ plan, id }) => ({ task: plan.task, definition: id }));
      expect(await planner.plans(names)).toEqual(kept);
      expect(await planner.plans([])).toEqual([]);
    });
  });
});

it('an instance publishes its definition again if its task was forgotten while it started', async () => {
  await using mill = testMill({ leaseDuration: '30s' });
  await aTask(mill, 'gone');
  await mill.start();
  await mill.drain();
  const { planner, forgetting } = mill.store.reactive;
  await forgetting.retire('gone');
  await forgetting.deleteDefinitions('gone');
  await planner.notifyPeers(true);
  await mill.advance('3m');
  expect((await planner.plans()).map(({ plan }) => plan.task)).toEqual(['gone']);
  expect((await planner.states()).map(({ task }) => task)).toEqual(['gone']);
});
