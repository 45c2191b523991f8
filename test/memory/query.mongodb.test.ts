/** Queries and projections in memory must mean the same as on MongoDB: random ones are run on both. */
import fc from 'fast-check';
import { MongoClient, type Document } from 'mongodb';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { compileProjection } from '../../src/memory/reactive/query/projection.js';
import { compileQuery } from '../../src/memory/reactive/query/query.js';
import { freshUri } from '../support/stores.js';

const NOW = new Date();
const [PAST, FUTURE] = [new Date(0), new Date('9999-01-01T00:00:00Z')];

const scalar = fc.constantFrom<unknown>(null, 0, 1, 2, -1, 1.5, '', 'a', 'b', '1', true, false, PAST, FUTURE);
const key = fc.constantFrom('a', 'b', '0', '1');
const { value } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    scalar,
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(key, tie('value'), { maxKeys: 2, noNullPrototype: true }),
  ),
}));
const document = fc.dictionary(key, value, { maxKeys: 3, noNullPrototype: true });

const path = fc.array(key, { minLength: 1, maxLength: 3 }).map((keys) => keys.join('.'));
const one = (name: string, operand: fc.Arbitrary<unknown>): fc.Arbitrary<Document> =>
  operand.map((given) => ({ [name]: given }));
const { query } = fc.letrec<{ conditions: Document; query: Document }>((tie) => ({
  conditions: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    ...['$eq', '$ne', '$gt', '$gte', '$lt', '$lte'].map((name) => one(name, value)),
    ...['$in', '$nin'].map((name) => one(name, fc.array(value, { maxLength: 3 }))),
    one('$exists', fc.boolean()),
    one('$size', fc.nat({ max: 3 })),
    one('$not', tie('conditions')),
    one('$elemMatch', tie('conditions')),
    one('$elemMatch', tie('query')),
  ),
  query: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    fc.tuple(path, value).map(([at, given]) => ({ [at]: given })),
    fc.tuple(path, tie('conditions')).map(([at, given]) => ({ [at]: given })),
    ...['$and', '$or', '$nor'].map((name) =>
      one(name, fc.array(tie('query'), { minLength: 1, maxLength: 2 })),
    ),
  ),
}));

const operand = fc.oneof(
  path.map((at) => `$${at}`),
  scalar,
  fc.constant('$$NOW'),
);
const { expression } = fc.letrec<{ expression: unknown }>((tie) => ({
  expression: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    operand,
    ...['$eq', '$ne', '$gt', '$gte', '$lt', '$lte'].map((name) => one(name, fc.tuple(operand, operand))),
    ...['$and', '$or', '$ifNull'].map((name) => one(name, fc.tuple(tie('expression'), tie('expression')))),
    one('$not', fc.tuple(tie('expression'))),
    one('$cond', fc.tuple(tie('expression'), operand, operand)),
    one('$literal', value),
  ),
}));

const RUNS = { numRuns: 60, seed: 11 };
const COUNT = 40;

describe('memory queries compared with MongoDB', () => {
  let client: MongoClient;
  const documents = fc.sample(document, { numRuns: COUNT * 5, seed: 7 }).map((one, _id) => ({ ...one, _id }));
  const things = (): ReturnType<ReturnType<MongoClient['db']>['collection']> =>
    client.db().collection('things');

  beforeAll(async () => {
    client = new MongoClient(freshUri());
    await things().insertMany(documents as never[]);
  });
  afterAll(() => client.close());

  const found = async (filter: Document): Promise<unknown[]> =>
    (
      await things()
        .find(filter, { projection: { _id: 1 }, sort: { _id: 1 } })
        .toArray()
    ).map(({ _id }) => _id);

  const inMemory = (filter: Document): unknown[] => {
    const matches = compileQuery('test', filter);
    return documents.filter((one) => matches({ document: one, now: NOW })).map(({ _id }) => _id);
  };

  it('random queries find the same documents in memory and on MongoDB', async () => {
    await fc.assert(
      fc.asyncProperty(query, async (filter) => {
        const [own, theirs] = [inMemory(filter), await found(filter)];
        const odd = documents.filter(({ _id }) => own.includes(_id) !== theirs.includes(_id));
        expect(odd).toEqual([]);
      }),
      RUNS,
    );
  });

  it('random expressions find the same documents in memory and on MongoDB', async () => {
    await fc.assert(
      fc.asyncProperty(expression, async (given) => {
        expect(inMemory({ $expr: given })).toEqual(await found({ $expr: given }));
      }),
      RUNS,
    );
  });

  it('random projections return the same fields in memory and on MongoDB', async () => {
    const fields = fc
      .uniqueArray(path, { minLength: 1, maxLength: 3 })
      .filter((paths) => !paths.some((a) => paths.some((b) => a !== b && b.startsWith(`${a}.`))));
    await fc.assert(
      fc.asyncProperty(fields, async (paths) => {
        const projection = Object.fromEntries(paths.map((at) => [at, 1]));
        const project = compileProjection('test', projection);
        const rows = await things()
          .aggregate([{ $sort: { _id: 1 } }, { $project: projection }])
          .toArray();
        const own = documents.map((one) => project({ document: one, now: NOW }));
        expect(own).toEqual(rows);
      }),
      RUNS,
    );
  });
});
