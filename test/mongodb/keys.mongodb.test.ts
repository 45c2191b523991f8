import { MongoClient } from 'mongodb';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Mongo } from '../../src/mongodb/context.js';
import { createIndexes, taskIndexes } from '../../src/mongodb/indexes.js';
import { keyedJobs } from '../../src/mongodb/jobs/claim/keyed.js';
import { laterPipeline, offeredPipeline } from '../../src/mongodb/limits/keys/read.js';
import { keyedTasks } from '../../src/mongodb/reactive/keyed.js';
import { mongodb, type MongodbStore } from '../../src/mongodb/index.js';
import type { ClaimAnswer, KeyRule } from '../../src/store/port.js';
import { fillCollection } from '../support/fill-collection.js';
import { aClaim, aJob, anInstance, done } from '../support/port.js';
import { freshUri } from '../support/stores.js';

/** The jobs of the name, as the statements see them. */
const WORK = keyedJobs({ jobs: { collectionName: 'tidemill_jobs' } } as unknown as Mongo, 'work');
const KEYS = 10_000;
const JOBS = 100_000;
const FREE = 10;

let client: MongoClient;
let store: MongodbStore;
const holder = {};
const commands: string[] = [];

/** Index keys and documents that an explained statement examined, lookups included. */
function examined(plan: unknown): number {
  if (typeof plan !== 'object' || plan === null) return 0;
  return Object.entries(plan).reduce((sum, [key, value]) => {
    if (key === 'allPlansExecution' || key === 'rejectedPlans') return sum;
    return sum + (/^total(?:Keys|Docs)Examined$/u.test(key) ? Number(value) : examined(value));
  }, 0);
}

const claimBy = (keys: KeyRule, max: number): Promise<ClaimAnswer> => {
  const limits = new Map([['work', { max, rank: 0, of: 1, keys }]]);
  return store.jobs.claim(aClaim(anInstance(), { limits, total: max }));
};

beforeAll(async () => {
  const uri = freshUri();
  client = new MongoClient(uri, { monitorCommands: true });
  client.on('commandStarted', ({ commandName }) => commands.push(commandName));
  store = mongodb({ client });
  await store.acquire(holder);
  await fillCollection(client.db(), 'tidemill_jobs', JOBS, {
    v: 1,
    name: 'work',
    limitKey: { $concat: ['key-', { $toString: { $mod: ['$i', KEYS] } }] },
    limitOrder: { $toString: { $add: [1_000_000, '$i'] } },
    priority: 0,
    failCount: 0,
    lockedAt: null,
    status: 'pending',
    nextRunAt: { $subtract: ['$$NOW', '$i'] },
    createdAt: '$$NOW',
    updatedAt: '$$NOW',
  });
  await fillCollection(client.db(), '_tidemill_globals', KEYS, {
    _id: { $concat: ['key:4:work:key-', { $toString: '$i' }] },
    kind: 'key',
    name: 'work',
    key: { $concat: ['key-', { $toString: '$i' }] },
    full: { $gte: ['$i', FREE] },
    at: { $cond: [{ $gte: ['$i', FREE] }, null, { $subtract: ['$$NOW', JOBS] }] },
    from: { $subtract: ['$$NOW', JOBS] },
    open: new Date(0),
    check: null,
    waits: false,
    rev: { $toDouble: 1 },
    marks: { $toDouble: 1 },
    permits: {
      $cond: [{ $gte: ['$i', FREE] }, [{ token: 'other.1', job: '$i', until: new Date(0) }], []],
    },
    rate: { next: { $toDouble: 0 }, starts: [] },
    countsUntil: null,
    last: null,
  });
}, 120_000);

afterAll(async () => {
  await client.db().dropDatabase();
  await store.release(holder);
  await client.close();
});

const rules: readonly (readonly [string, KeyRule])[] = [
  ['concurrency', { concurrency: 1 }],
  ['an order', { order: 'fifo', whileRetrying: 'hold' }],
  ['an order that lets others pass', { order: 'fifo', whileRetrying: 'pass' }],
];

describe('10,000 keys of which all but ten are blocked, with 100,000 jobs, on MongoDB', () => {
  it.each(rules)(
    'a claim by %s examines neither blocked keys nor what waits behind them',
    async (_what, rule) => {
      const pipeline = offeredPipeline(WORK, rule, { keys: 11, each: 2 });
      const plan = await client
        .db()
        .collection('_tidemill_globals')
        .aggregate(pipeline, { hint: 'tidemill_keys' })
        .explain('executionStats');
      expect(examined(plan)).toBeGreaterThan(FREE);
      expect(examined(plan)).toBeLessThan(10 * FREE);
    },
  );

  it('the next due time of keys that run out is found by their own jobs', async () => {
    const ids = Array.from({ length: FREE }, (_none, n) => `key:4:work:key-${String(n)}`);
    const plan = await client
      .db()
      .collection('_tidemill_globals')
      .aggregate(laterPipeline(WORK, ids, new Date(0)))
      .explain('executionStats');
    expect(examined(plan)).toBeGreaterThan(FREE);
    expect(examined(plan)).toBeLessThan(50 * FREE);
  });

  it('a claim of a task examines neither blocked keys nor what waits behind them', async () => {
    const db = client.db();
    await createIndexes(db.collection('things_tasks'), taskIndexes);
    await fillCollection(db, 'things_tasks', JOBS, {
      _id: { task: 'work', id: '$i' },
      v: 1,
      task: 'work',
      sourceDocId: '$i',
      limitKey: { $concat: ['key-', { $toString: { $mod: ['$i', KEYS] } }] },
      status: 'pending',
      scheduledAt: { $subtract: ['$$NOW', '$i'] },
    });
    const globals = db.collection('_tidemill_globals');
    await globals
      .aggregate([
        { $match: { kind: 'key', name: 'work' } },
        { $set: { _id: { $concat: ['task-', '$_id'] }, name: { task: 'work' } } },
        { $merge: '_tidemill_globals' },
      ])
      .toArray();
    const work = keyedTasks(db.collection('things_tasks'), 'work');
    const offered = offeredPipeline(work, { concurrency: 1 }, { keys: 11, each: 2 });
    const plan = await globals.aggregate(offered, { hint: 'tidemill_keys' }).explain('executionStats');
    expect(examined(plan)).toBeGreaterThan(FREE);
    expect(examined(plan)).toBeLessThan(10 * FREE);
    const ids = Array.from({ length: FREE }, (_none, n) => `task-key:4:work:key-${String(n)}`);
    const later = await globals.aggregate(laterPipeline(work, ids, new Date(0))).explain('executionStats');
    expect(examined(later)).toBeGreaterThan(FREE);
    expect(examined(later)).toBeLessThan(50 * FREE);
  });

  it('a claim takes the jobs of the keys that can run, in four commands', async () => {
    commands.length = 0;
    const { jobs, heldUp } = await claimBy({ concurrency: 1 }, 50);
    expect(jobs).toHaveLength(FREE);
    expect(heldUp?.get('work')).toBeNull();
    // The first claim of a name also looks for jobs that run without permits, notes its rule, and reads again.
    expect(commands).toEqual([
      'aggregate',
      'find',
      'update',
      'update',
      'aggregate',
      'update',
      'update',
      'find',
    ]);
    expect((await claimBy({ concurrency: 1 }, 50)).jobs).toEqual([]);
    commands.length = 0;
    await store.jobs.settle(jobs.map((job) => done(job)));
    expect(commands.slice(0, 2)).toEqual(['update', 'update']);
    commands.length = 0;
    expect((await claimBy({ concurrency: 1 }, 50)).jobs).toHaveLength(FREE);
    // Before these, the settlement looks whether it has to wake others.
    expect(commands.filter((name) => name !== 'insert').slice(-4)).toEqual([
      'aggregate',
      'update',
      'update',
      'find',
    ]);
  });

  it('a claim of a name without limits sends no other commands than before', async () => {
    await store.jobs.insert([aJob({ name: 'plain' })]);
    commands.length = 0;
    const { jobs } = await store.jobs.claim(aClaim(anInstance(), { names: ['plain'] }));
    expect(commands).toEqual(['aggregate', 'findAndModify']);
    await store.jobs.settle(jobs.map((job) => done(job)));
    expect(commands).toEqual(['aggregate', 'findAndModify', 'update']);
  });
});
