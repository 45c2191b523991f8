import { describe, expect, it } from 'vitest';
import { defineJob, OptionError, Tidemill, type TidemillOptions } from '../../../src/index.js';
import { memory, type MemoryStore } from '../../../src/memory/index.js';
import { aMill } from '../../support/mills.js';
import { emailSchema } from './schemas.js';

const INVALID = new Date(Number.NaN);

/** A mill whose store must stay unchanged. */
function aUntouchedMill() {
  const store = memory();
  const mill = aMill(store);
  const untouched = async (): Promise<void> => {
    expect(await mill.jobs.count()).toBe(0);
    expect(await mill.schedules.list()).toEqual([]);
  };
  return { mill, store, untouched };
}

/** Checks that the call rejects with the option named, and that nothing was written. */
async function refused(call: (mill: Tidemill) => unknown, message: string): Promise<void> {
  const { mill, untouched } = aUntouchedMill();
  let answer: unknown;
  expect(() => (answer = call(mill)), 'must reject, not throw').not.toThrow();
  const error = await Promise.resolve(answer).then(
    () => undefined,
    (problem: unknown) => problem,
  );
  expect(error).toBeInstanceOf(OptionError);
  expect((error as Error).message).toContain(message);
  await untouched();
}

/** Checks that a synchronous call throws. */
function refusedAtOnce(call: () => unknown, message: string): void {
  expect(call).toThrow(OptionError);
  expect(call).toThrow(message);
}

type Case = readonly [what: string, given: unknown, message: string];

const ENQUEUE_OPTIONS: readonly Case[] = [
  ['null', null, 'options must be an object, got null'],
  ['a text', 'now', 'options must be an object'],
  ['a list', [], 'options must be an object'],
  ['an unknown key', { runat: new Date() }, 'unknown option "runat". Did you mean "runAt"?'],
  ['an empty id', { id: '' }, 'id must be a non-empty string'],
  ['a blank id', { id: '  ' }, 'id must be a non-empty string'],
  ['an id that is an object', { id: { $ne: 1 } }, 'id must be a non-empty string, got a plain object'],
  ['a wrong date', { runAt: INVALID }, 'runAt must be a valid Date, got an invalid Date'],
  ['a date in words', { runAt: '2025-01-01' }, 'runAt must be a valid Date'],
  ['null for a date', { runAt: null }, 'runAt must be a valid Date, got null'],
  ['a wrong delay', { delay: 'soon' }, 'delay must be a duration'],
  ['a negative delay', { delay: -1 }, 'delay must be a duration'],
  ['an endless delay', { delay: Infinity }, 'delay must be a duration'],
  ['a delay beyond all dates', { delay: 1e300 }, 'delay must be a duration'],
  ['both', { runAt: new Date(), delay: 5 }, 'pass either runAt or delay, not both'],
  ['too high a priority', { priority: 11 }, 'priority must be a whole number from -10 to 10, got 11'],
  ['too low a priority', { priority: -11 }, 'priority must be a whole number'],
  ['half a priority', { priority: 0.5 }, 'priority must be a whole number'],
  ['a priority in words', { priority: 'high' }, 'priority must be a whole number'],
  ['an empty key', { uniqueKey: '' }, 'uniqueKey must be a non-empty string'],
  ['a key that is an object', { uniqueKey: {} }, 'uniqueKey must be a non-empty string'],
  ['a wrong policy', { retryPolicy: { type: 'never' } }, 'retryPolicy: type must be one of'],
  ['a policy in words', { retryPolicy: 'fixed' }, 'retryPolicy must be an object'],
  ['no timeout', { timeout: 0 }, 'timeout must be a duration of at least 1 ms'],
  ['a wrong timeout', { timeout: 'long' }, 'timeout must be a duration'],
  [
    'a foreign transaction',
    { transaction: {} },
    'transaction must be a handle of the memory store, got a plain object',
  ],
  ['a foreign session', { session: 'x' }, 'transaction must be a handle of the memory store'],
];

const TARGETS: readonly Case[] = [
  ['nothing', undefined, "expected a job's name or a definition made by defineJob, got undefined"],
  ['null', null, "expected a job's name or a definition"],
  ['a number', 5, "expected a job's name or a definition"],
  ['an empty name', '', 'name must be a non-empty string'],
  ['a blank name', ' ', 'name must be a non-empty string'],
  ['an object without a name', {}, "expected a job's name or a definition"],
  ['an object that defineJob did not make', { name: 'x' }, 'made by defineJob'],
  ['a definition with an empty name', { name: '', options: {} }, 'name'],
];

describe('enqueue: bad input', () => {
  it.each(ENQUEUE_OPTIONS)('enqueue rejects bad options: %s', async (_what, options, message) => {
    await refused((mill) => mill.enqueue('a', {}, options as object), message);
  });

  it.each(TARGETS)('enqueue and now reject a bad target: %s', async (_what, target, message) => {
    await refused((mill) => mill.enqueue(target as string, {}), message);
    await refused((mill) => mill.now(target as string, {}), message);
  });

  it('enqueue of a job type rejects bad options and bad data', async () => {
    await refused(
      (mill) => mill.job('a', () => 1).enqueue({}, { delay: 'soon' }),
      'delay must be a duration',
    );
    await refused(
      (mill) => mill.job('a', () => 1).enqueue({ f: () => 1 }),
      'data.f is of type function, which cannot be stored',
    );
  });

  it('enqueue rejects a payload above maxPayloadBytes', async () => {
    const mill = aMill(memory({ maxPayloadBytes: 100 }));
    await expect(mill.enqueue('a', { text: 'x'.repeat(200) })).rejects.toThrow('maxPayloadBytes');
    expect(await mill.jobs.count()).toBe(0);
  });
});

describe('enqueueMany: bad input', () => {
  it.each(
    ENQUEUE_OPTIONS.filter(
      ([, options]) => typeof options === 'object' && options !== null && !Array.isArray(options),
    ),
  )(
    'enqueueMany rejects the whole call for one item with bad options: %s',
    async (_what, options, message) => {
      const items = [{ name: 'good' }, { name: 'bad', ...(options as object) }, { name: 'good' }];
      // There is one transaction for all items.
      await refused(
        (mill) => mill.enqueueMany(items),
        /session|transaction/u.test(message) ? 'transaction' : message,
      );
    },
  );

  it('enqueueMany names the index of a bad item', async () => {
    const items = [{ name: 'a' }, { name: 'b', data: { n: Number.NaN } }];
    await refused(
      (mill) => mill.enqueueMany(items),
      'enqueueMany[1]: data.n is NaN, which would not be read back unchanged',
    );
    await refused((mill) => mill.enqueueMany([{ name: 'a' }, { name: '' }]), 'enqueueMany[1]: name must be');
  });

  it.each([undefined, null, 'a', {}, [null], ['a'], [undefined]])(
    'enqueueMany rejects %j as a list of jobs',
    async (items) => {
      await refused(
        (mill) => mill.enqueueMany(items as never),
        'expected a list of { name, data, ...options }',
      );
    },
  );

  it('an item with both a job and a name, or with a job that is no definition', async () => {
    const job = defineJob('a');
    await refused(
      (mill) => mill.enqueueMany([{ name: 'b' }, { job, name: 'a' }] as never),
      'enqueueMany[1]: pass either job or name, not both',
    );
    await refused(
      (mill) => mill.enqueueMany([{ name: 'b' }, { job: 'a' }, { job: 5 }] as never),
      "enqueueMany[2]: expected a job's name or a definition made by defineJob, got 5",
    );
  });

  it('data that does not fit the definition of its item', async () => {
    const job = defineJob('mail', { schema: emailSchema });
    await refused(
      (mill) => mill.enqueueMany([{ name: 'b' }, { job, data: { to: 5 } as never }]),
      'enqueueMany[1]: data does not fit the schema',
    );
  });

  it('enqueueMany rejects items with different transactions', async () => {
    const { mill, untouched } = aUntouchedMill();
    await mill
      .withTransaction(async (transaction) => {
        await expect(mill.enqueueMany([{ name: 'a', transaction }, { name: 'b' }])).rejects.toThrow(
          'all items must have the same transaction',
        );
        throw new Error('roll back');
      })
      .catch(() => undefined);
    await untouched();
  });

  it.each([undefined, null, 'a', {}, [null], ['a'], [5]])(
    'enqueueMany of a job type rejects %j as a list of items',
    async (items) => {
      await refused(
        (mill) => mill.job('a', () => 1).enqueueMany(items as never),
        'enqueueMany: expected a list of',
      );
    },
  );

  it('enqueueMany accepts an empty list and writes nothing', async () => {
    const { mill, untouched } = aUntouchedMill();
    expect(await mill.enqueueMany([])).toEqual([]);
    await untouched();
  });
});

describe('schedule: bad input', () => {
  it.each<Case>([
    ['nothing', undefined, 'cron must be a string'],
    ['an empty text', '', 'cron must be a string'],
    ['four fields', '0 3 * *', 'cron needs 5 fields'],
    ['a distance without its @', 'every 90s', "has 2. For a distance, write '@every 90s'."],
    ['a wrong field', '99 3 * * *', 'is not valid'],
    ['what never matches', '0 0 30 2 *', 'never matches a date'],
    ['an unknown name', '@often', 'is not a known cron name'],
    ['no distance', '@every', 'is not a known cron name'],
    ['a wrong distance', '@every often', '@every must be a duration of at least 1 ms'],
    ['a distance of nothing', '@every 0s', '@every must be a duration of at least 1 ms'],
    ['a wrong distance as an option', { every: 'often' }, 'every must be a duration of at least 1 ms'],
    ['a missing distance', {}, 'every must be a duration of at least 1 ms'],
    ['another key', { every: '90s', immediately: true }, 'unknown option "immediately"'],
  ])('schedule rejects a bad cron expression: %s', async (_what, cron, message) => {
    await refused((mill) => mill.schedule(cron as string, 'a', {}), message);
    await refused((mill) => mill.job('a', () => 1).schedule(cron as string, {}), message);
  });

  it.each(TARGETS)('schedule rejects a bad target: %s', async (_what, target, message) => {
    await refused((mill) => mill.schedule('@daily', target as string, {}), message);
  });

  it.each<Case>([
    ['null', null, 'options must be an object'],
    ['an unknown key', { timeZone: 'UTC' }, 'unknown option "timeZone". Did you mean "timezone"?'],
    ['the zone by another name', { tz: 'UTC' }, 'unknown option "tz". That is called timezone here.'],
    [
      'the start by another name',
      { runAt: new Date() },
      'unknown option "runAt". That is called startAt here.',
    ],
    ['the key by another name', { jobKey: 'a' }, 'unknown option "jobKey". That is called uniqueKey here.'],
    ['a wrong zone', { timezone: 'Prague' }, 'timezone must be an IANA name'],
    ['an empty key', { uniqueKey: '' }, 'uniqueKey must be a non-empty string'],
    ['a wrong start', { startAt: INVALID }, 'startAt must be a valid Date'],
    ['a start in words', { startAt: 'tomorrow' }, 'startAt must be a valid Date'],
    ['a wrong end', { repeatUntil: INVALID }, 'repeatUntil must be a valid Date'],
    ['an end in the past', { repeatUntil: new Date(0) }, 'has no run between'],
    [
      'an end before the start',
      { startAt: new Date('2100-01-02'), repeatUntil: new Date('2100-01-01') },
      'has no run between',
    ],
    ['a wrong policy for missed runs', { missed: 'twice' }, 'missed must be one of once, skip, all'],
    ['a wrong priority', { priority: 50 }, 'priority must be a whole number'],
    ['a wrong retry policy', { retryPolicy: {} }, 'retryPolicy: type must be one of'],
    ['a wrong timeout', { timeout: -1 }, 'timeout must be a duration'],
    ['a transaction', { transaction: {} }, 'unknown option "transaction"'],
  ])('schedule rejects bad options: %s', async (_what, options, message) => {
    await refused((mill) => mill.schedule('@daily', 'a', {}, options as object), message);
  });

  it('schedule rejects data that would not come back equal', async () => {
    await refused(
      (mill) => mill.schedule('@daily', 'a', { n: 5n }),
      'data.n is a bigint, which would not be read back unchanged',
    );
  });
});

const FILTERS: readonly Case[] = [
  ['null', null, 'options must be an object'],
  ['a text', 'a', 'options must be an object'],
  ['a list', [], 'options must be an object'],
  ['an unknown key', { names: 'a' }, 'unknown option "names". Did you mean "name"?'],
  ['an operator', { $where: '1' }, 'unknown option "$where"'],
  [
    'an object for a name',
    { name: { $ne: '' } },
    'filter.name must be a non-empty string, got a plain object',
  ],
  ['an object in a list of names', { name: ['a', { $gt: '' }] }, 'filter.name must be a non-empty string'],
  ['an empty name', { name: '' }, 'filter.name must be a non-empty string'],
  ['a RegExp for an id', { ids: /x/ }, 'filter.ids must be a non-empty string'],
  ['an unknown status', { status: 'done' }, 'filter.status must be one of pending, processing'],
  ['an object for a status', { status: { $ne: 'x' } }, 'filter.status must be one of'],
  ['an object for a key', { uniqueKey: {} }, 'filter.uniqueKey must be a non-empty string'],
  ['a date for a range', { createdAt: new Date() }, 'filter.createdAt must be { from?, to? }'],
  ['a text for a range', { updatedAt: 'x' }, 'filter.updatedAt must be { from?, to? }'],
  ['an operator in a range', { createdAt: { $gt: new Date() } }, 'unknown option "$gt"'],
  ['a wrong end of a range', { nextRunAt: { to: INVALID } }, 'to must be a valid Date'],
  ['a text as the start of a range', { nextRunAt: { from: '2025' } }, 'from must be a valid Date'],
  ['an empty error', { error: '' }, 'filter.error must be a non-empty string'],
  ['a RegExp for an error', { error: /x/ }, 'filter.error must be a non-empty string'],
];

describe('find and count: bad input', () => {
  it.each(FILTERS)('find and count reject a bad filter: %s', async (_what, filter, message) => {
    await refused((mill) => mill.jobs.find(filter as object), message);
    await refused((mill) => mill.jobs.count(filter as object), message);
  });

  it.each<Case>([
    ['null', null, 'options must be an object'],
    ['an unknown key', { skip: 5 }, 'unknown option "skip"'],
    ['no limit', { limit: 0 }, 'limit must be a whole number from 1 to 1000'],
    ['too high a limit', { limit: 1_001 }, 'limit must be a whole number from 1 to 1000'],
    ['a limit in words', { limit: '5' }, 'limit must be a whole number'],
    ['an unknown field', { sort: { name: 1 } }, 'unknown option "name"'],
    ['two fields', { sort: { createdAt: 1, updatedAt: 1 } }, 'sort must name one field'],
    ['no field', { sort: {} }, 'sort must name one field'],
    ['a wrong direction', { sort: { createdAt: 'asc' } }, 'sort.createdAt must be 1 or -1'],
    ['an empty cursor', { cursor: '' }, 'cursor must be `next` or `previous` of an earlier page'],
    ['a made-up cursor', { cursor: 'abc' }, 'cursor must be'],
    ['a number for a cursor', { cursor: 5 }, 'cursor must be'],
    ['a cursor with another field', { cursor: cursor({ field: 'name' }) }, 'cursor must be'],
    ['a cursor without a place', { cursor: cursor({ at: 'x' }) }, 'cursor must be'],
    ['a cursor with an object for a key', { cursor: cursor({ key: { $gt: '' } }) }, 'cursor must be'],
  ])('find rejects bad options: %s', async (_what, options, message) => {
    await refused((mill) => mill.jobs.find({}, options as object), message);
  });
});

function cursor(change: object): string {
  const place = { field: 'createdAt', direction: 1, back: false, at: new Date(0).toISOString(), key: 'x' };
  return Buffer.from(JSON.stringify({ ...place, ...change })).toString('base64url');
}

describe('bulk operations: bad input', () => {
  const MANY = ['cancelMany', 'retryMany', 'removeMany'] as const;

  /** Two jobs that must survive. */
  async function spared(operation: (typeof MANY)[number], filter: unknown, message: string): Promise<void> {
    const mill = aMill(memory());
    const { id } = await mill.enqueue('a', {}, { delay: '1h' });
    await mill.enqueue('b', {}, { delay: '1h' });
    await mill.jobs.cancel(id);
    const before = await mill.jobs.stats();
    await expect(mill.jobs[operation](filter as never)).rejects.toThrow(OptionError);
    await expect(mill.jobs[operation](filter as never)).rejects.toThrow(message);
    expect(await mill.jobs.stats()).toEqual(before);
  }

  for (const operation of MANY) {
    it.each<Case>([
      ...FILTERS,
      [
        'nothing',
        undefined,
        'an empty filter would match every job; to select all of them, pass { all: true }',
      ],
      ['an empty filter', {}, 'an empty filter would match every job'],
      [
        'a filter of undefined values',
        { name: undefined, ids: undefined },
        'an empty filter would match every job',
      ],
      ['a range without ends', { createdAt: {} }, 'an empty filter would match every job'],
      [
        'a range with undefined ends',
        { updatedAt: { from: undefined } },
        'an empty filter would match every job',
      ],
      ['all: false', { all: false }, 'unknown option "all"'],
      ['all: 1', { all: 1 }, 'filter.all must be true or false'],
      ['all with something else', { all: true, name: 'a' }, 'unknown option "name"'],
    ])(`${operation} rejects a bad filter and changes nothing: %s`, async (_what, filter, message) => {
      await spared(operation, filter, message);
    });
  }
});

describe('operations on one job or schedule: bad input', () => {
  const BAD_IDS: readonly unknown[] = [undefined, null, '', ' ', 5, {}, { $ne: null }];

  it.each(BAD_IDS)('operations on one job reject %j as an id', async (id) => {
    const message = 'id must be a non-empty string';
    await refused((mill) => mill.jobs.get(id as string), message);
    await refused((mill) => mill.jobs.cancel(id as string), message);
    await refused((mill) => mill.jobs.retry(id as string), message);
    await refused((mill) => mill.jobs.remove(id as string), message);
    await refused((mill) => mill.jobs.reschedule(id as string, '1h'), message);
    await refused((mill) => mill.jobs.result(id as string), message);
  });

  it.each(BAD_IDS)('operations on names and schedules reject %j as a name', async (name) => {
    const message = 'name must be a non-empty string';
    await refused((mill) => mill.jobs.pause(name as string), message);
    await refused((mill) => mill.jobs.resume(name as string), message);
    await refused((mill) => mill.schedules.get(name as string), message);
    await refused((mill) => mill.schedules.remove(name as string), message);
    await refused((mill) => mill.schedules.pause(name as string), message);
    await refused((mill) => mill.schedules.resume(name as string), message);
    await refused((mill) => mill.schedules.runNow(name as string), message);
  });

  it.each(['', 5, {}, { $ne: null }])('operations on schedules reject %j as a key', async (key) => {
    const message = 'uniqueKey must be a non-empty string';
    await refused((mill) => mill.schedules.get('a', key as string), message);
    await refused((mill) => mill.schedules.remove('a', key as string), message);
    await refused((mill) => mill.schedules.pause('a', key as string), message);
    await refused((mill) => mill.schedules.resume('a', key as string), message);
    await refused((mill) => mill.schedules.runNow('a', key as string), message);
    await refused((mill) => mill.schedules.next('a', 5, key as string), message);
  });

  it('operations on one job or schedule reject bad options and times', async () => {
    await refused((mill) => mill.jobs.cancel('x', { await: true } as object), 'unknown option "await"');
    await refused((mill) => mill.jobs.cancel('x', { wait: 'yes' } as never), 'wait must be true or false');
    await refused((mill) => mill.jobs.reschedule('x', 'soon'), 'when must be a duration');
    await refused((mill) => mill.jobs.reschedule('x', INVALID), 'when must be a valid Date');
    await refused((mill) => mill.jobs.result('x', { timeout: 'long' }), 'timeout must be a duration');
    await refused((mill) => mill.jobs.result('x', { limit: 5 } as object), 'unknown option "limit"');
    await refused((mill) => mill.jobs.result('x', { signal: {} } as never), 'signal must be an AbortSignal');
    await refused((mill) => mill.schedules.list(5 as never), 'name must be a non-empty string');
    await refused((mill) => mill.schedules.next(0), 'count must be a whole number from 1 to 1000');
    await refused((mill) => mill.withTransaction('x' as never), 'work must be a function');
  });
});

describe('new Tidemill: bad input', () => {
  const store: MemoryStore = memory();

  it.each<Case>([
    ['nothing', undefined, 'options with a store are needed'],
    ['null', null, 'options must be an object'],
    ['a url', 'mongodb://u:secret@h/db', 'got a text. For a URL: new Tidemill({ store: url }).'],
    ['a store', memory(), 'pass the store as an option: new Tidemill({ store }).'],
    ['no store', {}, 'store must be an opened store'],
    ['null as a store', { store: null }, 'store must be an opened store'],
    ['an object as a store', { store: {} }, 'store must be an opened store'],
    ['an empty url', { store: '' }, 'store must be an opened store'],
    ['an unknown url', { store: 'redis://localhost' }, 'got "redis"'],
    ['half a url', { store: 'mongodb://' }, 'store must be an opened store'],
    ['the lease by another name', { store, lockLifetime: 5 }, 'That is called leaseDuration here.'],
    ['the store by another name', { connectionString: 'postgres://a:b@c/d' }, 'That is called store here.'],
    ['an unknown key', { store, concurency: 5 }, 'unknown option "concurency". Did you mean "concurrency"?'],
    ['an empty instanceId', { store, instanceId: '' }, 'instanceId must be a non-empty string'],
    ['no concurrency', { store, concurrency: 0 }, 'concurrency must be a whole number from 1 to 10000'],
    ['half a slot', { store, concurrency: 1.5 }, 'concurrency must be a whole number'],
    ['concurrency in words', { store, concurrency: '5' }, 'concurrency must be a whole number'],
    [
      'too short a lease',
      { store, leaseDuration: '100ms' },
      'leaseDuration must be a duration of at least 500 ms',
    ],
    ['a wrong lease', { store, leaseDuration: 'long' }, 'leaseDuration must be a duration'],
    ['a number as a poll interval', { store, pollInterval: 100 }, 'pollInterval: options must be an object'],
    [
      'an unknown poll key',
      { store, pollInterval: { minimum: 1 } },
      'unknown option "minimum". Did you mean "min"?',
    ],
    [
      'a wrong poll interval',
      { store, pollInterval: { max: 'often' } },
      'pollInterval.max must be a duration',
    ],
    [
      'max below min',
      { store, pollInterval: { min: 100, max: 50 } },
      'pollInterval.max must not be less than',
    ],
    ['a wrong shutdown', { store, shutdownTimeout: -1 }, 'shutdownTimeout must be a duration'],
    ['recovery in words', { store, recoverStaleJobs: 'yes' }, 'recoverStaleJobs must be true or false'],
    ['an unknown retention', { store, retention: { done: '1d' } }, 'retention: unknown option "done"'],
    ['a wrong retention', { store, retention: { failed: 'ever' } }, 'retention.failed must be a duration'],
    ['a wrong history', { store, executionHistoryLimit: -1 }, 'executionHistoryLimit must be a whole number'],
    ['no abandoned', { store, maxAbandoned: 0 }, 'maxAbandoned must be a whole number of at least 1'],
    ['true as a logger', { store, logger: true }, 'logger.debug must be a function'],
    ['null as a logger', { store, logger: null }, 'logger.debug must be a function'],
    ['half a logger', { store, logger: { debug: () => 1, info: () => 1 } }, 'logger.warn must be a function'],
  ])('new Tidemill rejects bad options: %s', (_what, options, message) => {
    refusedAtOnce(() => new Tidemill(options as TidemillOptions), message);
  });

  it('new Tidemill rejects an unknown store URL without showing its credentials', () => {
    expect(() => new Tidemill({ store: 'mysql://user:secret@host/db' })).toThrow(/^((?!secret).)*$/u);
  });

  it('stop rejects bad options', async () => {
    await refused((mill) => mill.stop({ timeout: 'long' }), 'stop: timeout must be a duration');
    await refused((mill) => mill.stop({ after: 5 } as object), 'unknown option "after"');
  });

  it('on rejects a listener that is not a function', () => {
    refusedAtOnce(() => aMill(memory()).on('error', 'log' as never), 'listener of error must be a function');
  });

  it('memory() rejects bad options', () => {
    refusedAtOnce(() => memory({ clocks: 1 } as object), 'unknown option "clocks". Did you mean "clock"?');
    refusedAtOnce(
      () => memory({ maxPayloadBytes: 0 }),
      'maxPayloadBytes must be a whole number of at least 1',
    );
  });
});

const DEFINITION: readonly Case[] = [
  ['null', null, 'options must be an object'],
  ['an unknown key', { retries: 5 }, 'unknown option "retries"'],
  ['a wrong policy', { retryPolicy: { type: 'x' } }, 'retryPolicy: type must be one of'],
  ['a wrong timeout', { timeout: 0 }, 'timeout must be a duration of at least 1 ms'],
  ['a wrong priority', { priority: 11 }, 'priority must be a whole number from -10 to 10'],
  ['a wrong retention', { retention: { completed: -1 } }, 'retention.completed must be a duration'],
  ['a number as retention', { retention: 5 }, 'retention: options must be an object'],
  ['an object as a schema', { schema: {} }, 'schema must be a Standard Schema validator'],
  ['null as a schema', { schema: null }, 'schema must be a Standard Schema validator'],
  ['a function as a schema', { schema: () => true }, 'schema must be a Standard Schema validator'],
];

const WORK: readonly Case[] = [
  ['no concurrency', { concurrency: 0 }, 'concurrency must be a whole number from 1 to 10000'],
  ['too much concurrency', { concurrency: 10_001 }, 'concurrency must be a whole number'],
  ['a wrong history', { executionHistoryLimit: 1.5 }, 'executionHistoryLimit must be a whole number'],
  ['a wrong replace', { replace: 'yes' }, 'replace must be true or false'],
];

describe('defineJob, job and work: bad input', () => {
  it.each([undefined, null, '', ' ', 5, {}])('defineJob and job reject %j as a name', (name) => {
    refusedAtOnce(() => defineJob(name as string), 'name must be a non-empty string');
    refusedAtOnce(() => aMill(memory()).job(name as string, () => 1), 'name must be a non-empty string');
  });

  it.each(DEFINITION)('defineJob and job reject a bad definition: %s', (_what, options, message) => {
    refusedAtOnce(() => defineJob('a', options as object), message);
    refusedAtOnce(() => aMill(memory()).job('a', options as object, () => 1), message);
  });

  it.each(WORK)('job and work reject bad options: %s', (_what, options, message) => {
    const mill = aMill(memory());
    refusedAtOnce(() => mill.job('a', options as object, () => 1), message);
    refusedAtOnce(() => mill.work(defineJob('a'), options as object, () => 1), message);
    // A rejected call leaves nothing behind: the name is still free.
    expect(() => mill.job('a', () => 1)).not.toThrow();
  });

  it('work rejects options of a definition, and defineJob rejects options of work', () => {
    refusedAtOnce(
      () => aMill(memory()).work(defineJob('a'), { timeout: 5 } as object, () => 1),
      'unknown option "timeout"',
    );
    refusedAtOnce(() => defineJob('a', { concurrency: 5 } as object), 'unknown option "concurrency"');
  });

  it.each([undefined, null, 5, 'handler', {}])('job and work reject %j as a handler', (handler) => {
    const mill = aMill(memory());
    refusedAtOnce(() => mill.job('a', {}, handler as never), 'handler must be a function');
    refusedAtOnce(() => mill.work(defineJob('a'), {}, handler as never), 'handler must be a function');
  });

  it('job and work reject a missing handler', () => {
    const mill = aMill(memory());
    refusedAtOnce(() => (mill.job as (name: string) => unknown)('a'), 'handler must be a function');
    refusedAtOnce(() => (mill.work as (d: unknown) => unknown)(defineJob('a')), 'handler must be a function');
  });

  it.each([undefined, null, 5, 'a', {}, { name: 'a' }])('work rejects %j as a definition', (definition) => {
    refusedAtOnce(() => aMill(memory()).work(definition as never, () => 1), 'made by defineJob');
  });

  it('job and work accept undefined options', () => {
    const mill = aMill(memory());
    expect(() => mill.job('a', undefined as never, () => 1)).not.toThrow();
    expect(() => mill.work(defineJob('b'), undefined as never, () => 1)).not.toThrow();
  });

  it('work rejects a second handler for the same name', () => {
    const mill = aMill(memory());
    mill.job('a', () => 1);
    refusedAtOnce(() => mill.work(defineJob('a'), () => 1), '"a" already has a handler');
  });
});
