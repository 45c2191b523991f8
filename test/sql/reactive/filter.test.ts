import fc from 'fast-check';
import { beforeAll, describe, expect, it, vi } from 'vitest';
import { sql, type SqlFragment } from '../../../src/embedded/index.js';
import { OptionError } from '../../../src/index.js';
import { Arguments } from '../../../src/sql/tables/arguments.js';
import { checkFilter } from '../../../src/sql/reactive/plan/filter.js';
import { readShape, type Shape } from '../../../src/sql/tables/shape.js';
import { conditionOf } from '../../../src/sql/tables/translate.js';
import { sharedEmbedded, useEmbedded } from '../../support/stores.js';

type Row = Readonly<Record<string, unknown>>;

useEmbedded();
let shape: Shape;

beforeAll(async () => {
  await sharedEmbedded().exec(`
    create type mood as enum ('bad', 'good');
    create table facts (id integer primary key, n integer, big bigint, part numeric, name text, ok boolean,
      at timestamptz, day date, tags text[], mood mood, "odd name" text, info jsonb, plain json)`);
  shape = (await readShape(sharedEmbedded(), 'none', { table: 'facts' })) as Shape;
});

/** The ids of the rows that match according to the server. */
async function matching(rows: readonly Row[], filter: unknown): Promise<number[]> {
  checkFilter('here', filter);
  const args = new Arguments();
  const condition = conditionOf('here', shape, filter, args) ?? 'true';
  const given = args.json(rows);
  const { rows: found } = await sharedEmbedded().query<{ id: number }>(
    `select facts.id from json_populate_recordset(null::facts, ${given}) as facts where (${condition}\n) order by facts.id`
      // Inside the function that runs statements its type is known.
      .replaceAll('$1[', '($1::text[])['),
    [args.texts],
  );
  return found.map(({ id }) => id);
}

const only = async (row: Row, filter: unknown): Promise<boolean> =>
  (await matching([{ id: 1, ...row }], filter)).length === 1;

/** What a filter means, for columns of numbers and texts and for scalars in JSON. */
function means(row: Row, filter: Row): boolean {
  return Object.entries(filter).every(([field, value]) => {
    if (field === '$and') return (value as Row[]).every((part) => means(row, part));
    if (field === '$or') return (value as Row[]).some((part) => means(row, part));
    if (field === '$nor') return !(value as Row[]).some((part) => means(row, part));
    return compares(row, field, value);
  });
}

function compares(row: Row, field: string, value: unknown): boolean {
  const actual = field
    .split('.')
    .reduce<unknown>(
      (at, key) => (typeof at === 'object' && at !== null ? (at as Row)[key] : undefined),
      row,
    );
  const isOperators = typeof value === 'object' && value !== null;
  return Object.entries(isOperators ? (value as Row) : { $eq: value }).every(([operator, operand]) => {
    if (operator === '$not') return !compares(row, field, operand);
    if (operator === '$exists')
      return operand === (field.includes('.') ? actual !== undefined : (actual ?? null) !== null);
    return holds(actual ?? null, operator, operand);
  });
}

function holds(actual: unknown, operator: string, operand: unknown): boolean {
  if (operator === '$ne') return !holds(actual, '$eq', operand);
  if (operator === '$in') return (operand as unknown[]).some((item) => holds(actual, '$eq', item));
  if (operator === '$nin') return !(operand as unknown[]).some((item) => holds(actual, '$eq', item));
  if (operator === '$eq') return actual === operand;
  if (actual === null || operand === null)
    return actual === operand && (operator === '$gte' || operator === '$lte');
  if (typeof actual !== typeof operand) return false;
  const [a, b] = [actual as number, operand as number];
  return { $gt: a > b, $gte: a >= b, $lt: a < b, $lte: a <= b }[operator] ?? false;
}

const number = fc.constantFrom(-1, 0, 1, 2, 2.5);
const text = fc.constantFrom('', 'a', 'b', "it's", '$1', 'B');
const orNull = <T>(of: fc.Arbitrary<T>): fc.Arbitrary<T | null> => fc.option(of, { freq: 4 });
const scalar = fc.oneof(number, text, fc.boolean(), fc.constant(null));

const rowOf = fc.record({
  n: orNull(fc.constantFrom(-1, 0, 1, 2)),
  part: orNull(number),
  ok: orNull(fc.boolean()),
  'odd name': orNull(fc.constantFrom('x', 'y')),
  info: orNull(fc.oneof(fc.dictionary(fc.constantFrom('a', 'b'), scalar, { maxKeys: 2 }), scalar)),
});

const operators = (of: fc.Arbitrary<unknown>, ordered: boolean): fc.Arbitrary<unknown> => {
  const list = fc.array(orNull(of), { maxLength: 3 });
  const simple = fc.oneof(
    orNull(of),
    fc.record({ $eq: orNull(of) }),
    fc.record({ $ne: orNull(of) }),
    fc.record({ $in: list }),
    fc.record({ $nin: list }),
    fc.record({ $exists: fc.boolean() }),
    ...(ordered ? ['$gt', '$gte', '$lt', '$lte'].map((name) => fc.record({ [name]: orNull(of) })) : []),
  );
  const operated = simple.filter((value) => typeof value === 'object' && value !== null);
  return fc.oneof(
    simple,
    operated.map((inner) => ({ $not: inner })),
  );
};

const { filter: filterOf } = fc.letrec<{ filter: Row }>((tie) => {
  const leaf = fc.oneof(
    fc.record({ n: operators(number, true) }),
    fc.record({ part: operators(number, true) }),
    fc.record({ ok: operators(fc.boolean(), false) }),
    fc.record({ 'odd name': operators(fc.constantFrom('x', 'y', 'z'), true) }),
    fc.record({ 'info.a': operators(fc.oneof(number, text), true) }),
    fc.record({ n: operators(number, true), part: operators(number, true) }),
  );
  const list = fc.array(tie('filter'), { minLength: 1, maxLength: 3 });
  const group = fc.oneof(...['$and', '$or', '$nor'].map((name) => fc.record({ [name]: list })));
  return { filter: fc.oneof({ maxDepth: 3 }, leaf, group) };
});

describe('filters of comparisons', () => {
  it('a random filter means the same on the server as in JavaScript', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(rowOf, { minLength: 1, maxLength: 8 }), filterOf, async (rows, filter) => {
        const all = rows.map((row, at) => ({ id: at + 1, ...row }));
        expect(await matching(all, filter)).toEqual(
          all.filter((row) => means(row, filter)).map(({ id }) => id),
        );
      }),
      { numRuns: 400 },
    );
  });

  it.each<readonly [Row, Row, boolean]>([
    [{ big: '9007199254740993' }, { big: '9007199254740993' }, true],
    [{ big: '9007199254740993' }, { big: 9_007_199_254_740_992n }, false],
    [{ n: 1 }, { n: { $lt: 1.5 } }, true],
    [{ n: 1 }, { n: 1.5 }, false],
    [{ at: '2024-01-01T12:00:00+02' }, { at: new Date('2024-01-01T10:00:00Z') }, true],
    [{ day: '2024-01-02' }, { day: { $gt: new Date('2024-01-01T23:00:00Z') } }, true],
    [{ mood: 'good' }, { mood: { $in: ['good', null] } }, true],
    [{ name: 'a' }, { name: { $gte: 'a', $lt: 'b' } }, true],
    [{ info: { tags: ['a', 'b'] } }, { 'info.tags': 'b' }, true],
    [{ info: { lines: [{ sku: 1 }, { sku: 2 }] } }, { 'info.lines.sku': 2 }, true],
    [{ info: { a: { b: 1 } } }, { 'info.a': { b: 1 } }, true],
    [{ info: { a: { b: 1 } } }, { 'info.a': { b: 2 } }, false],
    [{ info: { tags: ['a', 'b'] } }, { 'info.tags': { $eq: ['a', 'b'] } }, true],
    [{ info: { tags: ['a', 'b'] } }, { 'info.tags': { $eq: ['a'] } }, false],
    [{ info: { lines: [{ size: { w: 1 } }, { size: { w: 2 } }] } }, { 'info.lines.size': { w: 2 } }, true],
    [{ info: { lines: [{ size: { w: 1 } }] } }, { 'info.lines.size': { $ne: { w: 2 } } }, true],
    [{ info: { lines: [{ w: 1 }, { w: 2 }] } }, { 'info.lines': { w: 2 } }, true],
    [{ info: null }, { 'info.a': { $ne: { b: 1 } } }, true],
    [{ info: { 'a"b': 1 } }, { 'info.a"b': 1 }, true],
    [{ info: [1, 2] }, { info: 2 }, true],
    [{ plain: { a: 5 } }, { 'plain.a': { $gt: 4 } }, true],
    [{ id: 7 }, { _id: 7 }, true],
  ])('whether %j matches the filter %o is %s', async (row, filter, expected) => {
    expect(await only(row, filter)).toBe(expected);
  });

  it.each<readonly [unknown, RegExp]>([
    [{ nam: 1 }, /no column "nam"\. Did you mean "name"\?/u],
    [{ name: 5 }, /"name" is text, and cannot be compared with 5/u],
    [{ n: 'five' }, /"n" is int4, and cannot be compared with "five"/u],
    [{ tags: 'a' }, /"tags" is an array/u],
    [{ 'name.first': 'a' }, /"name", which is text and not json/u],
    [{ n: { $mod: [2, 0] } }, /\$mod, which has no translation/u],
    [{ n: { $gtt: 2 } }, /Did you mean "\$gt"/u],
    [{ $expr: {} }, /must not use \$expr/u],
    [{ name: /a/u }, /which no column can hold/u],
    [{ name: '$$NOW' }, /not a variable here/u],
    [{ $and: [] }, /needs a list/u],
    [{ n: { $exists: 1 } }, /true or false/u],
    [{ n: { $not: 5 } }, /needs a comparison/u],
    ['status', /must be comparisons/u],
  ])('rejects the filter %o with the reason', async (filter, message) => {
    await expect(matching([], filter)).rejects.toThrow(message);
    await expect(matching([], filter)).rejects.toThrow(OptionError);
  });
});

describe('filters in SQL', () => {
  const big = sql`n > ${4}`;

  it.each<readonly [Row, SqlFragment, boolean]>([
    [{ n: 5 }, sql`n > ${4} and name is distinct from ${'a'}`, true],
    [{ name: '$1' }, sql`name = '$1' and ${true}`, true],
    [{ name: 'a' }, sql`name = ${'a'} or name = ${'a'}`, true],
    [{ name: 'x' }, sql`facts.name = 'x' -- and false`, true],
    [{ name: 'x' }, sql`/* $9 ( */ name = $tag$x$tag$`, true],
    [{ 'odd name': 'x' }, sql`"odd name" = ${'x'}`, true],
    [{ at: '2024-01-01T00:00:00Z' }, sql`at = ${new Date('2024-01-01')}`, true],
    [{ big: '9007199254740993' }, sql`big = ${9_007_199_254_740_993n}`, true],
    [{ name: 'a1' }, sql`name ~ '^a\d$'`, true],
    [{ name: `'; drop table facts; --` }, sql`name = ${`'; drop table facts; --`}`, true],
    [{ name: 'a', n: 5 }, sql`name = ${'a'} and ${big}`, true],
    [{ name: 'a', n: 5 }, sql`not ${sql`n = ${1} or n = ${5}`} and name = ${'a'}`, false],
    [{ name: 'a', n: 5 }, sql`${sql`n = 5 -- five`} and ${sql`${big} and name = ${'a'}`}`, true],
  ])('whether %j matches the SQL filter %o is %s', async (row, filter, expected) => {
    expect(await only(row, filter)).toBe(expected);
  });

  it.each<readonly [() => unknown, RegExp]>([
    [() => sql`true) or (true`, /as many closing brackets/u],
    [() => sql`true; drop table facts`, /without a semicolon/u],
    [() => sql`name = 'a`, /does not end/u],
    [() => sql`n = $1`, /write each value as \$\{…\}/u],
    [() => sql`n = ${1} or n = $1`, /write each value as \$\{…\}/u],
    [() => sql`name = '${'a'}'`, /cannot stand inside quotes/u],
    [() => sql`name = '${big}'`, /cannot stand inside quotes/u],
    [() => sql`true -- ${1}`, /cannot stand inside quotes or a comment/u],
    [() => sql`name${1} = 1`, /nor touch a name or a number/u],
    [() => sql`n = ${1}0`, /nor touch a name or a number/u],
    [() => sql``, /must be a condition/u],
    [() => sql`n = ${{} as never}`, /value 1 must be a string, .* got a plain object/u],
    [() => sql`n = ${1} and name = ${'\0'}`, /value 2 has U\+0000/u],
    [() => sql('n = 1' as never), /sql is a template tag/u],
    [() => sql(['n = 1'] as never), /sql is a template tag/u],
  ])('the sql tag rejects %s with the reason', (make, message) => {
    expect(make).toThrow(message);
    expect(make).toThrow(OptionError);
  });

  it.each<readonly [unknown, RegExp]>([
    [
      { sql: 'n > $1', values: [1] },
      /must not be a plain object \{ sql, values \}\..* sql`total > \$\{100\}`/u,
    ],
    [{ sql: 'true', values: [] }, /must not be a plain object/u],
    [{ sql: 'true' }, /no column "sql".* sql`total > \$\{100\}`/u],
    [{ $and: [big] }, /cannot stand among comparisons/u],
    [Object.assign({}, big), /no column "text"/u],
    [structuredClone(big), /no column "text"/u],
    [JSON.parse(JSON.stringify(big)), /no column "text"/u],
    [{ n: big }, /which no column can hold/u],
  ])('never takes the plain object %o for SQL', async (filter, message) => {
    await expect(matching([{ id: 1 }], filter)).rejects.toThrow(message);
  });

  it('accepts a fragment made by another copy of the package', async () => {
    vi.resetModules();
    const other = await import('../../../src/postgres/index.js');
    expect(other.sql).not.toBe(sql);
    expect(await only({ n: 5 }, other.sql`n > ${4} and ${big}`)).toBe(true);
    expect(await only({ n: 5 }, sql`not ${other.sql`n > ${4}`}`)).toBe(false);
  });
});
