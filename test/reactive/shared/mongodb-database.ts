import { MongoClient, MongoServerError, UUID, type Document } from 'mongodb';
import { onTestFinished } from 'vitest';
import { mongodb } from '../../../src/mongodb/index.js';
import { asAdmin, freshUri } from '../../support/stores.js';
import type { Database, StoredTask, Thing } from './test-databases.js';

export function mongodbDatabase(): Promise<Database> {
  const uri = freshUri();
  const own = new MongoClient(uri);
  onTestFinished(() => own.close());
  // An application, and a test that inspects it, may need more rights than a store has.
  const client = asAdmin(uri) === uri ? own : new MongoClient(asAdmin(uri));
  onTestFinished(() => client.close());
  const stored = client.db().collection('things_tasks');
  const tasksOf = (name: string): Promise<Document[]> =>
    client.db().collection(`${name}_tasks`).find().toArray();
  return Promise.resolve({
    address: uri,
    sourceName: 'things',
    docs: client.db().collection<Thing>('things'),
    others: client.db().collection<Thing>('others'),
    store: () => mongodb({ client: own }),
    probe: (id) => client.db().collection<{ _id: string }>('probes').insertOne({ _id: id }),
    tasks: async () => {
      const all = await Promise.all(['things', 'others', 'probes'].map(tasksOf));
      return all.flat() as unknown as StoredTask[];
    },
    ids: async (collection) => {
      const found = await client.db().collection<Thing>(collection).find().sort({ _id: 1 }).toArray();
      return found.map(({ _id }) => _id);
    },
    conflict: () => {
      const error = new MongoServerError({ message: 'passing', code: 112 });
      error.addErrorLabel('TransientTransactionError');
      return error;
    },
    bare: (work) => own.withSession((session) => work(session)),
    // Sessions belong to the user who began them.
    endSession: (session) => own.db('admin').command({ killSessions: [{ id: new UUID(session) }] }),
    unplanned: async () => {
      const planner = await client
        .db()
        .collection<{ _id: string; tokens: Record<string, unknown> }>('_tidemill_globals')
        .findOne({ _id: 'planner' });
      const stream = client.db().watch([{ $match: { 'ns.coll': 'things' } }], {
        startAfter: planner?.tokens[' '],
        maxAwaitTimeMS: 100,
      });
      const found = await stream.tryNext();
      await stream.close();
      return found === null ? 0 : 1;
    },
    putTasks: (tasks) =>
      stored.insertMany(
        tasks.map((one) => ({
          _id: { task: one['task'], id: one['sourceDocId'] } as never,
          v: 1,
          lockedAt: null,
          ...one,
        })),
      ),
    deleteTasks: (task, ids) => stored.deleteMany({ task, sourceDocId: { $in: ids } }),
    amendTasks: (task, fields) => stored.updateMany({ task }, { $set: fields }),
    fragile: {
      filter: { status: 'go' },
      // A foreign document in the collection of tasks.
      spoil: async () => {
        await stored.insertOne({ _id: -1 as never });
        return () => stored.deleteOne({ _id: -1 as never });
      },
    },
    filters: {
      notOver: { $expr: { $gt: ['$until', '$$NOW'] } },
      over: { $expr: { $lte: ['$until', '$$NOW'] } },
      failing: { $expr: { $gt: [{ $divide: [1, '$other'] }, 0] } },
    },
  });
}
