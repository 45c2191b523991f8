import { MongoClient, type Document } from 'mongodb';
import { onTestFinished } from 'vitest';
import { mongodb } from '../../../src/mongodb/index.js';
import { freshUri } from '../../support/stores.js';
import type { Database, StoredTask, Thing } from './yards.js';

export function mongodbDatabase(): Promise<Database> {
  const uri = freshUri();
  const client = new MongoClient(uri);
  onTestFinished(() => client.close());
  const stored = client.db().collection('things_tasks');
  const tasksOf = (name: string): Promise<Document[]> =>
    client.db().collection(`${name}_tasks`).find().toArray();
  return Promise.resolve({
    address: uri,
    docs: client.db().collection<Thing>('things'),
    others: client.db().collection<Thing>('others'),
    store: () => mongodb({ client }),
    beacon: (id) => client.db().collection<{ _id: string }>('beacons').insertOne({ _id: id }),
    tasks: async () => {
      const all = await Promise.all(['things', 'others', 'beacons'].map(tasksOf));
      return all.flat() as unknown as StoredTask[];
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
    amendTasks: (task, fields) => stored.updateMany({ task }, { $set: fields }),
    filters: {
      notOver: { $expr: { $gt: ['$until', '$$NOW'] } },
      failing: { $expr: { $divide: [1, '$other'] } },
    },
  });
}
