import { BSON, type Db } from 'mongodb';
import { describe, expect, it } from 'vitest';
import type { Tidemill } from '../../../src/index.js';
import { mongodb, type MongodbStore } from '../../../src/mongodb/index.js';
import { aMill, gate, until } from '../../support/mills.js';
import { spawnInstance } from '../instances.js';
import { thingsFixture, type ThingsFixture } from '../things-fixture.js';

const TASK = { task: 't', collection: 'things', debounce: 0 } as const;

const completed = (mill: Tidemill): Promise<true> =>
  until('it is completed', async () => (await mill.tasks.get('t', 1))?.status === 'completed');

/** Runs one task, with all indexes in place. The planner creates them once more when it begins to lead. */
async function runsWithIndexes(store: MongodbStore, docs: ThingsFixture['docs']): Promise<void> {
  const mill = aMill(store);
  await mill.reactiveTask({ ...TASK, handler: () => undefined });
  await mill.start();
  expect(await store.indexFaults({ sources: ['things'] })).toEqual([]);
  await docs.insertOne({ _id: 1 });
  await completed(mill);
}

const collectionsOf = async (db: Db): Promise<readonly string[]> =>
  (await db.listCollections().toArray()).map(({ name }) => name);

describe('reactive.globalsCollection', () => {
  it('globalsCollection holds all coordination, also that of jobs', async () => {
    const { db, docs, client } = thingsFixture();
    const mill = aMill(mongodb({ client }), { reactive: { globalsCollection: 'my_globals' } });
    mill.job('j', () => 'ran');
    await mill.reactiveTask({ ...TASK, handler: () => undefined });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    await completed(mill);
    expect(await mill.jobs.result((await mill.enqueue('j')).id)).toBe('ran');
    expect(await collectionsOf(db)).not.toContain('_tidemill_globals');
    const kinds = await db.collection('my_globals').distinct('kind');
    expect(kinds).toEqual(expect.arrayContaining(['definition', 'instance', 'planner', 'task']));
  });

  it('globalsCollection must agree with collections.globals', async () => {
    const { client } = thingsFixture();
    const store = (): ReturnType<typeof mongodb> => mongodb({ client, collections: { globals: 'theirs' } });
    const same = aMill(store(), { reactive: { globalsCollection: 'theirs' } });
    expect(await same.countReactiveTasks()).toBe(0);
    const other = aMill(store(), { reactive: { globalsCollection: 'mine' } });
    await expect(other.countReactiveTasks()).rejects.toMatchObject({
      code: 'BAD_OPTION',
      message: expect.stringMatching(
        /globalsCollection is "mine", but the store uses "theirs".*collections/u,
      ) as unknown,
    });
  });

  it('globalsCollection cannot change in a store that another mill already uses', async () => {
    const { client } = thingsFixture();
    const store = mongodb({ client });
    expect(await aMill(store).countReactiveTasks()).toBe(0);
    const late = aMill(store, { reactive: { globalsCollection: 'mine' } });
    await expect(late.start()).rejects.toThrow(/the store uses "_tidemill_globals"/u);
  });
});

/** Runs mongosh commands, as an administrator would. */
async function inShell(db: Db, script: string): Promise<void> {
  const made: Promise<unknown>[] = [];
  const shell = {
    getCollection: (name: string) => ({
      createIndex: (key: Record<string, 1>, options: object) =>
        made.push(db.collection(name).createIndexes([{ key, ...options }])),
    }),
  };
  // eslint-disable-next-line @typescript-eslint/no-implied-eval, @typescript-eslint/no-unsafe-call
  new Function('db', 'EJSON', script)(shell, BSON.EJSON);
  await Promise.all(made);
}

describe('createIndexes: false', () => {
  it("createIndexes: false creates no task indexes, names those missing, and accepts the script's", async () => {
    const { client, db, docs } = thingsFixture();
    const store = mongodb({ client, createIndexes: false });
    await inShell(db, store.indexScript());
    const refused = aMill(store);
    await refused.reactiveTask({ ...TASK, handler: () => undefined });
    await expect(refused.start()).rejects.toMatchObject({
      code: 'STORE',
      message: expect.stringMatching(
        /things_tasks: index tidemill_due is missing.*indexScript\(\).*sources/u,
      ) as unknown,
    });
    expect(await collectionsOf(db)).not.toContain('things_tasks');
    await inShell(db, store.indexScript({ sources: ['things'] }));
    await runsWithIndexes(store, docs);
    await db.collection('things_tasks').dropIndex('tidemill_held');
    expect(await store.indexFaults({ sources: ['things', 'others'] })).toEqual([
      'things_tasks: index tidemill_held is missing',
      'others_tasks: index tidemill_due is missing',
      'others_tasks: index tidemill_held is missing',
      'others_tasks: index tidemill_of_key is missing',
      'others_tasks: index tidemill_by_status is missing',
    ]);
    expect(await store.indexFaults()).toEqual([]);
    await expect(store.indexFaults({ source: 'things' } as never)).rejects.toThrow(/Did you mean "sources"/u);
  });

  it('indexFaults uses the collection names of collections.tasks', async () => {
    const { client, db, docs } = thingsFixture();
    const tasks = (name: string): string => `${name}_work`;
    const store = mongodb({ client, collections: { tasks } });
    await runsWithIndexes(store, docs);
    await db.collection('things_work').dropIndex('tidemill_by_status');
    expect(await store.indexFaults({ sources: ['things'] })).toEqual([
      'things_work: index tidemill_by_status is missing',
    ]);
  });
});

describe('recoverStaleJobs: false', () => {
  it("an instance with recoverStaleJobs: false leaves a dead process's tasks to other instances", async () => {
    const { uri, db, client } = thingsFixture();
    const stored = db.collection('docs_tasks');
    await using dead = spawnInstance({ uri, leaseMs: 500, handlerMs: 60_000 });
    await db.collection<{ _id: number; version: number }>('docs').insertOne({ _id: 1, version: 1 });
    await until('it runs there', () => stored.findOne({ status: 'processing' }).then((row) => row !== null));
    const holder = { projection: { status: 1, claimedBy: 1, leaseToken: 1, lockedAt: 1, attempts: 1 } };
    const held = await stored.findOne({}, holder);
    await dead.kill();
    const definition = { task: 'sync', collection: 'docs', debounce: 0 } as const;
    const careful = aMill(mongodb({ client }), { leaseDuration: 500, recoverStaleJobs: false });
    const [leads, later] = [gate(), gate()];
    careful.on('leader:gained', () => leads.open());
    careful.job('probe', () => later.open());
    await careful.reactiveTask({ ...definition, handler: () => undefined });
    await careful.start();
    await leads.promise;
    // By then the lease has ended, and strays would have been looked for more than once.
    await careful.enqueue('probe', {}, { delay: 2_000 });
    await later.promise;
    expect(await stored.findOne({}, holder)).toEqual(held);
    const other = aMill(mongodb({ client }), { leaseDuration: 500 });
    await other.reactiveTask({ ...definition, handler: () => undefined });
    await other.start();
    await until('it was handed on and ran', async () => (await stored.findOne())?.['status'] === 'completed');
  });
});
