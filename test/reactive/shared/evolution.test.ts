import { expect, it } from 'vitest';
import type { EvolutionConfig, Tidemill, TidemillOptions } from '../../../src/index.js';
import { gate, until } from '../../support/mills.js';
import { collect, keepLines } from '../mills.js';
import { eachPlanner, type Thing, type TestDatabase } from './test-databases.js';

const fast: Partial<TidemillOptions> = { pollInterval: { min: 10, max: 200 } };

interface Deployment {
  readonly mill: Tidemill;
  readonly runs: number[];
}

/** One version of an application: ids below 3 fail for good, unless `healed`. */
async function deploy(
  database: TestDatabase,
  evolution: EvolutionConfig,
  options: { healed?: boolean; hold?: Promise<void>; filter?: object; mill?: Partial<TidemillOptions> } = {},
): Promise<Deployment> {
  const mill = database.mill({ ...fast, ...options.mill });
  const runs: number[] = [];
  await mill.reactiveTask({
    task: 'work',
    collection: 'things',
    debounce: 0,
    retryPolicy: { type: 'fixed', interval: 10, maxAttempts: 1 },
    evolution,
    ...(options.filter === undefined ? {} : { filter: options.filter }),
    handler: async ({ docId }) => {
      runs.push(Number(docId));
      await options.hold;
      if (options.healed !== true && Number(docId) < 3) throw new Error('on purpose');
    },
  });
  return { mill, runs };
}

const sorted = (runs: readonly number[]): number[] => [...runs].sort((a, b) => a - b);
const count = (n: number): number[] => Array.from({ length: n }, (_, index) => index);

async function ended(mill: Tidemill, total = 10): Promise<void> {
  await until('all have ended', async () => {
    const done = await mill.countReactiveTasks({ status: ['completed', 'failed'] });
    return done === total;
  });
}

/** Ten documents, handled by version 1: three have failed, seven are completed. */
async function handledOnce(database: TestDatabase): Promise<Deployment> {
  await database.docs.insertMany(count(10).map((_id) => ({ _id })));
  const first = await deploy(database, { handlerVersion: 1 });
  await first.mill.start();
  await ended(first.mill);
  await until('it is reconciled', async () => (await database.state('work'))?.done === 1);
  expect(await first.mill.countReactiveTasks({ status: 'failed' })).toBe(3);
  return first;
}

/** Waits until the leader has taken note of a version. */
async function acknowledged({ state }: TestDatabase, version: number): Promise<void> {
  await until(
    `version ${String(version)} is known`,
    async () => (await state('work'))?.handlerVersion === version,
  );
}

eachPlanner('a raised handlerVersion', (aDatabase) => {
  it.each([
    ['none', []],
    ['reprocess_failed', [0, 1, 2]],
    ['reprocess_all', count(10)],
  ] as const)(
    'a raised handlerVersion with %s reruns what the policy says, once',
    async (onHandlerVersionChange, again) => {
      const database = await aDatabase();
      await (await handledOnce(database)).mill.stop();
      const evolution = { handlerVersion: 2, onHandlerVersionChange };
      const second = await deploy(database, evolution, { healed: true });
      await second.mill.start();
      await acknowledged(database, 2);
      await until('they ran', () => second.runs.length >= again.length);
      await ended(second.mill);
      await second.mill.stop();
      const third = await deploy(database, evolution, { healed: true });
      const gained = collect(third.mill, 'leader:gained');
      await third.mill.start();
      await until('it leads', () => gained.length > 0);
      await database.docs.insertOne({ _id: 10 });
      await until('a new document was handled', () => third.runs.length > 0);
      expect(sorted(second.runs)).toEqual([...again]);
      expect(third.runs).toEqual([10]);
    },
  );

  it('a raised handlerVersion restarts the attempts and keeps the history', async () => {
    const database = await aDatabase();
    await (await handledOnce(database)).mill.stop();
    const second = await deploy(
      database,
      { handlerVersion: 2, onHandlerVersionChange: 'reprocess_failed' },
      { healed: true },
    );
    await second.mill.start();
    await until('they ran', () => second.runs.length === 3);
    await ended(second.mill);
    const task = await second.mill.tasks.get('work', 1);
    expect(task).toMatchObject({ status: 'completed', attempts: 1 });
    expect(task?.executionHistory?.map(({ status }) => status)).toEqual(['failed', 'completed']);
  });

  it('a raised handlerVersion reruns tasks that are running at that moment', async () => {
    const database = await aDatabase();
    await database.docs.insertOne({ _id: 5 });
    const hold = gate();
    const first = await deploy(database, { handlerVersion: 1 }, { hold: hold.promise });
    await first.mill.start();
    await until('it runs', () => first.runs.length === 1);
    const second = await deploy(database, { handlerVersion: 2, onHandlerVersionChange: 'reprocess_all' });
    await second.mill.start();
    await until(
      'it is dirty',
      async () => (await first.mill.countReactiveTasks({ status: 'processing_dirty' })) === 1,
    );
    await acknowledged(database, 2);
    hold.open();
    await until('it ran again', () => first.runs.length + second.runs.length === 2);
    await ended(second.mill, 1);
    expect(first.runs.length + second.runs.length).toBe(2);
  });

  it('a raised handlerVersion takes effect while the older deployment leads', async () => {
    const database = await aDatabase();
    const first = await handledOnce(database);
    const { length: before } = first.runs;
    const second = await deploy(
      database,
      { handlerVersion: 2, onHandlerVersionChange: 'reprocess_all' },
      { healed: true },
    );
    await second.mill.start();
    await acknowledged(database, 2);
    await until('all ran again', () => first.runs.length - before + second.runs.length >= 10);
    await ended(second.mill);
    expect(first.runs.length - before + second.runs.length).toBe(10);
  });
});

eachPlanner('two deployments at once', (aDatabase) => {
  it('an older deployment that starts later undoes nothing and reruns nothing', async () => {
    const database = await aDatabase();
    await (await handledOnce(database)).mill.stop();
    const newer = await deploy(
      database,
      { handlerVersion: 2, onHandlerVersionChange: 'reprocess_all' },
      { healed: true },
    );
    await newer.mill.start();
    await acknowledged(database, 2);
    await until('all ran again', () => newer.runs.length >= 10);
    await ended(newer.mill);
    // Each comes and goes; whichever leads, the version stays and nothing runs again.
    for (let round = 0; round < 3; round += 1) {
      const older = await deploy(database, { handlerVersion: 1, onHandlerVersionChange: 'reprocess_all' });
      const again = await deploy(
        database,
        { handlerVersion: 2, onHandlerVersionChange: 'reprocess_all' },
        { healed: true },
      );
      await older.mill.start();
      await again.mill.start();
      await older.mill.tasks.reconcile('work');
      await until('the cluster has taken note', async () => {
        const { wanted, done } = (await database.state('work')) ?? { wanted: 1, done: 0 };
        return wanted === done && done >= 2 + round;
      });
      expect(older.runs).toEqual([]);
      expect(again.runs).toEqual([]);
      await older.mill.stop();
      await again.mill.stop();
    }
    await acknowledged(database, 2);
    expect(newer.runs).toHaveLength(10);
  });

  it('plans by the newer filter while both deployments live, and by the older one after a rollback', async () => {
    const database = await aDatabase();
    const { docs } = database;
    const { logger, lines } = keepLines();
    const older = await deploy(
      database,
      { handlerVersion: 1 },
      { healed: true, filter: { status: 'old' }, mill: { logger } },
    );
    const newer = await deploy(database, { handlerVersion: 2 }, { healed: true, filter: { status: 'new' } });
    await older.mill.start();
    await newer.mill.start();
    await acknowledged(database, 2);
    const planned = async (id: number): Promise<boolean> =>
      (await older.mill.tasks.get('work', id)) !== undefined;
    // The version is stored before the leader plans by it.
    await docs.insertOne({ _id: 11, status: 'new' });
    await until('the newer filter counts', () => planned(11));
    await docs.insertMany([
      { _id: 10, status: 'old' },
      { _id: 13, status: 'new' },
    ]);
    await until('it counts for later documents', () => planned(13));
    expect(await older.mill.tasks.get('work', 10)).toBeUndefined();
    await newer.mill.stop();
    // The rollback: a reconciliation finds what the older filter matches, without a change.
    await until('the older filter counts', () => older.runs.includes(10));
    await docs.insertOne({ _id: 12, status: 'old' });
    await until('it is planned by', () => older.runs.includes(12));
    expect(lines.filter(({ level }) => level === 'error')).toEqual([]);
  });

  it('a version that is deployed again after a rollback reprocesses nothing', async () => {
    const database = await aDatabase();
    await (await handledOnce(database)).mill.stop();
    const evolution = { handlerVersion: 2, onHandlerVersionChange: 'reprocess_all' } as const;
    const newer = await deploy(database, evolution, { healed: true });
    await newer.mill.start();
    await until('all ran again', () => newer.runs.length >= 10);
    await acknowledged(database, 2);
    await ended(newer.mill);
    await newer.mill.stop();
    const older = await deploy(database, { handlerVersion: 1 }, { healed: true });
    await older.mill.start();
    await database.docs.insertOne({ _id: 10 });
    await until('the older one works', () => older.runs.includes(10));
    await older.mill.stop();
    const again = await deploy(database, evolution, { healed: true });
    await again.mill.start();
    await database.docs.insertOne({ _id: 11 });
    await until('the newer one works', () => again.runs.includes(11));
    expect(again.runs).toEqual([11]);
  });

  it('reprocesses once, even if a long reconciliation of the older definition ends afterwards', async () => {
    const database = await aDatabase();
    await database.docs.insertMany(count(3_000).map((n) => ({ _id: n + 3 })));
    const { logger, lines } = keepLines();
    const slow = { logger, reactive: { reconcileRate: 1_000, concurrency: 50 } };
    const older = await deploy(database, { handlerVersion: 1 }, { mill: slow });
    const started = collect(older.mill, 'reconcile:start');
    await older.mill.start();
    await until('it is under way', () => started.length > 0);
    const newer = await deploy(
      database,
      { handlerVersion: 2, onHandlerVersionChange: 'reprocess_all' },
      { mill: slow },
    );
    await newer.mill.start();
    await acknowledged(database, 2);
    await until('it has ended', async () => (await database.state('work'))?.done === 1);
    await acknowledged(database, 2);
    await ended(newer.mill, 3_000);
    const times = new Map<number, number>();
    for (const id of [...older.runs, ...newer.runs]) times.set(id, (times.get(id) ?? 0) + 1);
    expect(Math.max(...times.values())).toBeLessThanOrEqual(2);
    expect(lines.filter(({ text }) => text.includes('tasks run again'))).toHaveLength(1);
  });
});

eachPlanner('a task that moves to another collection', (aDatabase) => {
  const move = async (
    database: TestDatabase,
    collection: 'things' | 'others',
    least: number,
    evolution: EvolutionConfig = {},
  ): Promise<number[]> => {
    const mill = database.mill(fast);
    const runs: number[] = [];
    await mill.reactiveTask({
      task: 'work',
      collection,
      debounce: 0,
      filter: { status: 'paid' },
      watchProjection: { status: 1 },
      evolution,
      handler: async ({ docId, getDocument }) => {
        await getDocument();
        runs.push(Number(docId));
      },
    });
    await mill.start();
    await until(`${String(least)} ran in ${collection}`, () => runs.length >= least);
    await mill.stop();
    return sorted(runs);
  };

  it('a task that moves to another collection runs for every document there', async () => {
    const database = await aDatabase();
    const paid = (n: number): Thing[] => count(n).map((_id) => ({ _id, status: 'paid' }));
    await database.docs.insertMany(paid(5));
    await database.others.insertMany(paid(8));
    expect(await move(database, 'things', 5)).toEqual(count(5));
    expect(await move(database, 'others', 8)).toEqual(count(8));
    await database.others.insertOne({ _id: 8, status: 'paid' });
    // It is at home there by now.
    expect(await move(database, 'others', 1)).toEqual([8]);
  });

  it('a task that moves runs for every document there, even without reconcileOnTriggerChange', async () => {
    const database = await aDatabase();
    await database.docs.insertOne({ _id: 1, status: 'paid' });
    await database.others.insertMany([1, 2].map((_id) => ({ _id, status: 'paid' })));
    const evolution = { reconcileOnTriggerChange: false };
    expect(await move(database, 'things', 1, evolution)).toEqual([1]);
    expect(await move(database, 'others', 2, evolution)).toEqual([1, 2]);
  });
});
