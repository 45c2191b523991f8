import { describe, expect, it } from 'vitest';
import { defineJob, OptionError, PayloadError, Tidemill, TidemillError } from '../../src/index.js';
import { memory, type MemoryTransaction } from '../../src/memory/index.js';
import type { Logger } from '../../src/core/logger.js';
import { aMill } from '../support/mills.js';
import { eachStore } from '../support/stores.js';
import { aSchema, emailSchema } from './enqueue/schemas.js';

/** A call as code without types makes it. */
const untyped = (mill: object, method: string, ...given: unknown[]): unknown =>
  Reflect.apply(Reflect.get(mill, method) as () => unknown, mill, given);

function warnings(): { readonly logger: Logger; readonly said: string[] } {
  const said: string[] = [];
  const nothing = (): void => undefined;
  const logger = { info: nothing, error: nothing, warn: (_: object, text: string) => void said.push(text) };
  return { logger: { ...logger, debug: nothing }, said };
}

eachStore('options of a call of enqueueMany', ({ open }) => {
  it('stores all items in the transaction of the call, or none', async () => {
    const mill = aMill(open());
    const items = [{ name: 'a' }, { name: 'b', delay: '1h' as const }];
    await mill.withTransaction((transaction) => mill.enqueueMany(items, { transaction }));
    await mill.withTransaction((session) => mill.enqueueMany(items, { session }));
    const failed = mill.withTransaction(async (transaction) => {
      await mill.enqueueMany(items, { transaction });
      throw new Error('no');
    });
    await expect(failed).rejects.toThrow('no');
    expect(await mill.jobs.count()).toBe(4);
  });

  it('refuses an item with another transaction, and options that belong to items', async () => {
    const mill = aMill(open());
    await mill.withTransaction(async (transaction) => {
      const own = { name: 'a', transaction: {} };
      const mixed = mill.enqueueMany([{ name: 'a' }, own] as never, { transaction });
      await expect(mixed).rejects.toThrow('enqueueMany[1]: its transaction is not that of the call.');
      await mill.enqueueMany([{ name: 'a', transaction }], { transaction });
    });
    await expect(mill.enqueueMany([{ name: 'a' }], { delay: '1h' } as never)).rejects.toThrow(
      'unknown option "delay". It belongs to the items of the call.',
    );
    expect(await mill.jobs.count()).toBe(1);
  });
});

describe('the options of a call of enqueueMany', () => {
  it('apply to the items of a job type, too', async () => {
    const mill = new Tidemill({ store: memory(), logger: false });
    const type = mill.job('a', () => 1);
    await mill.withTransaction(async (transaction: MemoryTransaction) => {
      await type.enqueueMany([{ data: 1 }, { data: 2 }], { transaction });
      expect(await mill.jobs.count()).toBe(0);
    });
    expect(await mill.jobs.count()).toBe(2);
    await mill.stop();
  });
});

describe('surplus arguments', () => {
  const definition = defineJob('defined');
  it.each([
    ['job', ['a', () => 1, { retryPolicy: { maxAttempts: 1 } }], 'The options come before the handler'],
    ['job', ['a', {}, () => 1, {}], 'The options come before the handler'],
    ['work', [definition, () => 1, { concurrency: 1 }], 'The options come before the handler'],
    ['enqueue', [definition, {}, {}, {}], 'enqueue(job, data, options): got a plain object'],
    ['enqueueMany', [[{ name: 'a' }], {}, {}], 'Options of a job belong to its item'],
    ['now', [definition, {}, { delay: '1h' }], 'For options, call enqueue(job, data, options).'],
    ['schedule', ['@daily', definition, {}, {}, {}], 'Pass all options in the fourth one.'],
    ['withTransaction', [() => 1, { isolation: 'serializable' }], 'open a transaction of your driver'],
  ])('of %s are refused, with a message that says where they belong: %#', async (method, given, message) => {
    const mill = aMill(memory());
    const call = async (): Promise<unknown> => untyped(mill, method, ...given);
    await expect(call()).rejects.toThrow(OptionError);
    await expect(call()).rejects.toThrow(message);
    expect(await mill.jobs.count()).toBe(0);
  });

  it('are accepted if they are undefined', async () => {
    const mill = aMill(memory());
    await untyped(mill, 'enqueue', 'a', {}, {}, undefined);
    expect(await mill.jobs.count()).toBe(1);
  });
});

describe('options in the place of the payload', () => {
  it('get one warning for each name, which shows the call with them in their place', async () => {
    const { logger, said } = warnings();
    const mill = aMill(memory(), { logger });
    for (const uniqueKey of ['x', 'y']) await mill.enqueue('r', { uniqueKey });
    await mill.schedule('0 3 * * *', 'r', { timezone: 'Europe/Prague' });
    await mill.now('other', { delay: '1h', priority: 2 });
    expect(said).toEqual([
      expect.stringMatching(/after the payload: enqueue\("r", \{\}, \{ uniqueKey \}\)\.$/u),
      expect.stringMatching(/: schedule\("0 3 \* \* \*", "r", \{\}, \{ timezone \}\)\.$/u),
      expect.stringMatching(/: enqueue\("other", \{\}, \{ delay, priority \}\)\.$/u),
    ]);
    expect(await mill.jobs.count()).toBe(4);
  });

  it('get no warning if they may well be data', async () => {
    const { logger, said } = warnings();
    const mill = aMill(memory(), { logger });
    const schema = aSchema<{ uniqueKey: string }>((value) => value as { uniqueKey: string });
    await mill.enqueue(defineJob('checked', { schema }), { uniqueKey: 'x' });
    await mill.enqueue('a', { uniqueKey: 'x', to: 'ada' });
    await mill.enqueue('b', { uniqueKey: 'x' }, { delay: '1h' });
    await mill.enqueue('c', { id: 4 });
    for (const data of [{}, [], 'id', null, 5]) await mill.enqueue('d', data);
    expect(said).toEqual([]);
  });
});

describe('a payload that does not fit its schema', () => {
  it('is a PayloadError with a code of its own and the issues of the schema', async () => {
    const mill = aMill(memory());
    const error: unknown = await mill
      .enqueue(defineJob('send-email', { schema: emailSchema }), { to: 5 } as never)
      .catch((thrown: unknown) => thrown);
    expect(error).toBeInstanceOf(PayloadError);
    expect(error).toBeInstanceOf(OptionError);
    expect(error).toBeInstanceOf(TidemillError);
    expect(error).toMatchObject({
      name: 'PayloadError',
      code: 'BAD_PAYLOAD',
      issues: [{ message: 'expected a string', path: ['to'] }],
    });
  });
});

it('enqueues thousands of jobs in one transaction of the memory store in linear time', async () => {
  const mill = aMill(memory());
  const msFor = async (count: number): Promise<number> => {
    const items = Array.from({ length: count }, (_, n) => ({
      name: 'a',
      uniqueKey: `${String(count)}-${String(n)}`,
    }));
    const startedAt = performance.now();
    const rollback = mill.withTransaction(async (transaction) => {
      await mill.enqueueMany(items, { transaction });
      throw new Error('enough');
    });
    await expect(rollback).rejects.toThrow('enough');
    return performance.now() - startedAt;
  };
  await msFor(1_000);
  // Eight times the jobs took 64 times as long.
  expect(await msFor(16_000)).toBeLessThan(30 * (await msFor(2_000)) + 500);
});

describe('hints', () => {
  const store = memory();
  it.each<readonly [string, (mill: Tidemill) => unknown, string]>([
    [
      'options of mill.work',
      (mill) => mill.work(defineJob('a'), { timeout: '1s' } as never, () => 1),
      'It belongs to defineJob(name, options).',
    ],
    [
      'options of defineJob',
      () => defineJob('a', { concurrency: 2 } as never),
      'It belongs to mill.work(definition, options, handler).',
    ],
    [
      'a name for mill.work',
      (mill) => mill.work('str' as never, () => 1),
      'work("str"): the first argument must be a definition',
    ],
    ['ttl of a lock', (mill) => mill.withLock('a', () => 1, { ttl: '5s' } as never), 'called lease here'],
    [
      'initialDelay',
      () => defineJob('a', { retryPolicy: { type: 'exponential', initialDelay: 5 } as never }),
      'called min here',
    ],
    [
      'handler of documents',
      (mill) => mill.documents({ collection: 'a', handler: () => 1 } as never),
      'called onDocument here',
    ],
    ['name of a task', (mill) => mill.reactiveTask({ name: 'a' } as never), 'called task here'],
    [
      'a folder as the store',
      () => new Tidemill({ store: './data' }),
      'For a database in that folder: "file:./data".',
    ],
  ])('tell what was meant by %s', async (_what, call, message) => {
    const mill = aMill(store);
    const called = async (): Promise<unknown> => call(mill);
    await expect(called()).rejects.toThrow(message);
  });
});
