import fc from 'fast-check';
import { BSONRegExp, MongoClient, type CommandStartedEvent, type Document } from 'mongodb';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { jobsFilter, tasksFilter } from '../../src/cli/filters.js';
import { OptionError, Tidemill } from '../../src/index.js';
import { mongodb } from '../../src/mongodb/index.js';
import { aClient } from '../dashboard/client.js';
import { until } from '../support/mills.js';
import { freshUri } from '../support/stores.js';

/** Part of every text from outside, and of nothing that the library writes. */
const MARK = 'zqx';

const isExposedText = (value: unknown): boolean =>
  typeof value === 'string' && value.startsWith('$') && value.includes(MARK);

/** Whether a part of a command would read a text from outside as an operator, a field or a variable. */
function exposes(part: unknown, inExpression: boolean): boolean {
  if (inExpression && isExposedText(part)) return true;
  if (Array.isArray(part)) return part.some((item) => exposes(item, inExpression));
  if (typeof part !== 'object' || part === null || Object.getPrototypeOf(part) !== Object.prototype)
    return false;
  return Object.entries(part).some(([key, value]) => {
    if (isExposedText(key)) return true;
    if (key === '$literal') return false;
    return exposes(value, inExpression ? key !== '$match' : key === '$expr');
  });
}

/** Inserted documents and `$set` values of a plain update are data and may hold anything. */
function isExposed({ command }: CommandStartedEvent): boolean {
  const { filter, query, pipeline, updates, deletes } = command;
  const writes = [
    ...((updates as Document[] | undefined) ?? []),
    ...((deletes as Document[] | undefined) ?? []),
  ];
  return (
    [filter, query].some((one) => exposes(one, false)) ||
    exposes(pipeline, true) ||
    writes.some(({ q, u }) => exposes(q, false) || (Array.isArray(u) && exposes(u, true)))
  );
}

const client = new MongoClient(freshUri(), { monitorCommands: true });
const commands: CommandStartedEvent[] = [];
client.on('commandStarted', (event) => commands.push(event));
const mill = new Tidemill({ store: mongodb({ client }), logger: false });
const things = client.db().collection<{ _id: string; note: string }>('things');
const reminders = client.db().collection<{ _id: string; note: string; sleepUntil: Date }>('reminders');
const schedule = mill.documents({ collection: 'reminders', onDocument: () => undefined });
const dashboard = aClient(mill);

beforeAll(async () => {
  void mill.reactiveTask({ task: 'ship', collection: 'things', debounce: 0, handler: () => undefined });
  await mill.start();
});
beforeEach(() => void commands.splice(0));
afterAll(async () => {
  await mill.stop({ timeout: 0 });
  await client.close();
});

const pieces = fc.constantFrom(
  '$',
  '$$ROOT',
  '$where',
  '$expr',
  '.',
  '{',
  '}',
  '"',
  "'",
  '$gt',
  ':',
  '[',
  ' ',
  '*',
  '\\',
);
const hostile = fc
  .array(pieces, { maxLength: 5 })
  .map((parts) => `$${MARK}${parts.join('')}`)
  .filter((text) => text.trim() === text);

/** Uses everything that takes a text, with texts that mean something to MongoDB. */
async function useTexts(text: string): Promise<object> {
  const later = new Date(Date.now() + 86_400_000);
  await things.replaceOne({ _id: text }, { note: text }, { upsert: true });
  await reminders.replaceOne({ _id: text }, { note: text, sleepUntil: later }, { upsert: true });
  const payload = { [text.replaceAll('.', '')]: text, note: text, $where: text };
  const { id } = await mill.enqueue(text, payload, { uniqueKey: text, delay: '1d' });
  await mill.enqueue(text, payload, { uniqueKey: text, delay: '1d' });
  await mill.schedule('0 3 * * *', text, payload, { uniqueKey: `${text}2` });
  await mill.withLock(text, () => Promise.resolve());
  await mill.jobs.pause(text);
  await mill.jobs.resume(text);
  await mill.audit.append({ actor: text, action: text, target: text, outcome: text });
  await until(
    'its task has run',
    async () => (await mill.tasks.count({ status: 'completed', source: { _id: text } })) === 1,
  );
  const flags = { name: [text], error: text };
  const encoded = encodeURIComponent(text);
  const shown = await dashboard.get<{ items: unknown[] }>(
    `work?kind=jobs&name=${encoded}&field=note:${encodeURIComponent(JSON.stringify(text))}`,
  );
  const found = {
    data: (await mill.jobs.get(id))?.data,
    byName: await mill.jobs.count({ name: text, uniqueKey: text, data: { note: text } }),
    byField: await mill.tasks.count({ source: { note: text } }),
    documents: await schedule.count({ data: { note: text } }),
    shown: shown.items.length,
    fromCommandLine:
      (await mill.jobs.count(jobsFilter(flags))) + (await mill.tasks.count(tasksFilter(flags))),
    cancelled: await mill.jobs.cancelMany({ name: text, uniqueKey: text, data: { note: text } }),
  };
  await mill.tasks.retryMany({ source: { note: text }, errorMessage: text });
  await mill.schedules.remove(text, `${text}2`);
  await mill.jobs.removeMany({ name: text });
  expect(found.data).toEqual(payload);
  return { ...found, data: undefined };
}

describe('untrusted text on MongoDB', () => {
  it('hostile text is always a value, never an operator, a field or a variable', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uniqueArray(hostile, { minLength: 1, maxLength: 1 }), async ([text = '']) => {
        expect(await useTexts(text)).toMatchObject({
          byField: 1,
          documents: 1,
          shown: 2,
          fromCommandLine: 0,
        });
        expect(commands.filter(isExposed).map(({ command }) => JSON.stringify(command))).toEqual([]);
      }),
      { numRuns: 12, endOnFailure: true },
    );
  });

  const operators: readonly unknown[] = [
    { $gt: '' },
    { $ne: null },
    { $where: 'sleep(1)' },
    { $expr: true },
    { $function: { body: 'return 1', args: [], lang: 'js' } },
    { $regex: '.*' },
    [{ $gt: '' }],
  ];

  it.each(operators)('rejects the object %j wherever a value is expected', async (given) => {
    const value = JSON.parse(JSON.stringify(given)) as never;
    const calls: (() => Promise<unknown>)[] = [
      ...['ids', 'name', 'status', 'uniqueKey', 'error', 'createdAt'].map(
        (key) => () => mill.jobs.find({ [key]: value }),
      ),
      () => mill.jobs.find({ data: { note: value } }),
      () => mill.jobs.cancelMany({ name: value }),
      ...['task', 'status', 'errorMessage', 'hasError', 'id', 'scheduledAt'].map(
        (key) => () => mill.tasks.find({ [key]: value }),
      ),
      () => mill.tasks.find({ source: { note: value } }),
      () => mill.tasks.retryMany({ source: { note: value } }),
      () => schedule.find({ data: { note: value } }),
      () => schedule.find({ error: value }),
    ];
    for (const call of calls) await expect(call()).rejects.toThrow(OptionError);
    expect(commands.filter(({ command }) => JSON.stringify(command).includes('sleep(1)'))).toEqual([]);
  });

  it.each(['$where', '$expr', 'note.$gt', '$or', 'a.$function', '$jsonSchema'])(
    'rejects the key %s in field filters, also in the dashboard',
    async (key) => {
      const fields = { [key]: '1' };
      for (const call of [
        () => mill.jobs.find({ data: fields }),
        () => mill.tasks.find({ source: fields }),
        () => mill.tasks.retryMany({ source: fields }),
        () => schedule.find({ data: fields }),
      ])
        await expect(call()).rejects.toThrow(OptionError);
      for (const kind of ['jobs', 'tasks', 'documents']) {
        const field = encodeURIComponent(`${key}:1`);
        expect((await dashboard.ask(`api/work?kind=${kind}&field=${field}`)).status).toBe(400);
      }
    },
  );

  it.each(['name[$ne]=x', 'status[$gt]=', 'field[$where]=1', 'ids=%7B%22%24gt%22%3A%22%22%7D'])(
    'the dashboard rejects the query %s',
    async (query) => {
      expect((await dashboard.ask(`api/work?kind=jobs&${query}`)).status).toBe(400);
    },
  );

  it('an id with the text of an operator matches nothing', async () => {
    await things.insertOne({ _id: 'one', note: '' });
    await until('it has a task', async () => (await mill.tasks.count({ source: { _id: 'one' } })) === 1);
    for (const text of [
      '{"$gt":""}',
      '{"$regularExpression":{"pattern":".*","options":""}}',
      '{"task":{"$gt":""},"id":{"$gt":""}}',
    ]) {
      expect(await mill.tasks.count({ id: text })).toBe(0);
      expect(
        (await dashboard.ask(`api/work/tasks/${encodeURIComponent(text)}`)).status,
      ).toBeGreaterThanOrEqual(400);
    }
    const byObject = await mill.tasks.find({ _id: { task: 'ship', id: { $gt: '' } } });
    expect(byObject.items).toEqual([]);
    await expect(mill.tasks.find({ _id: { $gt: '' } })).rejects.toThrow();
  });

  it('tasks.get rejects a query in place of a document id', async () => {
    await things.replaceOne({ _id: 'other' }, { note: '' }, { upsert: true });
    await until('it has a task', async () => (await mill.tasks.get('ship', 'other')) !== undefined);
    for (const docId of [
      { $ne: null },
      { $regex: '.*' },
      new Map([['$ne', null]]),
      Object.assign(Object.create(null) as object, { $ne: null }),
      /.*/u,
      new BSONRegExp('.*'),
    ])
      await expect(mill.tasks.get('ship', docId)).rejects.toThrow(
        /tasks\.get: docId must be the _id of a document, got .*sourceDocFilter/u,
      );
    for (const docId of [{ tenant: 1 }, new Map([['tenant', 1]]), new Date(), null, 'none'])
      expect(await mill.tasks.get('ship', docId)).toBeUndefined();
  });

  const bare = (fields: object): object => Object.assign(Object.create(null) as object, fields);

  it.each([
    ['an object without a prototype', bare({ $where: 'true' })],
    ['one inside another', { $and: [bare({ $where: 'true' })] }],
    ['a Map', { $or: [new Map([['$where', 'true']])] }],
    ['a Map inside a Map', { $or: [new Map([['$nor', [new Map([['$where', 'true']])]]])] }],
  ])('rejects JavaScript in a sourceDocFilter that is %s', async (_what, sourceDocFilter) => {
    await expect(mill.tasks.count({ sourceDocFilter })).rejects.toThrow(
      /sourceDocFilter cannot use \$where/u,
    );
  });

  it.each([
    { $where: 'true' },
    { $and: [{ $where: 'true' }] },
    { $expr: { $function: { body: 'function () { return true }', args: [], lang: 'js' } } },
    { note: { $not: { $where: 'true' } } },
  ])('rejects JavaScript in the sourceDocFilter %j', async (sourceDocFilter) => {
    for (const call of [
      () => mill.tasks.find({ sourceDocFilter }),
      () => mill.tasks.count({ sourceDocFilter }),
      () => mill.tasks.retryMany({ sourceDocFilter }),
    ])
      await expect(call()).rejects.toThrow(/sourceDocFilter cannot use \$(?:where|function)/u);
  });
});
