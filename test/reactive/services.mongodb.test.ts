import { startShardedMongo } from '@tidemill/servers';
import { describe, expect, it, onTestFinished } from 'vitest';
import { until } from '../support/mills.js';
import { Plant } from './plant.js';
import { workshop, type Row } from './workshop.js';

const AT_ONCE = { collection: 'things', debounce: 0 } as const;

describe('tasks on several collections and databases', () => {
  it('keeps the tasks of several collections and databases beside their sources', async () => {
    const plant = new Plant();
    const other = `${plant.db.databaseName}_other`;
    const mill = plant.mill();
    void plant.define(mill, { task: 'a', collection: 'orders' });
    void plant.define(mill, { task: 'b', collection: 'app.users' });
    void plant.define(mill, { task: 'c', collection: 'orders', database: other });
    void plant.define(mill, { task: 'd', collection: 'items', database: other, filter: { n: 1 } });
    plant.mark(mill);
    await mill.start();
    await plant.ready();
    await plant.collection('orders').insertOne({ _id: 'x' });
    await plant.collection('app.users').insertOne({ _id: 'x' });
    await plant.collection('orders', other).insertOne({ _id: 'y' });
    await plant.collection('items', other).insertMany([{ _id: 'z', n: 1 }, { _id: 'w' }]);
    await Promise.all([
      plant.ran('x', 1, 'a'),
      plant.ran('x', 1, 'b'),
      plant.ran('y', 1, 'c'),
      plant.ran('z', 1, 'd'),
    ]);
    await plant.quiet();
    expect(plant.runs.filter(({ task }) => task !== 'mark')).toHaveLength(4);
    expect(await plant.tasks('orders').countDocuments()).toBe(1);
    expect(await plant.tasks('orders', other).countDocuments()).toBe(1);
    expect(await plant.tasks('items', other).countDocuments()).toBe(1);
    expect((await mill.getReactiveTasks({ task: ['c', 'd'] })).items).toHaveLength(2);
    await plant.collection('items', other).updateOne({ _id: 'z' }, { $set: { n: 2 } });
    await until(
      'it has left',
      async () => (await plant.tasks('items', other).countDocuments({ matched: false })) === 1,
    );
    await plant.collection('items', other).updateOne({ _id: 'z' }, { $set: { n: 1 } });
    await plant.ran('z', 2, 'd');
    await mill.stop();
    expect(plant.errors).toEqual([]);
    await plant.client.db(other).dropDatabase();
  });

  it('claims tasks across collections and databases', async () => {
    const { docs, db, client, mill: aMill } = workshop();
    const elsewhere = `${db.databaseName}_b`;
    onTestFinished(async () => {
      await client.db(elsewhere).dropDatabase();
    });
    const mill = aMill();
    const ran: string[] = [];
    await mill.reactiveTask({ ...AT_ONCE, task: 'one', handler: () => ran.push('one') });
    await mill.reactiveTask({
      task: 'two',
      collection: 'others',
      debounce: 0,
      handler: () => ran.push('two'),
    });
    await mill.reactiveTask({
      ...AT_ONCE,
      database: elsewhere,
      task: 'three',
      handler: async ({ getDocument }) => ran.push(String((await getDocument())['name'])),
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    await db.collection<Row>('others').insertOne({ _id: 1 });
    await client.db(elsewhere).collection<Row>('things').insertOne({ _id: 1, name: 'three' });
    await until('all ran', () => ran.length === 3);
    expect(ran.sort()).toEqual(['one', 'three', 'two']);
    expect((await mill.tasks.get('three', 1))?.task).toBe('three');
    expect(await client.db(elsewhere).collection('things_tasks').countDocuments()).toBe(1);
  });
});

describe('a dropped task collection', () => {
  it('recreates a dropped task collection with its indexes, and a reconciliation restores its tasks', async () => {
    const plant = new Plant();
    const mill = plant.mill();
    void plant.define(mill, { collection: 'things' });
    await mill.start();
    await plant.collection('things').insertMany([{ _id: 1 }, { _id: 2 }]);
    await Promise.all([plant.ran(1), plant.ran(2)]);
    await Promise.all([plant.settled('things', 1), plant.settled('things', 2)]);
    await plant.tasks('things').drop();
    await plant.collection('things').insertOne({ _id: 3 });
    await plant.ran(3);
    await mill.tasks.reconcile('task');
    await Promise.all([plant.ran(1, 2), plant.ran(2, 2)]);
    const indexes = await plant.tasks('things').indexes();
    expect(indexes.map(({ name }) => name)).toContain('tidemill_due');
  });
});

describe('reactive tasks on a sharded cluster', () => {
  it('plans a sharded source, also when updates move documents between shards', async () => {
    await using server = await startShardedMongo();
    const plant = new Plant(server.uri.replace(/\/(\?|$)/u, '/app$1'));
    const admin = plant.client.db('admin');
    await admin.command({ enableSharding: 'app' });
    await admin.command({ shardCollection: 'app.things', key: { region: 1 } });
    await admin.command({ split: 'app.things', middle: { region: 'm' } });
    const shards = (await admin.command({ listShards: 1 }))['shards'] as { _id: string }[];
    const home = await plant.client
      .db('config')
      .collection('databases')
      .findOne({ _id: 'app' as never });
    const away = shards.find(({ _id }) => _id !== home?.['primary'])?._id;
    await admin.command({ moveChunk: 'app.things', find: { region: 'z' }, to: away });
    const things = plant.collection('things');
    const before = Array.from({ length: 20 }, (_, n) => ({ _id: `b${n}`, region: n % 2 ? 'a' : 'z', n: 0 }));
    await things.insertMany(before);
    const fetched: unknown[] = [];
    await plant.started(
      {
        collection: 'things',
        filter: { n: { $gte: 0 } },
        watchProjection: { n: 1, region: 1 },
        handler: async (context) => {
          fetched.push((await context.getDocument())._id);
        },
      },
      { reactive: { concurrency: 20 } },
    );
    await Promise.all(before.map(({ _id }) => plant.ran(_id)));
    const live = before.map(({ region }, n) => ({ _id: `l${n}`, region, n: 0 }));
    await things.insertMany(live);
    await Promise.all(live.map(({ _id }) => plant.ran(_id)));
    await plant.quiet(['things']);
    // Each moves to the other shard: a deletion here and an insertion there.
    for (const { _id, region } of live) {
      await things.updateOne({ _id, region }, { $set: { region: region === 'a' ? 'z' : 'a' } });
    }
    await until('all that moved have run', () => live.every(({ _id }) => plant.of(_id).length === 2));
    await plant.quiet(['things']);
    await things.updateMany({ _id: /^l/u }, { $set: { n: -1 } });
    await things.deleteMany({ _id: /^b/u });
    await until(
      'all have left',
      async () => (await plant.tasks('things').countDocuments({ matched: true })) === 0,
    );
    expect(fetched).toHaveLength(60);
    expect(plant.errors).toEqual([]);
  });
});
