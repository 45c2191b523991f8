import { MongoClient, type Document } from 'mongodb';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { headPipeline } from '../../src/mongodb/jobs/claim/claim.js';
import { dueDepthPipeline } from '../../src/mongodb/jobs/depths.js';
import { countPipeline, findQuery, namesPipeline } from '../../src/mongodb/jobs/find.js';
import { liveKey } from '../../src/mongodb/jobs/enqueue/winners.js';
import { jobIndexes } from '../../src/mongodb/indexes.js';
import {
  clusterPipeline,
  duePipeline,
  expiryPipeline,
  oddPipelines,
} from '../../src/mongodb/jobs/claim/peek.js';
import { mongodb, type MongodbStore } from '../../src/mongodb/index.js';
import { fillCollection } from '../support/fill-collection.js';
import { aMill } from '../support/mills.js';
import { aJob, ahead } from '../support/port.js';
import { freshUri } from '../support/stores.js';

const NAMES = ['mail', 'report', 'sync', 'thumb', 'push'];
const FUTURE = 200_000;
const FINISHED = 200_000;
const DUE = 100_000;

let client: MongoClient;
let store: MongodbStore;
const holder = {};
const uri = { value: '' };

const fill = (count: number, fields: Document): Promise<void> =>
  fillCollection(client.db(), 'tidemill_jobs', count, {
    v: 1,
    name: { $arrayElemAt: [NAMES, { $mod: ['$i', NAMES.length] }] },
    data: { i: '$i' },
    priority: { $subtract: [{ $mod: ['$i', 3] }, 1] },
    failCount: 0,
    lockedAt: null,
    createdAt: { $subtract: ['$$NOW', '$i'] },
    updatedAt: { $subtract: ['$$NOW', '$i'] },
    ...fields,
  });

/** All index keys that an explained statement examined, including its unions. */
function keysExamined(plan: unknown): number {
  if (typeof plan !== 'object' || plan === null) return 0;
  return Object.entries(plan).reduce((sum, [key, value]) => {
    if (key === 'allPlansExecution' || key === 'rejectedPlans') return sum;
    return sum + (key === 'totalKeysExamined' ? Number(value) : keysExamined(value));
  }, 0);
}

/** The stages of the winning plan. */
function stagesOf(plan: unknown): string[] {
  const won = JSON.stringify(plan, (key, value: unknown) =>
    key === 'rejectedPlans' || key === 'allPlansExecution' ? undefined : value,
  );
  return [...won.matchAll(/"stage":"(\w+)"/gu)].map((match) => (match[1] ?? '').toUpperCase());
}

async function explained(pipeline: Document[], hint?: string): Promise<Document> {
  const options = hint === undefined ? {} : { hint };
  return client.db().collection('tidemill_jobs').aggregate(pipeline, options).explain('executionStats');
}

beforeAll(async () => {
  uri.value = freshUri();
  client = new MongoClient(uri.value);
  await fill(FUTURE, { status: 'pending', nextRunAt: { $add: ['$$NOW', { $add: [86_400_000, '$i'] }] } });
  await fill(FINISHED, {
    status: 'completed',
    nextRunAt: { $subtract: ['$$NOW', '$i'] },
    finishedAt: '$$NOW',
  });
  store = mongodb({ uri: uri.value });
  await store.acquire(holder);
});

afterAll(async () => {
  await client.db().dropDatabase();
  await store.release(holder);
  await client.close();
});

describe('query plans with 200,000 future and 200,000 finished jobs on MongoDB', () => {
  it('a peek examines at most two keys per name when nothing is due', async () => {
    const due = await explained(duePipeline(NAMES), 'tidemill_due');
    expect(stagesOf(due)).toContain('DISTINCT_SCAN');
    const odd = await Promise.all(oddPipelines.map((pipeline) => explained(pipeline)));
    expect(keysExamined(due)).toBeGreaterThanOrEqual(NAMES.length);
    expect(keysExamined(due) + odd.reduce((sum, plan) => sum + keysExamined(plan), 0)).toBeLessThanOrEqual(
      2 * NAMES.length,
    );
    const foreign = await explained(duePipeline(['nobody']), 'tidemill_due');
    expect(keysExamined(foreign)).toBeLessThanOrEqual(1);
  });

  it('stats count a name and status on the index alone, up to the cap', async () => {
    const plan = await explained(countPipeline('mail', 'completed', 1_000));
    expect(keysExamined(plan)).toBeLessThanOrEqual(1_002);
    const capped = await store.jobs.stats(1_000);
    expect(capped.names.find(({ name }) => name === 'mail')).toMatchObject({
      counts: { pending: 1_000, completed: 1_000, failed: 0 },
      capped: ['pending', 'completed'],
    });
  });

  it('queue depths for a scrape examine one key per name, none for nothing due, and stop at the cap', async () => {
    const named = await explained(namesPipeline);
    expect(keysExamined(named)).toBeLessThanOrEqual(NAMES.length + 1);
    const due = await explained(dueDepthPipeline('mail', 1_000), 'tidemill_due');
    expect(keysExamined(due)).toBeLessThanOrEqual(2);
    const depths = await store.jobs.depths({ cap: 1_000, readPreference: 'secondaryPreferred' });
    expect(depths).toHaveLength(NAMES.length);
    expect(depths[0]).toMatchObject({
      counts: { pending: 1_000, processing: 0, failed: 0 },
      due: 0,
      lagMs: 0,
    });
  });

  it.each([
    ['by name and status', { name: ['mail'], status: ['completed' as const] }, 'createdAt', -1],
    ['by name alone', { name: ['mail'] }, 'createdAt', -1],
    ['without a filter', {}, 'createdAt', 1],
    ['by status, last changed first', { status: ['completed' as const] }, 'updatedAt', -1],
    [
      'by several final statuses, last changed first',
      { status: ['completed' as const, 'cancelled' as const] },
      'updatedAt',
      -1,
    ],
    ['pending ones of a name by due time', { name: ['mail'], status: ['pending' as const] }, 'nextRunAt', 1],
    ['pending ones of all names by due time', { name: NAMES, status: ['pending' as const] }, 'nextRunAt', -1],
  ] as const)('find %s examines about a page of keys', async (_what, filter, field, direction) => {
    const after = { at: new Date(Date.now() - 50_000), key: '{"key":""}' };
    for (const page of [
      { field, direction, limit: 50 },
      { field, direction, limit: 50, after },
    ] as const) {
      const at = field === 'nextRunAt' ? { after: { ...after, at: new Date(Date.now() + 86_450_000) } } : {};
      const query = findQuery(filter, 'after' in page ? { ...page, ...at } : page);
      const plan = await client
        .db()
        .collection('tidemill_jobs')
        .find(query as never, { sort: { [field]: direction, _id: direction }, limit: 51 })
        .explain('executionStats');
      const stats = plan['executionStats'] as { totalKeysExamined: number; totalDocsExamined: number };
      expect(stats.totalDocsExamined).toBeLessThanOrEqual(60);
      expect(stats.totalKeysExamined).toBeLessThanOrEqual(70);
    }
  });

  it('of the indexes of all jobs, only that by name contains what a claim or a settlement changes', () => {
    const ofAll = jobIndexes(false).filter((plan) => plan.partialFilterExpression === undefined);
    const changed = ofAll.filter(
      ({ key }) =>
        Object.keys(key).filter((field) => !['name', 'createdAt', '_id'].includes(field)).length > 0,
    );
    expect(ofAll.length).toBeGreaterThan(changed.length);
    expect(changed.map(({ name }) => name)).toEqual(['tidemill_by_name']);
    // The others hold pending, held, live, recurring or finished jobs only.
    const changing = jobIndexes(false).filter(({ key }) => 'updatedAt' in key || 'finishedAt' in key);
    expect(changing.map(({ name, partialFilterExpression }) => [name, partialFilterExpression])).toEqual([
      ['tidemill_ended', { status: { $lt: 'pending' } }],
    ]);
  });

  it('a claim among 100,000 due jobs examines two keys per job plus two per name and priority', async () => {
    await fill(DUE, { status: 'pending', nextRunAt: { $subtract: ['$$NOW', { $add: [1_000, '$i'] }] } });
    for (const count of [10, 500]) {
      const alone = await explained(headPipeline('mail', count), 'tidemill_claim');
      expect(stagesOf(alone)).not.toContain('SORT');
      expect(keysExamined(alone)).toBeLessThanOrEqual(2 * count + 2 * 3);
      expect(keysExamined(alone)).toBeGreaterThanOrEqual(count);
      const behind = await explained(headPipeline('mail', count, 200), 'tidemill_claim');
      expect(stagesOf(behind)).not.toContain('SORT');
      expect(keysExamined(behind)).toBeLessThanOrEqual(2 * (count + 200) + 2 * 3);
    }
    const [first = [], ...rest] = NAMES.map((name) => headPipeline(name, 100));
    const union = [
      ...first,
      ...rest.map((pipeline) => ({ $unionWith: { coll: 'tidemill_jobs', pipeline } })),
    ];
    const plan = await explained(
      [...union, { $unionWith: { coll: '_tidemill_globals', pipeline: clusterPipeline } }],
      'tidemill_claim',
    );
    expect(stagesOf(plan)).not.toContain('SORT');
    expect(keysExamined(plan)).toBeLessThanOrEqual(2 * 500 + 2 * 3 * NAMES.length);
    expect(keysExamined(plan)).toBeGreaterThanOrEqual(500);
    expect(keysExamined(await explained(duePipeline(NAMES), 'tidemill_due'))).toBeLessThanOrEqual(
      2 * NAMES.length,
    );
  });

  it('a peek reads one key to learn when the first job expires, however many do not', async () => {
    expect(keysExamined(await explained(expiryPipeline))).toBe(0);
    const limits = [ahead(90_000_000), ahead(80_000_000), ahead(70_000_000)];
    await store.jobs.insert(
      limits.map((startBy) => aJob({ name: 'mail', nextRunAt: ahead(60_000_000), startBy })),
    );
    const plan = await explained(expiryPipeline);
    expect(keysExamined(plan)).toBe(1);
    expect((await store.jobs.peek(NAMES)).expiresAt).toEqual(limits[2]);
  });

  it('the holder of a unique key is found by one key of the unique index', async () => {
    const [job] = await store.jobs.insert([
      aJob({ name: 'mail', uniqueKey: 'only', nextRunAt: ahead(86_400_000) }),
    ]);
    expect(job?.outcome).toBe('created');
    const plan = await client
      .db()
      .collection('tidemill_jobs')
      .find(liveKey('mail', 'only'))
      .explain('executionStats');
    expect((plan['executionStats'] as { totalKeysExamined: number }).totalKeysExamined).toBeLessThanOrEqual(
      2,
    );
  });

  it('the search for stale jobs examines only jobs in flight', async () => {
    const plan = await client
      .db()
      .collection('tidemill_jobs')
      .find({ status: 'processing', leaseToken: null, lockedAt: { $lt: new Date() } })
      .hint('tidemill_held')
      .explain('executionStats');
    expect((plan['executionStats'] as { totalKeysExamined: number }).totalKeysExamined).toBeLessThanOrEqual(
      1,
    );
  });

  it('reports missing indexes, prints the script that creates them, and creates them on open', async () => {
    expect(await store.indexFaults()).toEqual([]);
    await client.db().collection('tidemill_jobs').dropIndex('tidemill_held');
    expect(await store.indexFaults()).toEqual(['tidemill_jobs: index tidemill_held is missing']);
    const careful = mongodb({ uri: uri.value, createIndexes: false });
    const mill = aMill(careful);
    await expect(mill.enqueue('x')).rejects.toThrow('index tidemill_held is missing');
    expect(careful.indexScript()).toContain('tidemill_held');
    await store.release(holder);
    await store.acquire(holder);
    expect(await store.indexFaults()).toEqual([]);
  });
});
