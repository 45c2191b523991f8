import { startShardedMongo } from '@tidemill/servers';
import { MongoClient, type Document } from 'mongodb';
import { built } from '../lib/built.js';
import { nanos, sinceMs } from '../lib/clock.js';
import { deferred } from '../lib/deferred.js';
import { round } from '../lib/stats.js';
import type { Scale } from './run.js';

const DATABASE = 'scale';
const NAMESPACE = `${DATABASE}.tidemill_jobs`;
const JOBS = 20_000;

/** Jobs in a collection on two shards: alone, and while chunks move from one shard to the other and back. */
export async function sharded(scale: Scale): Promise<void> {
  await using server = await startShardedMongo();
  const client = await new MongoClient(server.uri).connect();
  try {
    await shard(client);
    const { Tidemill } = await built('index');
    const { mongodb } = await built('mongodb');
    const mill = new Tidemill({
      store: mongodb({ uri: server.uri.replace(/\/$/u, `/${DATABASE}`) }),
      logger: false,
      concurrency: 100,
    });
    const runs = new Map<number, number>();
    let end = deferred();
    mill.job<{ n: number }>('noop', { concurrency: 100 }, ({ data: { n } }) => {
      runs.set(n, (runs.get(n) ?? 0) + 1);
      if (runs.size === JOBS) end.resolve();
    });
    await mill.start();
    for (const moving of [false, true]) {
      runs.clear();
      end = deferred();
      const began = nanos();
      const moved = moving ? moveChunks(client, end.promise) : Promise.resolve(0);
      for (let from = 0; from < JOBS; from += 1_000)
        await mill.enqueueMany(
          Array.from({ length: 1_000 }, (_, n) => ({ name: 'noop', data: { n: from + n } })),
        );
      await end.promise;
      const figures = {
        'jobs/s': round((JOBS / sinceMs(began)) * 1_000),
        'chunks moved': await moved,
        'run twice': [...runs.values()].filter((count) => count > 1).length,
        'shards that hold jobs': await shardsOf(client),
      };
      const variant = moving ? 'chunks move' : 'at rest';
      scale.add({ section: 'two shards', contender: 'mongodb', variant, figures, runs: [] });
    }
    await mill.stop();
  } finally {
    await client.close();
  }
}

/** As docs/sharding.md says: half of the parts on each shard. */
async function shard(client: MongoClient): Promise<void> {
  const admin = client.db('admin');
  await admin.command({ enableSharding: DATABASE });
  await admin.command({ shardCollection: NAMESPACE, key: { part: 1 } });
  const [chunk] = await chunksOf(client);
  const to = (await shards(client)).find((name) => name !== chunk?.['shard']);
  await admin.command({ moveRange: NAMESPACE, min: { part: 2_048 }, toShard: to });
}

const shards = async (client: MongoClient): Promise<string[]> =>
  (await client.db('config').collection('shards').find().toArray()).map(({ _id }) => String(_id));

const chunksOf = async (client: MongoClient): Promise<Document[]> => {
  const config = client.db('config');
  const collection = await config
    .collection<{ _id: string; uuid: unknown }>('collections')
    .findOne({ _id: NAMESPACE });
  return config.collection('chunks').find({ uuid: collection?.uuid }).toArray();
};

const shardsOf = async (client: MongoClient): Promise<number> =>
  new Set((await chunksOf(client)).map(({ shard }) => String(shard))).size;

/** Moves one chunk after the other to the other shard, until `over`. Returns how many were moved. */
async function moveChunks(client: MongoClient, over: Promise<void>): Promise<number> {
  const state = { isOver: false };
  void over.then(() => {
    state.isOver = true;
  });
  const names = await shards(client);
  let moved = 0;
  while (!state.isOver) {
    const [chunk] = await chunksOf(client);
    if (chunk === undefined) return moved;
    const to = names.find((name) => name !== chunk['shard']);
    await client.db('admin').command({ moveRange: NAMESPACE, min: chunk['min'] as unknown, toShard: to });
    moved += 1;
  }
  return moved;
}
