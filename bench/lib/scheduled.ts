import type { Collection } from 'mongodb';
import type { Contender } from '../contenders/contender.js';
import { documents } from './documents.js';

/**
 * Documents with a schedule of their own: inserting one is enqueueing it. The same for every contender that runs
 * them.
 */
export async function scheduled(
  jobs: Collection,
): Promise<Pick<Contender, 'enqueue' | 'enqueueMany' | 'fill' | 'finished'>> {
  // The index that the documentation of mongodb-cron asks for.
  await jobs.createIndexes([{ key: { sleepUntil: 1 }, sparse: true }]);
  return {
    enqueue: (data) => jobs.insertOne({ name: 'noop', data, sleepUntil: new Date() }),
    enqueueMany: (data) =>
      jobs.insertMany(data.map((one) => ({ name: 'noop', data: one, sleepUntil: new Date() }))),
    fill: async (count) => {
      for (const batch of documents(count)) {
        await jobs.insertMany(
          batch.map(({ _id, name, data, createdAt }) => ({ _id, name, data, sleepUntil: createdAt })),
        );
      }
    },
    finished: async () => (await jobs.findOne({ sleepUntil: { $ne: null } })) === null,
  };
}
