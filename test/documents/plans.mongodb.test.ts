import type { Db } from 'mongodb';
import { beforeAll, describe, expect, inject, it } from 'vitest';
import type { JobStore } from '../../src/documents/index.js';
import { mongodb, type MongodbStore } from '../../src/mongodb/index.js';
import { opened } from '../support/port.js';
import { until } from '../support/mills.js';
import { freshUri, rawClient } from '../support/stores.js';
import { watched, type DocumentFixture } from './shared/document-fixtures.js';

const COUNT = 100_000;
const MOST_KEYS = 5;

const client = rawClient(inject('mongoUri'));
const signal = new AbortController().signal;
const uri = freshUri();
const db = (): Db => client.db(new URL(uri).pathname.slice(1));
let store: MongodbStore;

/** Documents that are due later, and as many that are parked, created on the server itself. */
async function fill(collection: string, path: string): Promise<void> {
  await db()
    .aggregate([
      { $documents: Array.from({ length: 10 }, (_, n) => ({ n })) },
      { $set: { i: { $range: [0, COUNT / 5] } } },
      { $unwind: '$i' },
      {
        $replaceWith: {
          $setField: {
            field: { $literal: path.split('.')[0] },
            input: { kind: 'mail' },
            value: {
              $let: {
                vars: { at: { $cond: [{ $mod: ['$i', 2] }, { $add: ['$$NOW', 3_600_000, '$i'] }, null] } },
                in: path.includes('.') ? { [path.split('.')[1]!]: '$$at' } : '$$at',
              },
            },
          },
        },
      },
      { $merge: { into: collection } },
    ])
    .toArray();
  expect(
    await db()
      .collection(collection)
      .countDocuments({ [path]: null }),
  ).toBe(COUNT);
}

/**
 * The number of keys, or documents if those are more, that each statement on a collection examined while `work` ran.
 */
async function keysOf(collection: string, work: () => Promise<unknown>): Promise<number[]> {
  await db().command({ profile: 0 });
  await db()
    .collection('system.profile')
    .drop()
    .catch(() => undefined);
  await db().command({ profile: 2 });
  await work();
  await db().command({ profile: 0 });
  const entries = await db()
    .collection('system.profile')
    .find({ ns: `${db().databaseName}.${collection}` })
    .toArray();
  return entries.map((entry) =>
    Math.max(Number(entry['keysExamined'] ?? 0), Number(entry['docsExamined'] ?? 0)),
  );
}

const polls = async (jobs: JobStore): Promise<void> => {
  await jobs.look?.({ withinMs: 1_000, known: [], signal });
  await jobs.lockNext(new Date(Date.now() + 60_000), { signal });
  await jobs.lockMany?.(new Date(Date.now() + 60_000), { limit: 50, signal });
};

describe('polls among 100,000 waiting and 100,000 parked documents on MongoDB', () => {
  beforeAll(async () => {
    await fill('plain', 'sleepUntil');
    await fill('nested', 'cron.sleepUntil');
    store = mongodb({ uri });
  });

  it.each([
    ['a plain index', { sleepUntil: 1 }, {}, undefined],
    ['a sparse index, as mongodb-cron advises', { sleepUntil: 1 }, { sparse: true }, undefined],
    ['an index that begins with the condition', { kind: 1, sleepUntil: 1 }, {}, { kind: 'mail' }],
  ] as const)(
    'a poll on MongoDB examines at most five keys with %s',
    async (_what, key, options, condition) => {
      await opened(store);
      const collection = db().collection('plain');
      await collection.dropIndexes();
      await collection.createIndexes([{ key: { ...key }, ...options }]);
      const jobs = store.documents({
        collection: 'plain',
        ...(condition === undefined ? {} : { condition }),
      });
      expect(await jobs.indexFaults?.()).toEqual([]);
      const keys = await keysOf('plain', () => polls(jobs));
      expect(keys).toHaveLength(3);
      expect(Math.max(...keys)).toBeLessThanOrEqual(MOST_KEYS);
    },
  );

  it('a poll on MongoDB examines at most five keys if sleepUntil is nested in an object', async () => {
    await opened(store);
    await db()
      .collection('nested')
      .createIndexes([{ key: { 'cron.sleepUntil': 1 } }]);
    const jobs = store.documents({ collection: 'nested', fields: { sleepUntil: 'cron.sleepUntil' } });
    expect(await jobs.indexFaults?.()).toEqual([]);
    expect(Math.max(...(await keysOf('nested', () => polls(jobs))))).toBeLessThanOrEqual(MOST_KEYS);
  });

  it("a poll on MongoDB examines at most five keys despite an array in a document's sleepUntil", async () => {
    await opened(store);
    const collection = db().collection('plain');
    await collection.dropIndexes();
    await collection.createIndexes([{ key: { sleepUntil: 1 } }]);
    const { insertedId } = await collection.insertOne({ sleepUntil: [new Date(0)] });
    const jobs = store.documents({ collection: 'plain' });
    const keys = await keysOf('plain', () => polls(jobs));
    await collection.deleteOne({ _id: insertedId });
    expect(Math.max(...keys)).toBeLessThanOrEqual(MOST_KEYS);
  });

  it('a look on MongoDB at a backlog of 5,000 due documents examines no more than 15 keys', async () => {
    await opened(store);
    const collection = db().collection('backlog');
    await collection.createIndexes([{ key: { sleepUntil: 1 } }]);
    await collection.insertMany(
      Array.from({ length: 5_000 }, (_, at) => ({ sleepUntil: new Date(at + 1_000) })),
    );
    const { insertedId } = await collection.insertOne({ sleepUntil: [new Date(0)] });
    const jobs = store.documents({ collection: 'backlog' });
    const looked = await jobs.look?.({ withinMs: 1_000, known: [], signal });
    expect(looked?.misfits).toEqual([{ id: insertedId, value: [new Date(0)] }]);
    await collection.deleteOne({ _id: insertedId });
    await collection.dropIndexes();
    await collection.createIndexes([{ key: { sleepUntil: 1 } }]);
    const keys = await keysOf('backlog', async () => {
      const { dueInMs } = (await jobs.look?.({ withinMs: 1_000, known: [], signal })) ?? {};
      expect(dueInMs).toBeLessThan(0);
    });
    expect(Math.max(...keys)).toBeLessThanOrEqual(15);
  });

  it('an idle scheduler on MongoDB polls about once a second with at most five keys each', async () => {
    const fixture = { store: mongodb({ uri }), collection: 'plain' } as unknown as DocumentFixture;
    const { schedule } = watched(fixture);
    await schedule.start();
    await until('it is idle', () => schedule.isIdle());
    const began = performance.now();
    const keys = await keysOf('plain', () =>
      until('some time has passed', () => performance.now() - began > 4_000),
    );
    await schedule.stop();
    expect(Math.max(...keys)).toBeLessThanOrEqual(MOST_KEYS);
    expect(keys.length).toBeGreaterThan(0);
    expect(keys.length).toBeLessThan(12);
  });

  it('names the index that a document schedule lacks on MongoDB', async () => {
    await opened(store);
    await db().collection('plain').dropIndexes();
    await db()
      .collection('plain')
      .createIndexes([{ key: { kind: 1 } }]);
    const [fault, ...others] = (await store
      .documents({ collection: 'plain', condition: { kind: 'mail' } })
      .indexFaults?.())!;
    expect(fault).toContain('createIndex({"kind":1,"sleepUntil":1})');
    expect(others).toEqual([]);
    expect(await store.documents({ collection: 'not there' }).indexFaults?.()).toHaveLength(1);
  });
});
