import { Binary, Decimal128, Double, Int32, Long, UUID, type Document } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { ids } from '../../support/bson.js';
import { until } from '../../support/mills.js';
import { Fixture } from '../fixture.js';

/** Which documents get a task by a filter, compared with what the server finds by it as a query. */
async function planned(
  filter: object,
  documents: readonly Document[],
  find: object = filter,
): Promise<unknown> {
  const fixture = new Fixture();
  const things = fixture.collection('things');
  // A reconciliation finds half of them, the change stream the other half.
  const half = Math.ceil(documents.length / 2);
  await things.insertMany(documents.slice(0, half).map((document, at) => ({ _id: at, ...document })));
  await fixture.started({ collection: 'things', filter });
  await fixture.quiet(['things']);
  await things.insertMany(documents.slice(half).map((document, at) => ({ _id: half + at, ...document })));
  const expected = (await things.find(find).sort({ _id: 1 }).toArray()).map((row) => row._id);
  expect(expected.length).toBeGreaterThan(0);
  expect(expected.length).toBeLessThan(documents.length);
  await until('all that match have run', () => expected.every((id) => fixture.of(id).length > 0));
  await fixture.quiet(['things']);
  const tasks = await fixture.tasks('things').find().sort({ sourceDocId: 1 }).toArray();
  expect(tasks.map((row) => row['sourceDocId'])).toEqual(expected);
  expect(fixture.runs.filter(({ task }) => task === 'task')).toHaveLength(expected.length);
  expect(fixture.errors).toEqual([]);
  return expected;
}

describe('filters compared with queries of the server', () => {
  const shapes = [
    { a: null },
    {},
    { a: 1 },
    { a: [1, 2] },
    { a: [] },
    { a: [[1]] },
    { a: [null] },
    { a: '1' },
    { a: { b: 1 } },
    { a: [{ b: 1 }, { b: 5 }] },
    { a: 5 },
    { a: new Double(1) },
    { a: Long.fromString('9007199254740993') },
    { a: Long.fromString('9007199254740992') },
    { a: Decimal128.fromString('1') },
    { a: 'abc' },
    { a: 'ABX' },
    { a: new Date(0) },
  ];
  it.each<[string, object]>([
    ['null, which is also missing', { a: null }],
    ['missing', { a: { $exists: false } }],
    ['a value, alone or in a list', { a: 1 }],
    ['not a value, which is also missing', { a: { $ne: 1 } }],
    ['a range that different elements satisfy', { a: { $gt: 1, $lt: 2 } }],
    ['a range of one type only', { a: { $gte: 1 } }],
    ['one element that satisfies all', { a: { $elemMatch: { b: { $gt: 1 } } } }],
    ['a path into a list', { 'a.b': 5 }],
    ['a type', { a: { $type: 'string' } }],
    ['an empty list', { a: [] }],
    ['a whole subdocument', { a: { b: 1 } }],
    ['a regular expression', { a: /^ab/iu }],
    ['an operator beside a regular expression', { a: { $regex: '^ab', $options: 'i', $ne: 'abc' } }],
    ['a 64-bit number that no double holds', { a: Long.fromString('9007199254740993') }],
    ['a bigint', { a: 9007199254740993n }],
    ['nor', { $nor: [{ a: null }, { a: { $type: 'number' } }] }],
    ['a list of values', { a: { $in: [null, 'abc', /^AB/u] } }],
    ['a schema', { $jsonSchema: { required: ['a'], properties: { a: { bsonType: 'array' } } } }],
    ['a mixture with an expression', { a: { $exists: true }, $expr: { $isArray: '$a' } }],
  ])("a filter matches the same documents as the server's query: %s", async (_what, filter) => {
    await planned(filter, shapes);
  });

  it('an expression matches the same documents as on the server, also without $expr and with $$NOW', async () => {
    const day = 86_400_000;
    const times = [-2, -1, 1, 2].map((days) => ({ dueAt: new Date(Date.now() + days * day), a: days }));
    expect(await planned({ $expr: { $lte: ['$dueAt', '$$NOW'] } }, times)).toEqual([0, 1]);
    const due = { $and: [{ $lte: ['$dueAt', '$$NOW'] }, { $gt: ['$a', -2] }] };
    expect(await planned(due, times, { $expr: due })).toEqual([1]);
    const plain = { $gt: ['$a', 1] };
    expect(await planned(plain, times, { $expr: plain })).toEqual([3]);
    const not = { $not: [{ $in: ['$a', [1, 2]] }] };
    expect(await planned(not, times, { $expr: not })).toEqual([0, 1]);
  });
});

describe('watched documents with ids of any type', () => {
  it('documents with ids of any type are inserted, changed, fetched and deleted like others', async () => {
    const fixture = new Fixture();
    const things = fixture.collection('things');
    const fetched: Document[] = [];
    await fixture.started({
      collection: 'things',
      filter: { n: { $gte: 0 } },
      watchProjection: { n: 1 },
      handler: async (context) => {
        fetched.push(await context.getDocument());
      },
      cleanupPolicy: { keepFor: 0 },
    });
    await things.insertMany(ids.map(([what, _id]) => ({ _id: _id as never, what, n: 0 })));
    const saw = (n: number): Promise<unknown> =>
      until(
        `all were fetched with ${n}; missing: ${ids
          .filter(([what]) => !fetched.some((row) => row['what'] === what && row['n'] === n))
          .map(([what]) => what)
          .join()}`,
        () => ids.every(([what]) => fetched.some((row) => row['what'] === what && row['n'] === n)),
      );
    await saw(0);
    await fixture.quiet(['things']);
    await things.updateMany({}, { $set: { n: 1 } });
    await saw(1);
    await fixture.quiet(['things']);
    expect(fetched).toHaveLength(2 * ids.length);
    const kept = await fixture.tasks('things').find({}, { promoteLongs: false }).toArray();
    expect(kept).toHaveLength(ids.length);
    expect(kept.every((row) => row['status'] === 'completed')).toBe(true);
    await things.deleteMany({});
    await fixture.quiet();
    expect(await fixture.tasks('things').countDocuments()).toBe(0);
    expect(fixture.errors).toEqual([]);
  });

  it('existing documents with ids of any type are found page by page', async () => {
    const fixture = new Fixture();
    await fixture.collection('things').insertMany(ids.map(([what, _id]) => ({ _id: _id as never, what })));
    await fixture
      .collection('things')
      .insertMany(Array.from({ length: 2_500 }, (_, n) => ({ _id: 100 + n })));
    await fixture.started({ collection: 'things' }, { reactive: { concurrency: 50 } });
    await fixture.quiet(['things']);
    await until(
      'all have run',
      async () =>
        (await fixture.tasks('things').countDocuments({ status: 'completed' })) === 2_500 + ids.length,
    );
    expect(fixture.runs.filter(({ task }) => task === 'task')).toHaveLength(2_500 + ids.length);
  });

  it('a handler gets ids unchanged, and a large 64-bit one as a Long', async () => {
    const fixture = new Fixture();
    await fixture.started({ collection: 'things' });
    const big = Long.fromString('9007199254740993');
    const uuid = new UUID();
    await fixture.collection('things').insertMany([{ _id: big }, { _id: uuid }, { _id: new Int32(3) }]);
    await fixture.quiet(['things']);
    const seen = fixture.runs.filter(({ task }) => task === 'task').map(({ id }) => id);
    expect(seen).toHaveLength(3);
    expect(seen.some((id) => big.equals(id as Long))).toBe(true);
    expect(seen.some((id) => id instanceof Binary && uuid.equals(id as UUID))).toBe(true);
    expect(seen).toContain(3);
  });
});

describe('watchProjection on MongoDB', () => {
  it('watchProjection watches the values of computed fields', async () => {
    const fixture = new Fixture();
    const things = fixture.collection('things');
    const fetched: Document[] = [];
    await fixture.started({
      collection: 'things',
      watchProjection: {
        large: { $gt: ['$total', 100] },
        lines: { $size: '$lines' },
        first: { $first: '$lines.sku' },
        'deep.field': 1,
      },
      handler: async (context) => {
        fetched.push(await context.getDocument());
      },
    });
    await things.insertOne({ _id: 1, total: 1, lines: [{ sku: 'a', n: 1 }], deep: { field: 1, other: 1 } });
    expect((await fixture.ran(1))[0]?.values).toEqual({
      _id: 1,
      large: false,
      lines: 1,
      first: 'a',
      deep: { field: 1 },
    });
    await fixture.settled('things', 1);
    await things.updateOne({ _id: 1 }, { $set: { total: 99, 'lines.0.n': 5, 'deep.other': 2 } });
    await fixture.quiet(['things']);
    expect(fixture.of(1)).toHaveLength(1);
    await things.updateOne({ _id: 1 }, { $set: { total: 101 } });
    await fixture.ran(1, 2);
    await fixture.quiet(['things']);
    expect(fetched).toMatchObject([
      { total: 1, deep: { other: 1 } },
      { total: 101, deep: { other: 2 } },
    ]);
    expect(fixture.errors).toEqual([]);
  });

  it('watchProjection may exclude the id, or be the id alone, which runs for new documents only', async () => {
    const fixture = new Fixture();
    const things = fixture.collection('things');
    const mill = fixture.mill();
    const fetched: string[] = [];
    for (const [task, watchProjection] of [
      ['without', { _id: 0, n: 1 }],
      ['only', { _id: 1 }],
    ] as const) {
      void fixture.define(mill, {
        task,
        collection: 'things',
        watchProjection,
        handler: async (context) => {
          fetched.push(`${task} ${String((await context.getDocument())['n'])}`);
        },
      });
    }
    fixture.mark(mill);
    await mill.start();
    await fixture.ready();
    await things.insertOne({ _id: 1, n: 1 });
    expect((await fixture.ran(1, 1, 'without'))[0]?.values).toEqual({ n: 1 });
    expect((await fixture.ran(1, 1, 'only'))[0]?.values).toEqual({ _id: 1 });
    await fixture.quiet(['things']);
    await things.updateOne({ _id: 1 }, { $set: { n: 2 } });
    await fixture.ran(1, 2, 'without');
    await fixture.quiet(['things']);
    expect(fixture.of(1, 'only')).toHaveLength(1);
    expect(fetched.sort()).toEqual(['only 1', 'without 1', 'without 2']);
  });

  it('watchProjection may use the whole document', async () => {
    const fixture = new Fixture();
    const fetched: Document[] = [];
    await fixture.started({
      collection: 'things',
      watchProjection: { fields: { $size: { $objectToArray: '$$ROOT' } }, whole: '$$CURRENT' },
      handler: async (context) => {
        fetched.push(await context.getDocument());
      },
    });
    await fixture.collection('things').insertOne({ _id: 1, a: 1 });
    await fixture.ran(1);
    await fixture.quiet(['things']);
    expect(fetched).toEqual([{ _id: 1, a: 1 }]);
    expect(fixture.of(1)).toHaveLength(1);
  });

  it('watchProjection keeps values that look like expressions or have odd keys', async () => {
    const fixture = new Fixture();
    const fetched: Document[] = [];
    await fixture.started({
      collection: 'things',
      task: 'a $task: with.dots and "quotes"',
      filter: { note: '$secret' },
      handler: async (context) => {
        fetched.push(await context.getDocument());
      },
    });
    const document = {
      _id: '$a.b',
      note: '$secret',
      secret: 1,
      10: 'ten',
      2: 'two',
      deep: { 'a.b': 1, $c: 2 },
    };
    await fixture.collection('things').insertOne(document);
    const [run] = await fixture.ran('$a.b', 1, 'a $task: with.dots and "quotes"');
    expect(run?.values).toEqual(document);
    await fixture.quiet(['things']);
    expect(fetched).toEqual([document]);
  });

  it('watchProjection notices another field order, but not another type of an equal number', async () => {
    const fixture = new Fixture();
    const things = fixture.collection('things');
    await fixture.started({ collection: 'things', watchProjection: { sub: 1 } });
    await things.insertOne({ _id: 1, sub: { a: 1, b: 2 } });
    await fixture.ran(1);
    await fixture.settled('things', 1);
    await things.updateOne({ _id: 1 }, { $set: { sub: { a: Long.fromNumber(1), b: new Double(2) } } });
    await fixture.quiet(['things']);
    expect(fixture.of(1)).toHaveLength(1);
    await things.updateOne({ _id: 1 }, { $set: { sub: { b: 2, a: 1 } } });
    await fixture.ran(1, 2);
  });

  it('watchProjection distinguishes null from missing', async () => {
    const fixture = new Fixture();
    const things = fixture.collection('things');
    await fixture.started({ collection: 'things', watchProjection: { a: 1 } });
    await things.insertOne({ _id: 1 });
    await fixture.ran(1);
    await fixture.settled('things', 1);
    await things.updateOne({ _id: 1 }, { $set: { a: null } });
    await fixture.ran(1, 2);
    await fixture.settled('things', 1);
    await things.updateOne({ _id: 1 }, { $unset: { a: 1 } });
    await fixture.ran(1, 3);
  });
});
