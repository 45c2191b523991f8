import { MongoClient, type Document } from 'mongodb';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  duePipeline,
  foreignPipeline,
  headPipeline,
  heldPipeline,
} from '../../../src/mongodb/reactive/claim.js';
import { depthPipelines } from '../../../src/mongodb/reactive/query/depths.js';
import { planPipeline, unmatchPipeline } from '../../../src/mongodb/reactive/plan/plan.js';
import { planAllPipeline, unmatchAllPipeline } from '../../../src/mongodb/reactive/plan/together.js';
import { fetchPipeline } from '../../../src/mongodb/reactive/query/fetch.js';
import { createIndexes, exactIdIndex, indexFaults, taskIndexes } from '../../../src/mongodb/indexes.js';
import { mongodb } from '../../../src/mongodb/index.js';
import { documentIndex, type Place } from '../../../src/mongodb/reactive/sources.js';
import type { TaskPlan } from '../../../src/store/reactive/reactive.js';
import { Tidemill } from '../../../src/index.js';
import { until } from '../../support/mills.js';
import { freshUri } from '../../support/stores.js';

const DOCUMENTS = 50_000;
const TASKS = ['mail', 'sync', 'audit'];

const plan: TaskPlan = {
  task: 'mail',
  source: { collection: 'orders' },
  filter: { status: 'paid' },
  watchProjection: { status: 1, total: 1 },
  debounce: { waitMs: 0, maxWaitMs: 0 },
  resetRetriesOnDataChange: true,
  cleanup: { deleteWhen: 'sourceDocumentDeleted', keepForMs: 0 },
  evolution: { handlerVersion: 1, onHandlerVersionChange: 'none', reconcileOnTriggerChange: true },
};

let client: MongoClient;
let place: Place;

/** Created on the server itself: the documents, and three tasks for each of them. */
beforeAll(async () => {
  client = new MongoClient(freshUri());
  const db = client.db();
  place = { db, source: db.collection('orders'), tasks: db.collection('orders_tasks') };
  // An index on the filter's field is a trap: the batch of ids is by far the better plan.
  await place.source.createIndexes([{ key: { status: 1 }, name: 'status' }]);
  await createIndexes(place.tasks, taskIndexes);
  await db.collection('seed').insertMany(Array.from({ length: 10 }, (_, n) => ({ n })));
  const numbers = [
    { $set: { i: { $range: [0, DOCUMENTS / 10] } } },
    { $unwind: '$i' },
    { $set: { i: { $add: ['$i', { $multiply: ['$n', DOCUMENTS / 10] }] } } },
  ];
  const order = { _id: '$i', status: { $cond: [{ $mod: ['$i', 3] }, 'paid', 'new'] }, total: '$i' };
  await db
    .collection('seed')
    .aggregate([...numbers, { $replaceWith: order }, { $merge: 'orders' }])
    .toArray();
  for (const task of TASKS) {
    const status = { $arrayElemAt: [['pending', 'completed', 'failed', 'processing'], { $mod: ['$i', 4] }] };
    const stored = {
      _id: { task, id: '$i' },
      v: { $literal: 1 },
      task,
      sourceDocId: '$i',
      status,
      matched: true,
      leaseToken: 'life.1',
      claimedBy: 'one',
      lockedAt: '$$NOW',
      scheduledAt: { $add: ['$$NOW', { $multiply: [{ $subtract: ['$i', DOCUMENTS / 2] }, 1_000] }] },
    };
    await db
      .collection('seed')
      .aggregate([...numbers, { $replaceWith: stored }, { $merge: 'orders_tasks' }])
      .toArray();
  }
});

afterAll(async () => {
  await client.db().dropDatabase();
  await client.close();
});

/** The winning plan, without rejected ones. */
const won = (explained: Document): string =>
  JSON.stringify(explained, (key, value: unknown) =>
    key === 'rejectedPlans' || key === 'allPlansExecution' ? undefined : value,
  );
const stagesOf = (explained: Document): string[] =>
  [...won(explained).matchAll(/"stage":"(\w+)"/gu)].map((match) => (match[1] ?? '').toUpperCase());
const sumOf = (explained: Document, counter: string): number =>
  [...won(explained).matchAll(new RegExp(`"${counter}":(\\d+)`, 'gu'))].reduce(
    (sum, match) => sum + Number(match[1]),
    0,
  );
const indexesOf = (explained: Document): string[] =>
  [...won(explained).matchAll(/"indexName":"([^"]+)"/gu)].map((match) => match[1] ?? '');

/** `$merge` cannot be explained with figures, so it is left out. */
const reading = (pipeline: readonly Document[]): Document[] =>
  pipeline.filter((stage) => !('$merge' in stage));

const SCAN = /^(?:COLLSCAN|SORT)$/u;

describe('query plans with 50,000 documents and 150,000 tasks on MongoDB', () => {
  const ids = Array.from({ length: 1_000 }, (_, n) => n * 37);

  it.each([
    ['by a query', plan, { status: 'paid' }],
    ['without a filter', plan, {}],
    ['by an expression', plan, { $expr: { $gt: ['$total', 10] } }],
    ['by a query of its own on _id', plan, { _id: { $gte: 0 } }],
    ['by an $or of indexed fields', plan, { $or: [{ status: 'paid' }, { status: 'new' }] }],
    ['without a projection', { ...plan, watchProjection: undefined }, { status: 'paid' }],
  ])('planning a batch of ids uses the _id index, %s', async (_what, of, query) => {
    const pipeline = planPipeline(of, place, ids, query);
    expect(Object.keys(pipeline.at(-1) ?? {})).toEqual(['$merge']);
    const explained = await place.source.aggregate(reading(pipeline)).explain('executionStats');
    expect(indexesOf(explained).every((name) => name === '_id_')).toBe(true);
    expect(stagesOf(explained).filter((stage) => SCAN.test(stage))).toEqual([]);
    expect(sumOf(explained, 'totalDocsExamined')).toBeLessThanOrEqual(ids.length);
    expect(sumOf(explained, 'totalKeysExamined')).toBeLessThanOrEqual(2 * ids.length + 2);
  });

  it('planning and fetching by text ids in a source with a collation read only the documents they need', async () => {
    const { db } = place;
    const source = await db.createCollection('people', { collation: { locale: 'en', strength: 2 } });
    const tasks = db.collection('people_tasks');
    const people = Array.from({ length: 2_000 }, (_, n) => ({ _id: `person-${String(n)}`, status: 'paid' }));
    await source.insertMany(people as never[]);
    const store = mongodb({ client, database: db.databaseName });
    const mill = new Tidemill({ store });
    const never = { status: 'never' };
    await mill.reactiveTask({ task: 'other', collection: 'people', filter: never, handler: () => undefined });
    await mill.start();
    await until('the index is built', async () => (await indexFaults(source, [exactIdIndex])).length === 0);
    await mill.stop();
    const keys = people.slice(0, 20).map(({ _id }) => ({ task: 'mail', id: _id }));
    await tasks.insertMany(
      keys.map((_id) => ({
        _id,
        sourceDocId: _id.id,
        leaseToken: 'life.1',
        status: 'processing',
      })) as never[],
    );
    const people20: Place = { db, source, tasks };
    const simple = { collation: { locale: 'simple' } };
    const ids = keys.map(({ id }) => id);
    const planning = await source
      .aggregate(reading(planPipeline(plan, people20, ids, {})), simple)
      .explain('executionStats');
    expect(stagesOf(planning).filter((stage) => SCAN.test(stage))).toEqual([]);
    expect(sumOf(planning, 'totalDocsExamined')).toBeLessThanOrEqual(ids.length);
    const fetching = await tasks
      .aggregate(fetchPipeline(people20, plan, keys, ['life.1'], undefined, {}))
      .explain('executionStats');
    expect(won(fetching)).toContain(exactIdIndex.name);
    expect(won(fetching)).not.toMatch(/"collectionScans":"?[1-9]/u);
    expect(sumOf(fetching, 'totalDocsExamined')).toBeLessThanOrEqual(2 * ids.length);
  });

  it('unmatching uses the keys of tasks and the _id index of documents', async () => {
    const pipeline = reading(unmatchPipeline(plan, place, ids, { status: 'paid' }));
    const explained = await place.tasks.aggregate(pipeline).explain('executionStats');
    expect(stagesOf(explained).filter((stage) => SCAN.test(stage))).toEqual([]);
    expect(indexesOf(explained).every((name) => name === '_id_')).toBe(true);
    expect(won(explained)).not.toMatch(/"collectionScans":"?[1-9]/u);
    expect(sumOf(explained, 'totalDocsExamined')).toBeLessThanOrEqual(2 * ids.length);
  });

  it('planning a batch for several tasks reads each document once, by the _id index', async () => {
    const plans = TASKS.map((task, at) => ({ ...plan, task, filter: { total: { $gt: at } } }));
    const pipeline = planAllPipeline(plans, place, ids);
    expect(Object.keys(pipeline.at(-1) ?? {})).toEqual(['$merge']);
    const explained = await place.source.aggregate(reading(pipeline)).explain('executionStats');
    expect(indexesOf(explained).every((name) => name === '_id_')).toBe(true);
    expect(stagesOf(explained).filter((stage) => SCAN.test(stage))).toEqual([]);
    expect(sumOf(explained, 'totalDocsExamined')).toBeLessThanOrEqual(ids.length);
  });

  it.each([
    ['the keys of tasks', false, '_id_'],
    ['the index of documents', true, documentIndex.name],
  ])('unmatching for several tasks uses %s', async (_what, indexed, name) => {
    const plans = TASKS.map((task) => ({ ...plan, task }));
    if (indexed) await createIndexes(place.tasks, [documentIndex]);
    const pipeline = reading(unmatchAllPipeline(plans, place, ids, indexed));
    const explained = await place.source.aggregate(pipeline).explain('executionStats');
    expect(stagesOf(explained).filter((stage) => SCAN.test(stage))).toEqual([]);
    expect(won(explained)).toContain(`"indexesUsed":["${name}"]`);
    expect(won(explained)).not.toMatch(/"collectionScans":"?[1-9]/u);
  });

  it('a peek for due tasks examines at most two keys per task', async () => {
    const explained = await place.tasks
      .aggregate(duePipeline(TASKS), { hint: 'tidemill_due' })
      .explain('executionStats');
    expect(stagesOf(explained)).toContain('DISTINCT_SCAN');
    expect(sumOf(explained, 'totalKeysExamined')).toBeLessThanOrEqual(2 * TASKS.length);
    expect(sumOf(explained, 'totalDocsExamined')).toBe(0);
    const nobody = await place.tasks
      .aggregate(duePipeline(['nobody']), { hint: 'tidemill_due' })
      .explain('executionStats');
    expect(sumOf(nobody, 'totalKeysExamined')).toBeLessThanOrEqual(1);
  });

  it('queue depths for a scrape use index ranges and stop at the cap', async () => {
    for (const pipeline of depthPipelines('mail', 1_000)) {
      const explained = await place.tasks.aggregate(pipeline).explain('executionStats');
      expect(stagesOf(explained).filter((stage) => SCAN.test(stage))).toEqual([]);
      // If two stages report, each reports the same.
      expect(sumOf(explained, 'totalKeysExamined')).toBeLessThanOrEqual(2 * 1_001);
      expect(sumOf(explained, 'totalDocsExamined')).toBeLessThanOrEqual(2 * 1_001);
    }
  });

  it('the check for tasks of a later version examines at most one key', async () => {
    const explained = await place.tasks.aggregate(foreignPipeline).explain('executionStats');
    expect(indexesOf(explained)).toContain('tidemill_due');
    expect(sumOf(explained, 'totalKeysExamined')).toBeLessThanOrEqual(1);
  });

  it('a claim examines two keys per task, sorted by the index', async () => {
    for (const count of [5, 500]) {
      const explained = await place.tasks
        .aggregate(headPipeline('sync', count), { hint: 'tidemill_due' })
        .explain('executionStats');
      expect(stagesOf(explained).filter((stage) => SCAN.test(stage))).toEqual([]);
      expect(sumOf(explained, 'totalKeysExamined')).toBeGreaterThanOrEqual(count);
      expect(sumOf(explained, 'totalKeysExamined')).toBeLessThanOrEqual(2 * count + 2);
      const behind = await place.tasks
        .aggregate(headPipeline('sync', count, 100), { hint: 'tidemill_due' })
        .explain('executionStats');
      expect(stagesOf(behind).filter((stage) => SCAN.test(stage))).toEqual([]);
      expect(sumOf(behind, 'totalKeysExamined')).toBeLessThanOrEqual(2 * (count + 100) + 2);
    }
  });

  it('a claim of several tasks uses the same index in a union, without its own hint', async () => {
    const union = { $unionWith: { coll: 'orders_tasks', pipeline: headPipeline('audit', 100) } };
    const explained = await place.tasks
      .aggregate([...headPipeline('sync', 100), union], { hint: 'tidemill_due' })
      .explain('executionStats');
    expect(stagesOf(explained).filter((stage) => SCAN.test(stage))).toEqual([]);
    expect(sumOf(explained, 'totalKeysExamined')).toBeLessThanOrEqual(2 * 2 * 101);
  });

  it('reading claimed tasks and their documents uses _id indexes', async () => {
    const keys = Array.from({ length: 100 }, (_, n) => ({ task: 'mail', id: 4 * n + 3 }));
    const pipeline = heldPipeline(place, plan, keys, 'life.1', { status: 'paid' });
    const explained = await place.tasks.aggregate(pipeline).explain('executionStats');
    expect(stagesOf(explained).filter((stage) => SCAN.test(stage))).toEqual([]);
    expect(indexesOf(explained).every((name) => name === '_id_')).toBe(true);
    expect(won(explained)).not.toMatch(/"collectionScans":"?[1-9]/u);
    expect(sumOf(explained, 'totalDocsExamined')).toBeLessThanOrEqual(2 * keys.length);
    expect(await place.tasks.aggregate(pipeline).toArray()).toHaveLength(100);
  });
});
