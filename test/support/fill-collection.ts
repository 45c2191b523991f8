import type { Db, Document } from 'mongodb';

/**
 * Inserts many documents into a collection. They are created on the server itself, so that nothing crosses the wire.
 * The expression `made` may use `$i`, which counts from 0.
 */
export async function fillCollection(db: Db, into: string, count: number, made: Document): Promise<void> {
  const seed = db.collection('seed');
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
