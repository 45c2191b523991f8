import { startShardedMongo } from '@tidemill/servers';
import { describe, expect, it } from 'vitest';
import { until } from '../support/mills.js';
import { Plant } from './plant.js';

describe('several tasks', () => {
  it('on one collection are planned each by its own filter and projection', async () => {
    const plant = new Plant();
    const mill = plant.mill();
    void plant.define(mill, {
      task: 'paid',
      collection: 'orders',
      filter: { status: 'paid' },
      watchProjection: { status: 1 },
    });
    void plant.define(mill, { task: 'total', collection: 'orders', watchProjection: { total: 1 } });
    void plant.define(mill, { task: 'large', collection: 'orders', filter: { $gt: ['$total', 100] } });
    plant.mark(mill);
    await mill.start();
    await plant.ready();
    const orders = plant.collection('orders');
    await orders.insertOne({ _id: 1, status: 'new', total: 1 });
    await plant.ran(1, 1, 'total');
    await plant.quiet(['orders']);
    await orders.updateOne({ _id: 1 }, { $set: { status: 'paid' } });
    await plant.ran(1, 1, 'paid');
    await plant.quiet(['orders']);
    await orders.updateOne({ _id: 1 }, { $set: { total: 200 } });
    await Promise.all([plant.ran(1, 2, 'total'), plant.ran(1, 1, 'large')]);
    await plant.quiet(['orders']);
    expect(['paid', 'total', 'large'].map((task) => plant.of(1, task).length)).toEqual([1, 2, 1]);
    expect(await plant.tasks('orders').countDocuments()).toBe(3);
  });

  it('on several collections and databases keep their tasks beside their sources', async () => {
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
    await plant.client.db(other).dropDatabase();
    expect(plant.errors).toEqual([]);
  });

  it('of which one cannot be planned at all do not wait for it', async () => {
    const plant = new Plant();
    const mill = plant.mill();
    void plant.define(mill, {
      task: 'bad',
      collection: 'things',
      filter: { $expr: { $divide: [1, '$zero'] } },
    });
    void plant.define(mill, { collection: 'things' });
    plant.mark(mill);
    await mill.start();
    await plant.ready();
    const documents = Array.from({ length: 20 }, (_, n) => ({ _id: n, zero: 0 }));
    await plant.collection('things').insertMany(documents);
    await Promise.all(documents.map(({ _id }) => plant.ran(_id)));
    await plant.quiet(['things']);
    expect(await plant.tasks('things').countDocuments({ task: 'bad', status: 'failed' })).toBe(20);
    expect(plant.runs.some(({ task }) => task === 'bad')).toBe(false);
  });
});

describe('two services with different tasks on one database', () => {
  it('share the planner, and neither misses a change, whoever leads', async () => {
    const plant = new Plant();
    const service = async (task: string, collection: string) => {
      const mill = plant.mill();
      void plant.define(mill, { task, collection, filter: { go: true }, watchProjection: { n: 1 } });
      await mill.start();
      return mill;
    };
    const leads = (mill: ReturnType<Plant['mill']>): Promise<unknown> =>
      until('it leads', () => mill.health().leader);
    const first = await service('a', 'as');
    await leads(first);
    let second = await service('b', 'bs');
    const write = async (_id: string): Promise<void> => {
      await plant.collection('as').insertOne({ _id, go: true, n: 1 });
      await plant.collection('bs').insertOne({ _id, go: true, n: 1 });
    };
    await write('first leads');
    await Promise.all([plant.ran('first leads', 1, 'a'), plant.ran('first leads', 1, 'b')]);
    expect(second.health().leader).toBe(false);
    await first.stop();
    await leads(second);
    // The first is away: what it missed is planned for it by the other, and waits.
    await write('second leads');
    await plant.ran('second leads', 1, 'b');
    await until('planned for the absent', async () => (await plant.task('as', 'second leads', 'a')) !== null);
    const again = await service('a', 'as');
    await plant.ran('second leads', 1, 'a');
    // Both are away for a while; then the other one comes first.
    await Promise.all([again.stop(), second.stop()]);
    await write('nobody leads');
    await plant.collection('as').updateOne({ _id: 'first leads' }, { $set: { n: 2 } });
    second = await service('b', 'bs');
    await leads(second);
    await plant.ran('nobody leads', 1, 'b');
    await service('a', 'as');
    await plant.ran('nobody leads', 1, 'a');
    await plant.ran('first leads', 2, 'a');
    expect(plant.of('first leads', 'b')).toHaveLength(1);
    expect(plant.errors).toEqual([]);
  });

  it('may watch one collection, and a planner alone may serve workers that never plan', async () => {
    const plant = new Plant();
    const [planner, worker, other] = [plant.mill(), plant.mill(), plant.mill()];
    void plant.define(planner, { task: 'p', collection: 'markers' });
    await planner.start({ roles: ['plan', 'maintain'] });
    void plant.define(worker, { task: 'a', collection: 'things', filter: { a: 1 } });
    await worker.start({ roles: ['work'] });
    void plant.define(other, { task: 'b', collection: 'things', filter: { b: 1 } });
    await other.start({ roles: ['work'] });
    await plant.collection('things').insertMany([
      { _id: 1, a: 1 },
      { _id: 2, b: 1 },
      { _id: 3, a: 1, b: 1 },
    ]);
    await Promise.all([
      plant.ran(1, 1, 'a'),
      plant.ran(2, 1, 'b'),
      plant.ran(3, 1, 'a'),
      plant.ran(3, 1, 'b'),
    ]);
    expect([worker.health().leader, other.health().leader, planner.health().leader]).toEqual([
      false,
      false,
      true,
    ]);
    expect(await plant.tasks('things').countDocuments()).toBe(4);
  });
});

describe('a task collection that somebody dropped', () => {
  it('is made anew with its indexes; documents that change run, and a reconciliation brings the others', async () => {
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

describe('a sharded cluster', () => {
  it('plans a sharded source on both shards, through updates that move a document between them', async () => {
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
  }, 120_000);
});
