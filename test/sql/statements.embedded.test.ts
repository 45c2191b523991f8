import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import { embedded, sql, type EmbeddedDatabase } from '../../src/embedded/index.js';
import { OptionError, type Tidemill } from '../../src/index.js';
import { quoted } from '../../src/sql/schema/names.js';
import { Arguments } from '../../src/sql/tables/arguments.js';
import { checkFilter } from '../../src/sql/reactive/plan/filter.js';
import { readShape, type Shape } from '../../src/sql/tables/shape.js';
import { projected } from '../../src/sql/reactive/plan/snapshot.js';
import { conditionOf } from '../../src/sql/tables/translate.js';
import { aClient } from '../dashboard/client.js';
import { aMill, until } from '../support/mills.js';
import { sharedEmbedded, useEmbedded } from '../support/stores.js';
import { readStatement } from './statement-text.js';

/** Part of every text from outside, and of nothing that the library writes. */
const MARK = 'zqx';

interface Statement {
  readonly text: string;
  /** A trigger or a function: it takes no parameters, so names are in constants. */
  readonly isDefinition: boolean;
}

/** The seam of the driver: everything that the library sends. */
class Tapped {
  readonly statements: Statement[] = [];
  readonly database: EmbeddedDatabase;

  constructor() {
    const inner = sharedEmbedded();
    const query: EmbeddedDatabase['query'] = (text, values) => {
      this.#note(text, values);
      return inner.query(text, values);
    };
    this.database = {
      query,
      transaction: (work) =>
        inner.transaction((transaction) =>
          work({
            query: (text, values) => {
              this.#note(text, values);
              return transaction.query(text, values as unknown[]);
            },
            get closed() {
              return transaction.closed;
            },
          }),
        ),
      listen: (channel, callback) => inner.listen(channel, callback),
    };
  }

  /** A statement that runs under fixed settings is a parameter of the one that is sent. */
  #note(text: string, values: readonly unknown[] = []): void {
    this.statements.push({ text, isDefinition: /^\s*create /iu.test(text) });
    if (/"pinned"\(\$1/u.test(text)) this.statements.push({ text: String(values[0]), isDefinition: false });
  }
}

/** Statements that contain a text from outside unquoted, or in a constant that `allowed` does not expect. */
function exposed(statements: readonly Statement[], allowed: readonly string[]): string[] {
  return statements.flatMap(({ text, isDefinition }) => {
    if (!text.includes(MARK)) return [];
    const { bare, constants } = readStatement(text);
    const marked = constants.filter((constant) => constant.includes(MARK));
    const odd = isDefinition
      ? marked.filter((body) => readStatement(body).bare.includes(MARK))
      : marked.filter((constant) => !allowed.includes(constant));
    return bare.includes(MARK) || odd.length > 0 ? [text] : [];
  });
}

const PIECES = [
  `'`,
  `"`,
  `\\`,
  '$1',
  '$$',
  ';',
  '--',
  '/*',
  '*/',
  '`',
  '%',
  ')',
  '(',
  ' or 1=1 ',
  '\n',
  'é',
  ' ',
  'E',
  '{',
  '::',
  ',',
];
/** Up to 60 bytes, so that it can be a name of anything. */
const hostile = fc
  .tuple(
    fc.array(fc.constantFrom(...PIECES), { maxLength: 5 }),
    fc.array(fc.constantFrom(...PIECES), { minLength: 1, maxLength: 5 }),
  )
  .map(([before, after]) => `${before.join('')}${MARK}${after.join('')}`)
  // A definition rejects a text that looks like a variable of MongoDB.
  .filter((text) => Buffer.byteLength(text) < 50 && !text.startsWith('$$'));

let runs = 0;
const fresh = (text: string): string => `${text}${String((runs += 1))}`;

/** A name as `collection` takes it. */
const inName = (name: string): string => `"${name.replaceAll('"', '""')}"`;

describe('untrusted text in SQL statements', () => {
  useEmbedded();
  beforeAll(() => sharedEmbedded().exec('set check_function_bodies = on'));

  it('readStatement finds the unquoted text of a statement', () => {
    expect(readStatement(`select "a;""zqx" from b where c = 'it''s zqx' and d = E'\\'zqx' -- zqx`)).toEqual({
      bare: `select   from b where c =   and d =   -- zqx`,
      constants: [`it's zqx`, `'zqx`],
    });
    expect(readStatement(`a = 'b' zqx '`).bare).toContain('zqx');
  });

  it(
    'untrusted text is a parameter or a quoted name in every statement, and each statement runs',
    { timeout: 180_000 },
    async () => {
      await fc.assert(
        fc.asyncProperty(hostile, hostile, async (one, other) => {
          const tap = new Tapped();
          const found = await useEverything(tap, {
            schema: fresh(one),
            data: fresh(other),
            // What begins with a dollar sign is an operator in a filter, and is rejected in a path.
            column: fresh(`c${one}`),
            key: `k${other}`,
            value: one,
          });
          expect(found.errors).toEqual([]);
          expect(found.results).toEqual({
            tasks: 1,
            none: 0,
            documents: 1,
            jobs: 1,
            viaDashboard: 1,
            sorts: [],
          });
          expect(tap.statements.some(({ text }) => text.includes(MARK))).toBe(true);
          expect(exposed(tap.statements, found.paths)).toEqual([]);
        }),
        { numRuns: 4, endOnFailure: true },
      );
    },
  );
});

/** A table with only hostile names. */
async function hostileShape(): Promise<Shape> {
  const name = fresh(`"; drop table ${MARK}; --'`);
  const [key, text, json] = [`id"${MARK}`, `it's ${MARK}$1`, `{"${MARK}":`].map(quoted);
  await sharedEmbedded().exec(
    `create table ${quoted(name)} (${key ?? ''} integer primary key, ${text ?? ''} text, ${json ?? ''} jsonb)`,
  );
  return (await readShape(sharedEmbedded(), 'none', { table: name })) as Shape;
}

describe('untrusted text in filters and projections', () => {
  useEmbedded();

  it('filters and projections send values and paths as parameters, and columns as quoted names', async () => {
    const shape = await hostileShape();
    const [key, text, json] = shape.columns.map(({ name }) => name) as [string, string, string];
    const compared = fc.oneof(
      hostile.map((value) => ({ [text]: value })),
      fc
        .tuple(fc.constantFrom('$ne', '$gt', '$lte'), hostile)
        .map(([operator, value]) => ({ [text]: { [operator]: value } })),
      fc.tuple(hostile, hostile).map(([path, value]) => ({ [`${json}.${path}`]: { $in: [value, null, 5] } })),
      fc
        .tuple(hostile, hostile)
        .map(([path, value]) => ({ [`${json}.${path}.a`]: { $not: { $eq: { [value]: value } } } })),
      hostile.map((path) => ({ [`${json}.${path}`]: { $exists: true } })),
      hostile.map((value) => sql`${sql`${value} = ${value}`} or ${value} is null`),
    );
    await fc.assert(
      fc.asyncProperty(compared, hostile, async (filter, path) => {
        const args = new Arguments();
        checkFilter('here', filter);
        const condition = conditionOf('here', shape, filter, args) ?? 'true';
        const projection = projected(
          'here',
          shape,
          { [key]: 1, [`${json}.${path}.${path}`]: 1 },
          quoted(shape.table),
          args,
          undefined,
        );
        const statement = `select ${projection} from ${quoted(shape.table)} where (${condition})`;
        expect(exposed([{ text: statement, isDefinition: false }], [])).toEqual([]);
        // Inside the function that runs statements the type of the list is known.
        await sharedEmbedded().query(statement.replaceAll('($1[', '(($1::text[])['), [args.texts]);
      }),
      { numRuns: 300 },
    );
  });
});

interface Names {
  readonly schema: string;
  readonly data: string;
  readonly column: string;
  /** Inside JSON; a dot would lead further in. */
  readonly key: string;
  readonly value: string;
}

async function makeTables({ data, column }: Names): Promise<void> {
  const ask = (text: string): Promise<unknown> => sharedEmbedded().exec(text);
  await ask(`create schema ${quoted(data)}`);
  await ask(
    `create table ${quoted(data)}.${quoted(data)} (${quoted(column)} text primary key, sql text, note jsonb, "at${column.replaceAll('"', '""')}" timestamptz)`,
  );
}

/** Runs each kind of work on hostile tables, columns, keys, names and values. */
async function useEverything(
  tap: Tapped,
  names: Names,
): Promise<{ readonly errors: unknown[]; readonly results: object; readonly paths: readonly string[] }> {
  const { schema, data, column, key, value } = names;
  await makeTables(names);
  const mill = aMill(embedded({ database: tap.database, schema }));
  const errors: unknown[] = [];
  mill.on('error', ({ error }) => errors.push(error));
  const collection = `${inName(data)}.${inName(data)}`;
  const table = `${quoted(data)}.${quoted(data)}`;
  await sharedEmbedded().query(`insert into ${table} values ($1, $2, $3, now() + interval '1 day')`, [
    value,
    value,
    JSON.stringify({ [key]: { [key]: value, due: new Date(Date.now() + 86_400_000).toISOString() } }),
  ]);
  const path = `note.${key}.${key}`;
  await mill.reactiveTask({
    task: value,
    collection,
    debounce: 0,
    filter: { [column]: { $in: [value, key] }, [path]: value, $nor: [{ sql: key + value }] },
    watchProjection: { [column]: 1, [path]: 1 },
    handler: () => {
      throw new Error(value);
    },
    retryPolicy: { type: 'fixed', interval: 0, maxAttempts: 1 },
  });
  const schedule = mill.documents({
    collection,
    fields: { sleepUntil: `note.${key}.due` },
    condition: { [path]: value },
    onDocument: () => undefined,
  });
  mill.job(value, () => undefined);
  await mill.start();
  await mill.enqueue(value, { [key]: { [key]: value } }, { uniqueKey: value, id: value });
  await mill.schedule('0 3 * * *', value, { [key]: value }, { uniqueKey: key });
  await mill.withLock(value, () => Promise.resolve());
  await mill.jobs.pause(key);
  await mill.audit.append({ actor: value, action: value, target: value, outcome: value });
  await until(
    () => `the task has failed; ${errors.map(String).join()}`,
    async () => (await mill.tasks.count({ status: 'failed' })) === 1,
  );
  await until(
    'the job has run',
    async () => (await mill.jobs.count({ name: value, status: 'completed' })) === 1,
  );
  const results = await look(mill, schedule, names);
  await mill.stop({ timeout: 0 });
  return {
    errors: errors.filter((error) => (error as Error).message !== value),
    results,
    paths: [key, column],
  };
}

/** Every way in which people look for work. */
async function look(
  mill: Tidemill,
  schedule: ReturnType<Tidemill['documents']>,
  { column, key, value }: Names,
): Promise<object> {
  const path = `note.${key}.${key}`;
  const client = aClient(mill, { authorize: () => ['view', 'payload'] });
  const field = (name: string): string => `field=${encodeURIComponent(`${name}:${JSON.stringify(value)}`)}`;
  const page = await client.get<{ items: unknown[] }>(
    `work?kind=tasks&name=${encodeURIComponent(value)}&${field('sql')}&sort=createdAt`,
  );
  const source = { [column]: value, [path]: value, sql: value };
  const tasks = await mill.tasks.find({ source, task: value, errorMessage: value });
  await mill.tasks.find(
    { source },
    { sort: { createdAt: 1 }, ...(tasks.next === null ? {} : { cursor: tasks.next }) },
  );
  await mill.tasks.find({ _id: { task: value, id: value } });
  await mill.tasks.count({ sourceDocFilter: sql`${sql`sql = ${value}`} and sql <> ${key}` });
  await mill.tasks.retryMany({ source: { [column]: `${value}?` } });
  await mill.tasks.errors();
  await mill.tasks.stats();
  await mill.jobs.find({ error: value, uniqueKey: value, data: { [`${key}.${key}`]: value } });
  await mill.jobs.cancelMany({ name: `${value}?`, data: { [key]: value } });
  await mill.why({ kind: 'jobs', id: value });
  await mill.audit.list({ limit: 5 });
  const documents = await schedule.find({ data: { [column]: value, [path]: value } });
  await schedule.find({ error: value, id: JSON.stringify([value]) });
  return {
    tasks: tasks.items.length,
    none: await mill.tasks.count({ source: { [path]: `${value}' or '1'='1` } }),
    documents: documents.items.length,
    jobs: (await mill.jobs.find({ ids: value, name: value, data: { [`${key}.${key}`]: value } })).items
      .length,
    viaDashboard: page.items.length,
    sorts: await sortBy(mill, schedule, value),
  };
}

/** Hostile sorts and cursors are rejected, or read as usual ones; returns any other result. */
async function sortBy(
  mill: Tidemill,
  schedule: ReturnType<Tidemill['documents']>,
  value: string,
): Promise<readonly unknown[]> {
  const at = new Date().toISOString();
  const forged = (place: object): { cursor: string } => ({
    cursor: Buffer.from(JSON.stringify({ at, key: value, back: value, ...place })).toString('base64url'),
  });
  const fields = [{ [value]: 1 }, { createdAt: value }, value] as never[];
  const calls = [
    ...fields.map((sort) => mill.jobs.find({}, { sort })),
    ...fields.map((sort) => mill.tasks.find({}, { sort })),
    mill.jobs.find({}, forged({ field: value, direction: value })),
    mill.jobs.find({}, forged({ field: 'createdAt', direction: value })),
    mill.tasks.find({}, forged({ sort: value })),
    mill.tasks.find({}, forged({ sort: 'scheduledAt:-1', key: JSON.stringify([value, [value]]) })),
    schedule.find({}, { order: value as never }),
    schedule.find({}, forged({ order: value, key: JSON.stringify([value]) })),
  ];
  const settled = await Promise.allSettled(calls);
  const client = aClient(mill, { authorize: () => ['view', 'payload'] });
  const encoded = encodeURIComponent(value);
  const answers = await Promise.all(
    ['jobs', 'tasks', 'documents'].flatMap((kind) =>
      ['sort', 'order'].map((key) => client.ask(`api/work?kind=${kind}&${key}=${encoded}`)),
    ),
  );
  return [
    ...settled.flatMap((one) =>
      one.status === 'fulfilled' || one.reason instanceof OptionError ? [] : [one.reason as unknown],
    ),
    ...answers.map(({ status }) => status).filter((status) => status !== 400 && status !== 200),
  ];
}
