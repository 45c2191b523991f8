// runs in: npm run check
//
// A figure that follows from many documents, kept beside them: the average rating of a product. The handler needs no
// document; what it watches tells which product to compute anew.
import assert from 'node:assert/strict';
import { startMongo } from '@tidemill/servers';
import { MongoClient } from 'mongodb';
import { Tidemill } from 'tidemill';
import { mongodb } from 'tidemill/mongodb';
import { until } from './support/until.js';

interface Review {
  _id: string;
  product: string;
  stars: number;
  withdrawn?: boolean;
}

await using server = await startMongo();
await using client = await new MongoClient(server.uri).connect();
const db = client.db('rating');
const reviews = db.collection<Review>('reviews');
const products = db.collection<{ _id: string; rating?: number | null; reviews?: number }>('products');
await using mill = new Tidemill({ store: mongodb({ client, database: 'rating' }), logger: false });

await mill.reactiveTask({
  task: 'recalculate-rating',
  collection: 'reviews',
  watchProjection: { product: 1, stars: 1, withdrawn: 1 },
  debounce: '100ms',
  // One at a time here: two that compute the same product at once could store the older figure last. With several
  // instances, take a lock (examples/reactive-locks.ts).
  concurrency: 1,
  handler: async ({ watchedValues }) => {
    const product = watchedValues['product'] as string;
    const [figures] = await reviews
      .aggregate<{ rating: number; reviews: number }>([
        { $match: { product, withdrawn: { $ne: true } } },
        { $group: { _id: null, rating: { $avg: '$stars' }, reviews: { $sum: 1 } } },
        { $unset: '_id' },
      ])
      .toArray();
    await products.updateOne({ _id: product }, { $set: figures ?? { rating: null, reviews: 0 } });
  },
});
await mill.start();
const rating = async (): Promise<string> => {
  const product = await products.findOne({ _id: 'kettle' });
  return `${String(product?.rating)} of ${String(product?.reviews)}`;
};

await products.insertOne({ _id: 'kettle' });
await reviews.insertMany(
  [5, 4, 3, 4].map((stars, i) => ({ _id: `r${String(i)}`, product: 'kettle', stars })),
);
await until('all four count', async () => (await rating()) === '4 of 4');

// A change of mind counts. So does a withdrawal: a task never runs for a document that is gone, so what is to have an
// effect when it goes is marked first and deleted later.
await reviews.updateOne({ _id: 'r2' }, { $set: { stars: 5 } });
await until('the better stars count', async () => (await rating()) === '4.5 of 4');
await reviews.updateOne({ _id: 'r1' }, { $set: { withdrawn: true } });
await reviews.updateOne({ _id: 'r3' }, { $set: { withdrawn: true } });
await until('the withdrawn ones do not', async () => (await rating()) === '5 of 2');

assert.equal(await mill.countReactiveTasks({ task: 'recalculate-rating' }), 4, 'one task per review');
console.log('the kettle has', await rating());
