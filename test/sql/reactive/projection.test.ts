import fc from 'fast-check';
import { MongoClient } from 'mongodb';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { rawFields } from '../../../src/mongodb/context.js';
import { migrationsFrom } from '../../../src/sql/schema/migrate.js';
import { namesIn } from '../../../src/sql/schema/names.js';
import { Arguments } from '../../../src/sql/tables/arguments.js';
import { reactiveNames } from '../../../src/sql/reactive/names.js';
import { readShape, type Shape } from '../../../src/sql/tables/shape.js';
import { projected } from '../../../src/sql/reactive/plan/snapshot.js';
import { sharedEmbedded, useEmbedded } from '../../support/stores.js';

useEmbedded();
const names = namesIn('projection');
// Without it, the driver returns lists called `__proto__` as bytes, see BSON_OPTIONS of the store.
const client = new MongoClient(inject('mongoUri'), { fieldsAsRaw: rawFields() });
const collection = client.db('tidemill_projection').collection<{ _id: number; info?: unknown }>('facts');
let shape: Shape;

beforeAll(async () => {
  await sharedEmbedded().exec('create schema projection; create table facts (_id integer, info jsonb)');
  for (const statement of migrationsFrom(0, names)) await sharedEmbedded().exec(statement);
  shape = (await readShape(sharedEmbedded(), 'none', { table: 'facts' })) as Shape;
});

afterAll(async () => {
  await client.db('tidemill_projection').dropDatabase();
  await client.close();
});

type Fact = Readonly<{ _id: number; info?: unknown }>;

/** What our expression makes of some rows. */
async function ours(facts: readonly Fact[], paths: readonly string[]): Promise<unknown[]> {
  const args = new Arguments();
  const projection = Object.fromEntries(paths.map((path) => [path, 1]));
  const part = projected('here', shape, projection, 'r', args, reactiveNames(names).picked);
  const text = `select ${part} as part from json_populate_recordset(null::facts, ${args.json(facts)}) r order by r._id`;
  const { rows } = await sharedEmbedded().query<{ part: unknown }>(
    // Inside the function that runs statements its type is known.
    text.replaceAll('$1[', '($1::text[])['),
    [args.texts],
  );
  return rows.map((row) => row.part);
}

/** What MongoDB makes of the same documents. */
async function theirs(facts: readonly Fact[], paths: readonly string[]): Promise<unknown[]> {
  await collection.deleteMany({});
  await collection.insertMany(facts.map((fact) => ({ ...fact })));
  const projection = { ...Object.fromEntries(paths.map((path) => [path, 1])), _id: 0 };
  return collection.find({}, { projection, sort: { _id: 1 } }).toArray();
}

const key = fc.constantFrom('a', 'b', '0', '__proto__');
const { value } = fc.letrec((tie) => ({
  value: fc.oneof(
    { maxDepth: 5, withCrossShrink: true },
    fc.constantFrom(null, 1, 'text', true),
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(key, tie('value'), { maxKeys: 3 }),
  ),
}));
const facts = fc
  .array(fc.option(value, { nil: undefined }), { minLength: 1, maxLength: 20 })
  .map((values) => values.map((info, _id): Fact => (info === undefined ? { _id } : { _id, info })));
const path = fc
  .array(fc.constantFrom('a', 'b', '0'), { minLength: 1, maxLength: 3 })
  .map((keys) => ['info', ...keys].join('.'));
/** MongoDB rejects a path into one that is requested whole. */
const paths = fc
  .uniqueArray(path, { minLength: 1, maxLength: 3 })
  .filter((all) => !all.some((one) => all.some((other) => other.startsWith(`${one}.`))));

describe('projections of JSON columns', () => {
  it('a random projection of JSON returns the same as on MongoDB', async () => {
    await fc.assert(
      fc.asyncProperty(facts, paths, async (documents, wanted) => {
        expect(await ours(documents, wanted)).toEqual(await theirs(documents, wanted));
      }),
      { numRuns: 60 },
    );
  });

  it('a list called __proto__ returns the same as on MongoDB', async () => {
    const documents = [{ _id: 0, info: JSON.parse('{"b":{"__proto__":[{}]}}') as unknown }, { _id: 1 }];
    expect(await ours(documents, ['info.b'])).toEqual(await theirs(documents, ['info.b']));
  });

  it('a projection of a path and its parent returns the parent', async () => {
    const fact = { _id: 1, info: { a: { b: 1, c: 2 }, d: 3 } };
    expect(await ours([fact], ['info.a.b', 'info.a'])).toEqual([{ info: { a: { b: 1, c: 2 } } }]);
  });
});
