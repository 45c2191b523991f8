import { MongoClient } from 'mongodb';
import { startShardedMongo } from '@tidemill/servers';
import { expect, it } from 'vitest';

it('startShardedMongo spreads a sharded collection over both shards', { timeout: 120_000 }, async () => {
  await using server = await startShardedMongo({ cacheGb: 0.25 });
  await using client = await MongoClient.connect(server.uri);
  await client.db('admin').command({ shardCollection: 'spread.items', key: { _id: 'hashed' } });
  const items = client.db('spread').collection<{ _id: number }>('items');
  await items.insertMany(Array.from({ length: 100 }, (_, _id) => ({ _id })));
  const perShard = await items.aggregate([{ $collStats: { count: {} } }]).toArray();
  expect(perShard.map((stats) => stats['shard'] as string).sort()).toEqual(['shard0', 'shard1']);
  expect(perShard.every((stats) => (stats['count'] as number) > 0)).toBe(true);
});
