import { startShardedMongo } from '@tidemill/servers';
import { describe, expect, it, onTestFinished } from 'vitest';
import { until } from '../../support/mills.js';
import { Fixture } from '../fixture.js';
import { thingsFixture, type Row } from '../things-fixture.js';

const AT_ONCE = { collection: 'things', debounce: 0 } as const;

describe('tasks on several collections and databases', () => {
  it('keeps the tasks of several collections and databases beside their sources', async () => {
    const fixture = new Fixture();
    const other = `${fixture.db.databaseName}_other`;
    const mill = fixture.mill();
    void fixture.define(mill, { task: 'a', collection: 'orders' });
    void fixture.define(mill, { task: 'b', collection: 'app.users' });
    void fixture.define(mill, { task: 'c', collection: 'orders', database: other });
    void fixture.define(mill, { task: 'd', collection: 'items', database: other, filter: { n: 1 } });
    fixture.mark(mill);
    await mill.start();
    await fixture.ready();
    await fixture.collection('orders').insertOne({ _id: 'x' });
    await fixture.collection('app.users').insertOne({ _id: 'x' });
    await fixture.collection('orders', other).insertOne({ _id: 'y' });
    await fixture.collection('items', other).insertMany([{ _id: 'z', n: 1 }, { _id: 'w' }]);
    await Promise.all([
      fixture.ran('x', 1, 'a'),
      fixture.ran('x', 1, 'b'),
      fixture.ran('y', 1, 'c'),
      fixture.ran('z', 1, 'd'),
    ]);
    await fixture.quiet();
    expect(fixture.runs.filter(({ task }) => task !== 'mark')).toHaveLength(4);
    expect(await fixture.tasks('orders').countDocuments()).toBe(1);
    expect(await fixture.tasks('orders', other).countDocuments()).toBe(1);
    expect(await fixture.tasks('items', other).countDocuments()).toBe(1);
    expect((await mill.getReactiveTasks({ task: ['c', 'd'] })).items).toHaveLength(2);
    await fixture.collection('items', other).updateOne({ _id: 'z' }, { $set: { n: 2 } });
    await until(
      'it has left',
      async () => (await fixture.tasks('items', other).countDocuments({ matched: false })) === 1,
    );
    await fixture.collection('items', other).updateOne({ _id: 'z' }, { $set: { n: 1 } });
    await fixture.ran('z', 2, 'd');
    await mill.stop();
    expect(fixture.errors).toEqual([]);
    await fixture.client.db(other).dropDatabase();
  });

  it('claims tasks across collections and databases', async () => {
    const { docs, db, client, mill: aMill } = thingsFixture();
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
    const fixture = new Fixture();
    const mill = fixture.mill();
    void fixture.define(mill, { collection: 'things' });
    await mill.start();
    await fixture.collection('things').insertMany([{ _id: 1 }, { _id: 2 }]);
    await Promise.all([fixture.ran(1), fixture.ran(2)]);
    await Promise.all([fixture.settled('things', 1), fixture.settled('things', 2)]);
    await fixture.tasks('things').drop();
    await fixture.collection('things').insertOne({ _id: 3 });
    await fixture.ran(3);
    await mill.tasks.reconcile('task');
    await Promise.all([fixture.ran(1, 2), fixture.ran(2, 2)]);
    const indexes = await fixture.tasks('things').indexes();
    expect(indexes.map(({ name }) => name)).toContain('tidemill_due');
  });
});

describe('reactive tasks on a sharded cluster', () => {
  it('plans a sharded source, also when updates move documents between shards', async () => {
    await using server = await startShardedMongo();
    const fixture = new Fixture(server.uri.replace(/\/(\?|$)/u, '/app$1'));
    const admin = fixture.client.db('admin');
    await admin.command({ enableSharding: 'app' });
    await admin.command({ shardCollection: 'app.things', key: { region: 1 } });
    await admin.command({ split: 'app.things', middle: { region: 'm' } });
    const shards = (await admin.command({ listShards: 1 }))['shards'] as { _id: string }[];
    const home = await fixture.client
      .db('config')
      .collection('databases')
      .findOne({ _id: 'app' as never });
    const away = shards.find(({ _id }) => _id !== home?.['primary'])?._id;
    await admin.command({ moveChunk: 'app.things', find: { region: 'z' }, to: away });
    const things = fixture.collection('things');
    const before = Array.from({ length: 20 }, (_, n) => ({ _id: `b${n}`, region: n % 2 ? 'a' : 'z', n: 0 }));
    await things.insertMany(before);
    const fetched: unknown[] = [];
    await fixture.started(
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
    await Promise.all(before.map(({ _id }) => fixture.ran(_id)));
    const live = before.map(({ region }, n) => ({ _id: `l${n}`, region, n: 0 }));
    await things.insertMany(live);
    await Promise.all(live.map(({ _id }) => fixture.ran(_id)));
    await fixture.quiet(['things']);
    // Each moves to the other shard: a deletion here and an insertion there.
    for (const { _id, region } of live) {
      await things.updateOne({ _id, region }, { $set: { region: region === 'a' ? 'z' : 'a' } });
    }
    await until('all that moved have run', () => live.every(({ _id }) => fixture.of(_id).length === 2));
    await fixture.quiet(['things']);
    await things.updateMany({ _id: /^l/u }, { $set: { n: -1 } });
    await things.deleteMany({ _id: /^b/u });
    await until(
      'all have left',
      async () => (await fixture.tasks('things').countDocuments({ matched: true })) === 0,
    );
    expect(fetched).toHaveLength(60);
    expect(fixture.errors).toEqual([]);
  });
});
