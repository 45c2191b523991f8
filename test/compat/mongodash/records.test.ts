/** The records that the take-over writes, beside records that the store wrote itself. */
import { MongoClient, type Document } from 'mongodb';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { tasksCollectionOf } from '../../../src/compat/mongodash/stored.js';
import { takeOver } from '../../../src/compat/mongodash/take-over/take-over.js';
import { Tidemill } from '../../../src/index.js';
import { mongodb } from '../../../src/mongodb/index.js';
import { until } from '../../support/mills.js';
import { freshUri } from '../../support/stores.js';

const STATUSES = {
  completed: 'completed',
  retried: 'pending',
  waiting: 'pending',
  failed: 'failed',
} as const;
type Kind = keyof typeof STATUSES;
const KINDS = Object.keys(STATUSES) as Kind[];
const client = new MongoClient(freshUri());
const db = client.db();
const TAKEN = 'docs_taken';
const own = tasksCollectionOf('docs');

/** Lets the store write a record of each kind: each task has one document of its name. */
async function letTheStoreWrite(): Promise<void> {
  await using mill = new Tidemill({
    store: mongodb({ client, collections: { tasks: tasksCollectionOf } }),
    logger: false,
    monitoring: { enabled: false },
  });
  for (const task of KINDS)
    await mill.reactiveTask({
      task,
      collection: 'docs',
      filter: { _id: task },
      watchProjection: { title: 1 },
      debounce: task === 'waiting' ? '1h' : 0,
      retryPolicy: { type: 'fixed', interval: '1h', maxAttempts: task === 'failed' ? 1 : 5 },
      handler: () => (task === 'completed' ? Promise.resolve() : Promise.reject(new Error('broken'))),
    });
  await mill.start();
  const ended = { 'executionHistory.0': { $exists: true }, lockedAt: null };
  await until('three have run', async () => (await db.collection(own).countDocuments(ended)) === 3);
  await until('one waits', async () => (await db.collection(own).countDocuments()) === 4);
}

const failure = (at: Date): Document => ({
  firstErrorAt: at,
  lastError: 'broken',
  executionHistory: [{ at, durationMs: 5, status: 'failed', error: 'broken' }],
});

/** What the last run has left in a record of mongodash. */
const ENDS: Readonly<Record<Kind, (at: Date) => Document>> = {
  completed: (at) => ({
    lastSuccess: { at, durationMs: 5 },
    lastFinalizedAt: at,
    executionHistory: [{ at, durationMs: 5, status: 'completed' }],
  }),
  retried: failure,
  waiting: () => ({}),
  failed: (at) => ({ ...failure(at), lastFinalizedAt: at }),
};

/** What mongodash would have stored of the same runs. */
async function fillAsMongodash(): Promise<void> {
  const at = new Date();
  await db.collection('docs_tasks').insertMany(
    KINDS.map((task) => {
      const status = STATUSES[task];
      return {
        task,
        sourceDocId: task,
        status,
        attempts: task === 'waiting' ? 0 : 1,
        nextRunAt: status === 'pending' ? new Date(at.getTime() + 3_600_000) : null,
        dueAt: at,
        lastObservedValues: { title: 'x' },
        createdAt: at,
        updatedAt: at,
        ...ENDS[task](at),
      };
    }),
  );
  const triggerConfig = { filter: null, watchProjection: { title: 1 } };
  const tasks = Object.fromEntries(KINDS.map((task) => [task, { triggerConfig }]));
  await db.collection('_mongodash_globals').insertOne({ _id: '_mongodash_planner_meta', tasks } as never);
}

/** The types of all fields, by path; of lists, those of their first element. */
function shapeOf(value: unknown, path = ''): Record<string, string> {
  const type = value === null ? 'null' : (value as object).constructor.name;
  if (Array.isArray(value))
    return { [path]: type, ...(value.length > 0 ? shapeOf(value[0], `${path}[]`) : {}) };
  if (type !== 'Object') return { [path]: type };
  const fields = Object.entries(value as object).map(([key, item]) => shapeOf(item, `${path}.${key}`));
  return Object.assign({}, ...fields) as Record<string, string>;
}

const stored = async (collection: string, task: string): Promise<Document> =>
  (await db.collection(collection, { promoteValues: false }).findOne({ task })) ?? {};

beforeAll(async () => {
  await db.collection('docs').insertMany(KINDS.map((_id) => ({ _id, title: 'x' })) as never[]);
  await letTheStoreWrite();
  await fillAsMongodash();
  await takeOver({ client, tasks: () => TAKEN });
});

afterAll(() => client.close());

/** What attempts of this library leave, and mongodash does not tell: the holder, the kind of failure, the stack. */
const UNKNOWN = ['.leaseToken', '.failKind', '.executionHistory[].error.stack'];

/** Without fields that readers take for null. */
const knownOf = (record: Document): Record<string, string> =>
  Object.fromEntries(
    Object.entries(shapeOf(record)).filter(([path, type]) => {
      const isEmpty = path === '.executionHistory' && (record['executionHistory'] as unknown[]).length === 0;
      return !UNKNOWN.includes(path) && !isEmpty && (type !== 'null' || path === '.lockedAt');
    }),
  );

describe('a task record that was taken over from mongodash', () => {
  it.each(KINDS)('has the fields and types of one that the store wrote: %s', async (kind) => {
    const [ours, theirs] = await Promise.all([stored(own, kind), stored(TAKEN, kind)]);
    expect([ours['status'], theirs['status']]).toEqual([STATUSES[kind], STATUSES[kind]]);
    expect(knownOf(theirs)).toEqual(knownOf(ours));
  });
});
