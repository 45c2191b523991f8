import { MongoClient, type Document } from 'mongodb';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { Tidemill } from '../../src/index.js';
import { freshUri } from '../support/stores.js';
import { BUDGETS, turned } from './budget.js';
import { aClient, type Client } from './client.js';

const NAMES = ['mail', 'report', 'sync', 'thumb', 'push'];
const TASKS = ['mail', 'sync', 'audit'];
const JOBS = 150_000;
const DOCUMENTS = 20_000;

const uri = freshUri();
const raw = new MongoClient(uri);
let mill: Tidemill;
let client: Client;

/** Created on the server itself, so that nothing crosses the wire. */
async function fill(into: string, count: number, made: Document): Promise<void> {
  const seed = raw.db().collection('seed');
  await seed.deleteMany({});
  await seed.insertMany(Array.from({ length: 10 }, (_, n) => ({ n })));
  await seed
    .aggregate([
      { $set: { i: { $range: [0, count / 10] } } },
      { $unwind: '$i' },
      { $set: { i: { $add: ['$i', { $multiply: ['$n', count / 10] }] } } },
      { $replaceWith: made },
      { $merge: { into } },
    ])
    .toArray();
}

const oneOf = (list: readonly string[]): Document => ({
  $arrayElemAt: [list, { $mod: ['$i', list.length] }],
});
const ago: Document = { $subtract: ['$$NOW', { $multiply: ['$i', 10] }] };

beforeAll(async () => {
  mill = new Tidemill({ store: mongodb({ uri }), logger: false });
  for (const task of TASKS) await mill.reactiveTask({ task, collection: 'orders', handler: () => undefined });
  await mill.start({ roles: ['maintain'] });
  await mill.tasks.stats();
  const statuses = ['completed', 'completed', 'failed', 'pending', 'cancelled', 'completed', 'failed'];
  await fill('tidemill_jobs', JOBS, {
    v: 1,
    name: oneOf(NAMES),
    status: oneOf(statuses),
    data: { i: '$i' },
    priority: { $literal: 0 },
    failCount: { $literal: 1 },
    failReason: { $concat: ['No room for ', { $toString: '$i' }] },
    lockedAt: null,
    nextRunAt: { $add: ['$$NOW', 86_400_000, '$i'] },
    createdAt: ago,
    updatedAt: ago,
  });
  for (const task of TASKS)
    await fill('orders_tasks', DOCUMENTS, {
      _id: { task, id: '$i' },
      v: { $literal: 1 },
      task,
      sourceDocId: '$i',
      status: oneOf(['pending', 'completed', 'failed', 'completed', 'failed']),
      lastError: { $concat: ['No room for ', { $toString: '$i' }] },
      attempts: { $literal: 1 },
      scheduledAt: ago,
      initialScheduledAt: ago,
      createdAt: ago,
      updatedAt: ago,
      lockedAt: null,
    });
  for (let n = 0; n < 60; n += 1)
    await mill.audit.append({
      actor: 'ada',
      action: 'retry',
      target: `job ${String(n)}`,
      outcome: 'retried',
    });
  await mill.schedule('0 3 * * *', 'report');
  client = aClient(mill);
  await client.session();
}, 180_000);

afterAll(async () => {
  await mill.stop();
  await raw.db().dropDatabase();
  await raw.close();
});

/** Keys and documents that the server examined for a page, according to its profiler. */
async function costOf(work: () => Promise<unknown>): Promise<{ most: number; plans: string[] }> {
  const db = raw.db();
  await db.command({ profile: 0 });
  await db
    .collection('system.profile')
    .drop()
    .catch(() => undefined);
  await db.command({ profile: 2 });
  await work();
  await db.command({ profile: 0 });
  const rows = await db.collection('system.profile').find({ appName: 'tidemill' }).toArray();
  const own = rows.filter((row) => !String(row['ns']).endsWith('system.profile'));
  expect(own.length, 'commands that were profiled').toBeGreaterThan(0);
  const cost = (row: Document): number => Number(row['keysExamined'] ?? 0) + Number(row['docsExamined'] ?? 0);
  return {
    most: own.reduce((sum, row) => sum + cost(row), 0),
    plans: own.map((row) => `${String(row['ns'])} ${String(row['planSummary'])} ${String(cost(row))}`),
  };
}

describe(`the cost of pages among ${String(JOBS)} jobs and ${String(3 * DOCUMENTS)} tasks on MongoDB`, () => {
  it.each(BUDGETS)(
    'the page %s and its next page examine at most %i keys and documents each on MongoDB',
    async (page, most) => {
      let next: string | undefined;
      const first = await costOf(async () => (next = await turned(client, page)));
      expect(first.most, first.plans.join('\n')).toBeLessThanOrEqual(most);
      if (next === undefined) return;
      const second = await costOf(() => client.get(next!));
      expect(second.most, second.plans.join('\n')).toBeLessThanOrEqual(most);
    },
  );

  it('the overview counts up to its cap, once for all viewers, on MongoDB', async () => {
    const { most, plans } = await costOf(() =>
      Promise.all(Array.from({ length: 20 }, () => client.get('overview?range=1h'))),
    );
    // Up to 100,000 of each status in all, shared among the names; most statuses have fewer here.
    expect(most, plans.join('\n')).toBeLessThanOrEqual(JOBS + 3 * DOCUMENTS + 5_000);
    const again = await costOf(() => client.get('overview?range=15m'));
    expect(again.most, again.plans.join('\n')).toBeLessThanOrEqual(1_000);
  });

  it('the detail pages of a job and a task examine at most 200 keys and documents on MongoDB', async () => {
    const { items } = await client.get<{ items: { id: string }[] }>('work?status=pending');
    const job = await costOf(() => client.get(`work/jobs/${items[0]!.id}`));
    expect(job.most, job.plans.join('\n')).toBeLessThanOrEqual(200);
    const { items: tasks } = await client.get<{ items: { id: string }[] }>('work?kind=tasks&status=pending');
    const task = await costOf(() => client.get(`work/tasks/${tasks[0]!.id}`));
    expect(task.most, task.plans.join('\n')).toBeLessThanOrEqual(200);
  });
});
