import { MongoClient, type Document } from 'mongodb';
import { afterAll, beforeAll, expect } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { Tidemill } from '../../src/index.js';
import { fillCollection } from '../support/fill-collection.js';
import { freshUri } from '../support/stores.js';
import {
  budgetFacts,
  fillAudit,
  JOBS,
  NAMES,
  STATUSES,
  TASK_STATUSES,
  TASKS,
  TASKS_EACH,
  type Cost,
} from './budget.js';
import { aClient, type Client } from './client.js';

const uri = freshUri();
const raw = new MongoClient(uri);
let viewer: Tidemill;
let client: Client;

const oneOf = (list: readonly string[]): Document => ({
  $arrayElemAt: [list, { $mod: ['$i', list.length] }],
});
const ago: Document = { $subtract: ['$$NOW', { $multiply: ['$i', 10] }] };

beforeAll(async () => {
  const mill = new Tidemill({ store: mongodb({ uri }), logger: false });
  for (const task of TASKS) await mill.reactiveTask({ task, collection: 'orders', handler: () => undefined });
  await mill.start({ roles: ['maintain'] });
  await mill.tasks.stats();
  await fillCollection(raw.db(), 'tidemill_jobs', JOBS, {
    v: 1,
    name: oneOf(NAMES),
    status: oneOf(STATUSES),
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
    await fillCollection(raw.db(), 'orders_tasks', TASKS_EACH, {
      _id: { task, id: '$i' },
      v: { $literal: 1 },
      task,
      sourceDocId: '$i',
      status: oneOf(TASK_STATUSES),
      lastError: { $concat: ['No room for ', { $toString: '$i' }] },
      attempts: { $literal: 1 },
      scheduledAt: ago,
      initialScheduledAt: ago,
      createdAt: ago,
      updatedAt: ago,
      lockedAt: null,
    });
  await fillAudit(mill);
  await mill.schedule('0 3 * * *', 'report');
  // An instance that maintains has statements of its own, which would count as the page's.
  await mill.stop();
  viewer = new Tidemill({ store: mongodb({ uri }), logger: false });
  client = aClient(viewer);
  await client.session();
}, 180_000);

afterAll(async () => {
  await viewer.stop();
  await raw.db().dropDatabase();
  await raw.close();
});

/** Keys and documents that the server examined for a page, according to its profiler. */
async function costOf(work: () => Promise<unknown>): Promise<Cost> {
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
    examined: own.reduce((sum, row) => sum + cost(row), 0),
    plans: own
      .map((row) => `${String(row['ns'])} ${String(row['planSummary'])} ${String(cost(row))}`)
      .join('\n'),
  };
}

budgetFacts({ on: 'MongoDB', unit: 'keys and documents', client: () => client, costOf });
