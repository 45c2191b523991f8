import { startMongo } from '@tidemill/servers';
import { describe, expect, it } from 'vitest';
import { OptionError, Tidemill } from '../../src/index.js';
import { memory } from '../../src/memory/index.js';
import { mongodb } from '../../src/mongodb/index.js';
import { aMill } from '../support/mills.js';
import { freshUri } from '../support/stores.js';
import { Fixture } from './fixture.js';

const handler = (): void => undefined;

/** The message with which the call itself rejects a definition. */
function refusal(definition: unknown): string {
  const mill = aMill(mongodb({ uri: 'mongodb://127.0.0.1:1/app' }));
  try {
    void mill.reactiveTask(definition as never);
  } catch (error) {
    expect(error).toBeInstanceOf(OptionError);
    return (error as Error).message;
  }
  throw new Error('it was not refused');
}

const withOption = (options: object): unknown => ({
  task: 'sync',
  collection: 'orders',
  handler,
  ...options,
});

describe('reactiveTask: bad definitions', () => {
  it.each([
    ['nothing at all', undefined, /definition/u],
    ['null', null, /must be an object, got null/u],
    ['a text', 'sync', /must be an object, got "sync"/u],
    ['no task', { collection: 'orders', handler }, /task must be a non-empty string, got undefined/u],
    ['an empty task', withOption({ task: '' }), /task must be a non-empty string/u],
    ['a task that is no text', withOption({ task: 7 }), /task must be a non-empty string, got 7/u],
    ['no collection', { task: 'sync', handler }, /collection must be a non-empty string/u],
    ['a collection that is no text', withOption({ collection: {} }), /collection must be/u],
    ['no handler', { task: 'sync', collection: 'orders' }, /handler must be a function, got undefined/u],
    ['a handler that is no function', withOption({ handler: {} }), /handler must be a function/u],
    ['an empty database', withOption({ database: '' }), /database must be a non-empty string/u],
    ['a negative debounce', withOption({ debounce: -1 }), /debounce must be a duration/u],
    [
      'a debounce that is no duration',
      withOption({ debounce: 'soon' }),
      /debounce must be a duration.*"soon"/u,
    ],
    ['a debounce of NaN', withOption({ debounce: Number.NaN }), /debounce must be a duration/u],
    ['a debounce of null', withOption({ debounce: null }), /debounce/u],
    [
      'a debounce without wait',
      withOption({ debounce: { maxWait: 1 } }),
      /debounce\.wait must be a duration/u,
    ],
    ['a negative maxWait', withOption({ debounce: { wait: 0, maxWait: -1 } }), /debounce\.maxWait/u],
    [
      'a maxWait below wait',
      withOption({ debounce: { wait: 2, maxWait: 1 } }),
      /maxWait \(1\) must not be less than debounce\.wait \(2\)/u,
    ],
    [
      'an unknown part of debounce',
      withOption({ debounce: { wait: 1, maxwait: 5 } }),
      /Did you mean "maxWait"/u,
    ],
    ['a retry policy of no type', withOption({ retryPolicy: {} }), /type/u],
    [
      'a retry policy of an unknown type',
      withOption({ retryPolicy: { type: 'fix' } }),
      /Did you mean "fixed"/u,
    ],
    ['a retry policy that is a text', withOption({ retryPolicy: 'fixed' }), /retryPolicy/u],
    ['a retry policy of null', withOption({ retryPolicy: null }), /retryPolicy/u],
    [
      'no attempts',
      withOption({ retryPolicy: { type: 'fixed', interval: 1, maxAttempts: 0 } }),
      /maxAttempts/u,
    ],
    [
      'an unknown option of the policy',
      withOption({ retryPolicy: { type: 'fixed', interval: 1, resetRetriesOnDataChanges: true } }),
      /Did you mean "resetRetriesOnDataChange"/u,
    ],
    [
      'a reset that is no boolean',
      withOption({ retryPolicy: { type: 'fixed', interval: 1, resetRetriesOnDataChange: 'yes' } }),
      /resetRetriesOnDataChange must be true or false/u,
    ],
    [
      'an unknown deleteWhen',
      withOption({ cleanupPolicy: { deleteWhen: 'always' } }),
      /deleteWhen must be one of/u,
    ],
    ['a negative keepFor', withOption({ cleanupPolicy: { keepFor: -1 } }), /keepFor must be a duration/u],
    [
      'an unknown option of cleanup',
      withOption({ cleanupPolicy: { keepfor: 1 } }),
      /Did you mean "keepFor"/u,
    ],
    ['a cleanup of null', withOption({ cleanupPolicy: null }), /cleanupPolicy/u],
    ['a negative history', withOption({ executionHistoryLimit: -1 }), /executionHistoryLimit/u],
    [
      'a broken history',
      withOption({ executionHistoryLimit: 1.5 }),
      /executionHistoryLimit must be a whole/u,
    ],
    [
      'a version below 1',
      withOption({ evolution: { handlerVersion: 0 } }),
      /handlerVersion must be a whole/u,
    ],
    [
      'a version in words',
      withOption({ evolution: { handlerVersion: '2' } }),
      /handlerVersion must be a whole/u,
    ],
    [
      'an unknown onHandlerVersionChange',
      withOption({ evolution: { onHandlerVersionChange: 'reprocess' } }),
      /onHandlerVersionChange must be one of none, reprocess_failed, reprocess_all/u,
    ],
    [
      'a reconcileOnTriggerChange that is no boolean',
      withOption({ evolution: { reconcileOnTriggerChange: 1 } }),
      /reconcileOnTriggerChange must be true or false/u,
    ],
    [
      'an unknown option of evolution',
      withOption({ evolution: { version: 1 } }),
      /unknown option "version"/u,
    ],
    ['no time between reconciliations', withOption({ reconcileEvery: 0 }), /reconcileEvery/u],
    ['a cron text that is none', withOption({ reconcileEvery: 'CRON often' }), /reconcileEvery/u],
    ['no slots', withOption({ concurrency: 0 }), /concurrency must be a whole number from 1/u],
    [
      'a function as the key of limits',
      withOption({ limits: { perKey: { key: () => 'a' } } }),
      /limits\.perKey\.key must be a dot path into the watched values.*since the database plans tasks/u,
    ],
    ['no key of limits', withOption({ limits: { perKey: {} } }), /perKey\.key must be a dot path/u],
    ['an empty part of a key', withOption({ limits: { perKey: { key: 'a..b' } } }), /perKey\.key must be/u],
    [
      'null as limits per key',
      withOption({ limits: { perKey: null } }),
      /limits\.perKey: options must be an object, got null/u,
    ],
    [
      'an order of keys',
      withOption({ limits: { perKey: { key: 'a', order: 'fifo' } } }),
      /limits\.perKey\.order is for jobs.*use concurrency: 1/u,
    ],
    [
      'a key that is not watched',
      withOption({ watchProjection: { status: 1 }, limits: { perKey: { key: 'customer.id' } } }),
      /watchProjection does not include "customer"; add it there/u,
    ],
    [
      'an unknown option of keys',
      withOption({ limits: { perKey: { key: 'a', concurency: 1 } } }),
      /unknown option "concurency".*concurrency/u,
    ],
    ['half a slot', withOption({ concurrency: 0.5 }), /concurrency/u],
    ['no time to run', withOption({ timeout: 0 }), /timeout must be a duration of at least 1 ms/u],
    ['an unknown option', withOption({ watchProjections: {} }), /Did you mean "watchProjection"/u],
    ['another unknown option', withOption({ colection: 'x' }), /Did you mean "collection"/u],
  ])('reactiveTask rejects a definition with %s', (_what, definition, message) => {
    const text = refusal(definition);
    expect(text).toMatch(message);
    expect(text).toMatch(/^reactiveTask\b/u);
  });

  it('reactiveTask rejects a projection that is empty, excludes fields or is no object', () => {
    for (const watchProjection of [null, 1, 'a', [], ['a'], {}, { _id: 0 }, { a: 0 }, { a: 1, b: false }])
      expect(refusal(withOption({ watchProjection }))).toContain('watchProjection');
    expect(refusal(withOption({ watchProjection: { secret: 0 } }))).toContain('must not exclude "secret"');
  });

  it('reactiveTask rejects a filter that is not a query', () => {
    for (const filter of [null, 1, true, 'paid', [], [{ status: 'paid' }], () => true, new Date()])
      expect(refusal(withOption({ filter }))).toContain('filter must be a query such as');
  });

  it('reactiveTask rejects operators that cannot be used in planning, however deep', () => {
    for (const filter of [
      { $where: 'true' },
      { $text: { $search: 'x' } },
      { place: { $near: [0, 0] } },
      { place: { $nearSphere: [0, 0] } },
      { $and: [{ a: 1 }, { $or: [{ $where: 'true' }, { b: 1 }] }] },
    ])
      expect(refusal(withOption({ filter }))).toMatch(/filter cannot use \$\w+ in a reactive task/u);
  });

  it('reactiveTask rejects a variable in a query, where it would be a plain text', () => {
    for (const filter of [
      { dueAt: { $lte: '$$NOW' } },
      { $and: [{ dueAt: '$$NOW' }] },
      { dueAt: { $in: ['$$NOW'] } },
      { $or: [{ $expr: true }, { a: { $not: { $gt: '$$NOW' } } }] },
    ])
      expect(refusal(withOption({ filter }))).toContain('Use { $expr: … }');
  });

  it('reactiveTask rejects a query inside an expression, which the server would take as true', () => {
    for (const filter of [
      { $and: [{ status: 'paid' }, { $gt: ['$total', '$limit'] }] },
      { $or: [{ $eq: ['$a', 1] }, { $and: [{ b: 1 }] }] },
    ])
      expect(refusal(withOption({ filter }))).toMatch(/filter mixes a query .* \$expr/u);
  });

  it('reactiveTask rejects values that MongoDB cannot hold', () => {
    for (const filter of [
      { a: undefined },
      { a: { $in: [1, undefined] } },
      { a: () => 1 },
      { a: Symbol('x') },
    ])
      expect(refusal(withOption({ filter }))).toMatch(/filter\.a.* must be a value that MongoDB can store/u);
    expect(refusal(withOption({ watchProjection: { a: undefined } }))).toContain('watchProjection');
  });

  it('reactiveTask rejects a second definition with the same name', () => {
    const mill = aMill(mongodb({ uri: 'mongodb://127.0.0.1:1/app' }));
    void mill.reactiveTask({ task: 'sync', collection: 'orders', handler });
    expect(() => mill.reactiveTask({ task: 'sync', collection: 'users', handler })).toThrow(
      'reactiveTask("sync"): this task is already defined',
    );
  });

  it('reactiveTask rejects a store without data to watch', () => {
    const blind = memory();
    Reflect.defineProperty(blind, 'reactive', { value: undefined });
    expect(() => aMill(blind).reactiveTask({ task: 'x', collection: 'y', handler })).toThrow(
      'The memory store has no data to watch: reactive tasks need MongoDB (tidemill/mongodb), PostgreSQL ' +
        '(tidemill/postgres), the embedded store (tidemill/embedded) or the memory store (tidemill/memory).',
    );
  });
});

describe('reactiveTask: all options', () => {
  it('accepts a definition with every option, durations as text or numbers', async () => {
    const fixture = new Fixture();
    const mill = fixture.mill();
    void mill.reactiveTask({
      task: 'all',
      collection: 'orders',
      database: fixture.db.databaseName,
      filter: { status: { $in: ['paid'] } },
      watchProjection: { status: 1, sum: { $add: ['$a', 1] } },
      debounce: { wait: '1s', maxWait: '1m30s' },
      retryPolicy: { type: 'linear', interval: '1s', maxAttempts: -1, resetRetriesOnDataChange: false },
      cleanupPolicy: { deleteWhen: 'never', keepFor: '7d' },
      executionHistoryLimit: 0,
      evolution: { handlerVersion: 3, onHandlerVersionChange: 'none', reconcileOnTriggerChange: false },
      reconcileEvery: 'CRON 0 3 * * *',
      concurrency: 2,
      timeout: '1m',
      handler,
    });
    void mill.reactiveTask({
      task: 'numbers',
      collection: 'orders',
      debounce: 0,
      reconcileEvery: '6h',
      executionHistoryLimit: 1,
      cleanupPolicy: { keepFor: 0 },
      handler,
    });
    await mill.start();
  });
});

describe('start: bad definitions', () => {
  const refused = async (
    definition: object,
    prepare?: (fixture: Fixture) => Promise<unknown>,
  ): Promise<string> => {
    const fixture = new Fixture();
    await prepare?.(fixture);
    const mill = fixture.mill();
    void mill.reactiveTask({ task: 'sync', collection: 'orders', handler, ...definition });
    const error = await mill.start().then(
      () => new Error('it started'),
      (problem: unknown) => problem as Error,
    );
    expect(error).toBeInstanceOf(OptionError);
    return error.message;
  };

  it.each([
    ['an unknown operator in a query', { filter: { a: { $gtt: 1 } } }, 'unknown operator: $gtt'],
    ['an unknown operator in an expression', { filter: { $foo: ['$a', 1] } }, '$foo'],
    ['a query and an expression side by side', { filter: { status: 'paid', $gt: ['$a', '$b'] } }, '$gt'],
    [
      'an expression that can never be evaluated',
      { filter: { $expr: { $divide: [1, 0] } } },
      "can't $divide by zero",
    ],
    ['$geoWithin without a shape', { filter: { a: { $geoWithin: 1 } } }, 'geometry must be an object'],
    ['an unknown variable', { filter: { $expr: { $eq: ['$a', '$$NOWW'] } } }, 'NOWW'],
    ['an unknown operator in the projection', { watchProjection: { a: { $fo: 1 } } }, '$fo'],
    ['paths that collide in the projection', { watchProjection: { a: 1, 'a.b': 1 } }, 'ollision'],
    ['an exclusion deep in the projection', { watchProjection: { a: { b: 0 } } }, 'exclusion'],
  ])('start rejects %s', async (_what, definition, message) => {
    const text = await refused(definition);
    expect(text).toMatch(/^reactiveTask\("sync"\): MongoDB refuses filter or watchProjection: /u);
    expect(text).toContain(message);
  });

  it('start rejects an unknown operator if the source has documents, too', async () => {
    const text = await refused({ filter: { a: { $gtt: 1 } } }, (fixture) =>
      fixture.collection('orders').insertOne({ a: 1 }),
    );
    expect(text).toContain('unknown operator: $gtt');
  });

  it('start rejects a bad definition if the store is given as a URL', async () => {
    const mill = aMill(freshUri() as never);
    void mill.reactiveTask({
      task: 'sync',
      collection: 'orders',
      filter: { dueAt: { $lte: '$$NOW' } },
      handler,
    });
    await expect(mill.start()).rejects.toThrow('Use { $expr: … }');
  });

  it('start rejects a view, a time series and a capped collection as a source', async () => {
    const made = (options: object) => (fixture: Fixture) => fixture.db.createCollection('orders', options);
    expect(await refused({}, made({ viewOn: 'others', pipeline: [] }))).toContain(
      'reactiveTask("sync"): "orders" is a view, whose changes cannot be watched.',
    );
    expect(await refused({}, made({ timeseries: { timeField: 'at' } }))).toContain('is a timeseries');
    expect(await refused({}, made({ capped: true, size: 4_096 }))).toContain(
      '"orders" is a capped collection',
    );
  });

  it('start rejects a task collection with foreign documents, and collections.tasks avoids it', async () => {
    const text = await refused({}, (fixture) =>
      fixture.collection('orders_tasks').insertOne({ title: 'mine' }),
    );
    expect(text).toContain('"orders_tasks" contains documents that are not tasks');
    expect(text).toContain('collections: { tasks:');
    const fixture = new Fixture();
    await fixture.collection('orders_tasks').insertOne({ title: 'mine' });
    const mill = aMill(
      mongodb({ uri: fixture.uri, collections: { tasks: (collection) => `${collection}_work` } }),
    );
    void fixture.define(mill, { collection: 'orders' });
    await mill.start();
    await fixture.collection('orders').insertOne({ _id: 1 });
    await fixture.ran(1);
    expect(await fixture.collection('orders_work').countDocuments()).toBe(1);
    expect(await fixture.collection('orders_tasks').countDocuments()).toBe(1);
  });

  it('start rejects reactive tasks on a standalone server', async () => {
    await using server = await startMongo({ standalone: true });
    const mill = aMill(mongodb({ uri: freshUri(server.uri) }));
    void mill.reactiveTask({ task: 'sync', collection: 'orders', handler });
    await expect(mill.start()).rejects.toThrow(/replica set/u);
    await mill.stop();
  });
});

describe('definitions added while the mill runs', () => {
  it('a definition added to a running mill handles existing and new documents', async () => {
    const fixture = new Fixture();
    const mill = await fixture.started({ collection: 'orders' });
    await fixture.collection('users').insertOne({ _id: 'old' });
    await fixture.define(mill, { task: 'second', collection: 'users' });
    await fixture.collection('users').insertOne({ _id: 'new' });
    await fixture.ran('old', 1, 'second');
    await fixture.ran('new', 1, 'second');
    await fixture.collection('orders').insertOne({ _id: 1 });
    await fixture.ran(1);
    expect(fixture.errors).toEqual([]);
  });

  it('a definition added to a running mill with jobs only takes effect', async () => {
    const fixture = new Fixture();
    const mill = fixture.mill();
    await mill.start();
    await fixture.define(mill, { collection: 'orders' });
    await fixture.collection('orders').insertOne({ _id: 1 });
    await fixture.ran(1);
    expect(fixture.errors).toEqual([]);
  });

  it('a definition that the server refuses rejects its promise and harms no other task', async () => {
    const fixture = new Fixture();
    await fixture.db.createCollection('seen', { viewOn: 'orders', pipeline: [] });
    const mill = await fixture.started({ collection: 'orders' });
    await expect(fixture.define(mill, { task: 'bad', collection: 'seen' })).rejects.toThrow('is a view');
    await expect(
      fixture.define(mill, { task: 'worse', collection: 'users', filter: { a: { $gtt: 1 } } }),
    ).rejects.toThrow('unknown operator: $gtt');
    await fixture.collection('orders').insertOne({ _id: 1 });
    await fixture.ran(1);
    // The name is free again, and a good definition is not rejected because of a bad one.
    await fixture.define(mill, { task: 'worse', collection: 'users', filter: { a: { $gt: 1 } } });
    await fixture.collection('users').insertOne({ _id: 2, a: 2 });
    await fixture.ran(2, 1, 'worse');
    expect(fixture.errors.filter((error) => !/is a view|\$gtt/u.test(error.message))).toEqual([]);
  });
});

it.each(['CRON nonsense', 'CRON', 0, -1, 'soon', Number.NaN])(
  'rejects a cleanupInterval of %s',
  (cleanupInterval) => {
    const options = { store: memory(), reactive: { cleanupInterval } };
    expect(() => new Tidemill(options)).toThrow(/cleanupInterval/u);
  },
);
