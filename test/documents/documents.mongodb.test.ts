import { startShardedMongo } from '@tidemill/servers';
import { Binary, BSONRegExp, MongoClient, ObjectId, UUID, type Collection } from 'mongodb';
import { describe, expect, inject, it } from 'vitest';
import { lazily } from '../../src/core/lazily.js';
import { ServerClock } from '../../src/core/server-clock.js';
import { collectionOptions, type Mongo } from '../../src/mongodb/context.js';
import { mongodbDocuments } from '../../src/mongodb/documents/store.js';
import { mongodb } from '../../src/mongodb/index.js';
import { ids } from '../support/bson.js';
import { behindProxy } from '../support/flaky-proxy.js';
import { gate, until } from '../support/mills.js';
import { opened } from '../support/port.js';
import { freshUri, rawClient } from '../support/stores.js';
import { future, past, watched, type DocumentFixture, type Watched } from './shared/document-fixtures.js';

const client = rawClient(inject('mongoUri'));
const signal = new AbortController().signal;

const collectionAt = (uri: string, name = 'reminders'): Collection =>
  client.db(new URL(uri).pathname.slice(1)).collection(name);

function aSchedule(
  uri: string,
  options: Parameters<typeof watched>[1] = {},
): Watched & { documents: Collection } {
  const fixture = { store: mongodb({ uri }), collection: 'reminders' } as unknown as DocumentFixture;
  return { ...watched(fixture, options), documents: collectionAt(uri) };
}

describe('documents without a date in sleepUntil on MongoDB', () => {
  it.each([0, 20])(
    'never runs or changes a document whose sleepUntil is no date, and reports each one once, with an idleDelay of %i ms',
    async (idleDelay) => {
      const uri = freshUri();
      const { schedule, errors, ran, documents } = aSchedule(uri, { idleDelay });
      const values = ['2020-01-01', 5, true, { a: 1 }, [past()], new ObjectId(), /x/u];
      await documents.insertMany(values.map((sleepUntil) => ({ sleepUntil })));
      await documents.createIndexes([{ key: { sleepUntil: 1 } }]);
      const due = await documents.insertOne({ sleepUntil: past() });
      await schedule.start();
      await until('all are reported', () => errors.length === values.length);
      const more = await documents.insertOne({ sleepUntil: 'one more' });
      await until('that one is reported', () =>
        errors.some(({ error }) => error.message.includes('"one more"')),
      );
      await until('the one that is due has run', () => ran.length > 0);
      expect(errors).toHaveLength(values.length + 1);
      expect(new Set(errors.map(({ where }) => where))).toEqual(new Set(['sleepUntil']));
      expect(errors.some(({ error }) => error.message.includes('got "2020-01-01"'))).toBe(true);
      expect(ran).toEqual([due.insertedId.toHexString()]);
      expect((await documents.findOne({ _id: more.insertedId }))?.['sleepUntil']).toBe('one more');
    },
  );
});

describe('document ids of any BSON type', () => {
  it.each([1, 8])('runs documents with ids of any type exactly once, %i at a time', async (concurrency) => {
    const { schedule, documents } = aSchedule(freshUri(), {
      concurrency,
      lockDuration: '10s',
      onDocument: (document) => void ran.push(document['what']),
    });
    const ran: unknown[] = [];
    await documents.insertMany(
      ids.map(([what, _id]) => ({
        _id: _id as never,
        what,
        sleepUntil: past(),
        autoRemove: what === 'a UUID',
      })),
    );
    await schedule.start();
    await until(
      'all have ended',
      async () => (await documents.countDocuments({ sleepUntil: null })) === ids.length - 1,
    );
    await until('one is removed', async () => (await documents.countDocuments()) === ids.length - 1);
    expect([...ran].sort()).toEqual(ids.map(([what]) => what).sort());
  });

  it('lists documents with ids of any type, and makes each due by the key in the list', async () => {
    const { schedule, documents } = aSchedule(freshUri());
    const later = future(3_600_000);
    await documents.insertMany(ids.map(([what, _id]) => ({ _id: _id as never, what, sleepUntil: later })));
    const { items } = await schedule.find({}, { limit: 1_000 });
    expect(items).toHaveLength(ids.length);
    for (const { id } of items) expect(await schedule.runNow(id)).toBe('due');
    expect(await documents.countDocuments({ sleepUntil: later })).toBe(0);
  });

  it('passes binary fields to the handler as a Buffer, and UUIDs and patterns unchanged', async () => {
    const { schedule, documents } = aSchedule(freshUri(), {
      onDocument: (document, { job }) => void seen.push({ ...document, id: job.id }),
    });
    const seen: Record<string, unknown>[] = [];
    const [_id, uuid] = [new UUID(), new UUID()];
    const pattern = new BSONRegExp('(?i)a');
    const fields = { bytes: new Binary(Buffer.from([1])), uuid, list: [uuid], pattern, plain: /a/i };
    await documents.insertOne({ _id: _id as never, ...fields, sleepUntil: past() });
    await schedule.start();
    await until('it has run', () => seen.length === 1);
    expect(seen[0]).toMatchObject({ _id, id: _id, ...fields, bytes: Buffer.from([1]) });
  });
});

describe('responses of MongoDB lost on the way to a document scheduler', () => {
  it('records a document once and does not rerun it when the response to the write is lost', async () => {
    const { proxy, uri, direct } = await behindProxy();
    const documents = collectionAt(direct);
    const done = gate();
    const { schedule, ran } = aSchedule(uri, {
      onDocument: () => {
        proxy.picky = (request) => request.includes('$set');
        done.open();
      },
    });
    const { insertedId } = await documents.insertOne({ sleepUntil: past(), interval: '@yearly' });
    await schedule.start();
    await done.promise;
    await until('an answer was lost', () => proxy.lost > 0);
    proxy.picky = undefined;
    await until('it is recorded', () => !schedule.isProcessing());
    expect(ran).toEqual([insertedId.toHexString()]);
    const recorded = await documents.findOne();
    expect((recorded?.['sleepUntil'] as Date).toISOString()).toMatch(/-01-01T00:00:00.000Z$/u);
  });

  it('runs a document after its lock expires when the response to the lock is lost', async () => {
    const { proxy, uri, direct } = await behindProxy();
    const documents = collectionAt(direct);
    const { schedule, ran, errors } = aSchedule(uri, { lockDuration: '2s' });
    await schedule.start();
    await until('it is idle', () => schedule.isIdle());
    proxy.picky = (request) => request.includes('findAndModify') || request.includes('findandmodify');
    await documents.insertOne({ sleepUntil: past() });
    await until('the lock has failed', () => errors.length > 0);
    proxy.picky = undefined;
    await until('it is done', async () => (await documents.distinct('sleepUntil'))[0] === null);
    expect(ran.length).toBe(1);
  });
});

describe('statements of document schedules on MongoDB', () => {
  it('stores a failure reason that begins with a dollar sign as plain text', async () => {
    const { schedule, documents } = aSchedule(freshUri(), {
      retryPolicy: { type: 'fixed', interval: '1h' },
      onDocument: () => {
        throw new Error('$secret');
      },
    });
    await documents.insertOne({ sleepUntil: past(), secret: 'told' });
    await schedule.start();
    await until(
      'it has failed',
      async () => (await documents.findOne({ 'scheduleFailure.count': 1 })) !== null,
    );
    expect(await documents.findOne()).toMatchObject({ scheduleFailure: { reason: '$secret' } });
  });

  it.each([1, 2])(
    "explains the fix when a collection's validator refuses the failure field, %i at a time",
    async (concurrency) => {
      const uri = freshUri();
      const db = client.db(new URL(uri).pathname.slice(1));
      await db.createCollection('reminders', { validator: { scheduleFailure: { $exists: false } } });
      const { schedule, errors, documents } = aSchedule(uri, {
        concurrency,
        retryPolicy: { type: 'fixed', interval: '1h' },
      });
      await documents.insertMany([{ sleepUntil: past() }, { sleepUntil: past() }]);
      await schedule.start();
      await until('it is told', () =>
        errors.some(({ error }) => error.message.includes("collection's validator refuses")),
      );
      await schedule.stop({ timeout: 0 });
    },
  );

  it("refuses to lock a document until a time that has passed on the server's clock", async () => {
    const uri = freshUri();
    const store = await opened(mongodb({ uri }));
    const jobs = store.documents({ collection: 'reminders' });
    await collectionAt(uri).insertOne({ sleepUntil: past() });
    // A clock that is an hour slow: a time that it takes to be a minute ahead has long passed.
    store.clock.learn(past(3_600_000), performance.now(), performance.now());
    const until = new Date(store.clock.now() + 60_000);
    expect(await jobs.lockNext(until, { signal })).toBeNull();
    expect(await jobs.lockMany?.(until, { limit: 5, signal })).toEqual([]);
    // A look corrects the clock.
    await jobs.look?.({ withinMs: 0, known: [], signal });
    expect(await jobs.lockNext(new Date(store.clock.now() + 60_000), { signal })).not.toBeNull();
  });

  it('renews the locks of other documents while a transaction blocks one of them', async () => {
    const end = gate();
    const { schedule, ran, documents } = aSchedule(freshUri(), {
      concurrency: 3,
      lockDuration: '6s',
      onDocument: () => end.promise,
    });
    await documents.insertMany([1, 2, 3].map((n) => ({ n, sleepUntil: past() })));
    await schedule.start();
    await until('all run', () => ran.length === 3);
    const locks = async (): Promise<number[]> =>
      (await documents.find({ n: { $ne: 2 } }).toArray()).map((one) => Number(one['sleepUntil']));
    const before = Math.max(...(await locks()));
    const session = client.startSession();
    session.startTransaction();
    await documents.updateOne({ n: 2 }, { $set: { seen: true } }, { session });
    await until('the others are renewed', async () => Math.min(...(await locks())) > before);
    await session.abortTransaction();
    await session.endSession();
    end.open();
    await until('all are recorded', async () => (await documents.countDocuments({ sleepUntil: null })) === 3);
  });

  it('runs documents of another database', async () => {
    const uri = freshUri();
    const other = collectionAt(freshUri());
    const { schedule, ran } = aSchedule(uri, { database: other.dbName });
    await other.insertOne({ sleepUntil: past() });
    await schedule.start();
    await until('it has run', () => ran.length === 1);
  });

  it.each([
    ['one command', 27],
    ['a command each, on servers before 8.0', 21],
  ])('reports the result of every lock and write in a batch, using %s', async (_how, wire) => {
    const documents = collectionAt(freshUri());
    const mongo = {
      client,
      wire,
      sharded: false,
      clock: new ServerClock(),
      options: collectionOptions({ w: 'majority' }),
      jobs: { dbName: documents.dbName },
    } as unknown as Mongo;
    const jobs = mongodbDocuments(
      {
        clock: mongo.clock,
        mongo: () => mongo,
        acquire: async () => undefined,
        release: async () => undefined,
      },
      { collection: documents.collectionName },
      lazily(() => import('../../src/mongodb/documents/found.js')),
    );
    await documents.insertMany(Array.from({ length: 30 }, (_, n) => ({ sleepUntil: past(1_000 + n), n })));
    const [mine, theirs] = [future(60_000), future(61_000)];
    const got = await Promise.all([
      jobs.lockMany!(mine, { limit: 10, signal }),
      jobs.lockMany!(theirs, { limit: 10, signal }),
      jobs.lockMany!(theirs, { limit: 10, signal }),
    ]);
    const ids = got.flat().map(({ id }) => String(id));
    expect(ids.length).toBeGreaterThan(0);
    expect(new Set(ids).size).toBe(ids.length);
    const recorded = await jobs.settle!(
      got.flat().map(({ id, data }) => {
        const remove = Number(data?.['n']) % 2 === 0;
        return { id, ifSleepUntil: mine, ...(remove ? { remove } : { changes: { sleepUntil: null } }) };
      }),
      { signal },
    );
    const own = got[0].map(({ id }) => String(id));
    expect(ids.filter((_id, at) => recorded[at])).toEqual(own);
    expect(await documents.countDocuments({ sleepUntil: theirs })).toBe(ids.length - own.length);
    const renewed = await jobs.renew!(
      got.flat().map(({ id }) => ({ id, ifSleepUntil: theirs })),
      future(90_000),
      { signal },
    );
    expect(ids.filter((_id, at) => renewed[at])).toEqual(ids.slice(own.length));
  });

  it('rejects a condition that is not a query, and a field that is not a path', () => {
    const store = mongodb({ uri: freshUri() });
    expect(() => store.documents({ collection: 'x', condition: [] })).toThrow('condition must be a query');
    expect(() => store.documents({ collection: 'x', fields: { sleepUntil: '' } })).toThrow('must be a path');
  });
});

describe('document schedules on a sharded collection', () => {
  it('runs documents of a sharded collection whose shard key is not _id', async () => {
    await using server = await startShardedMongo();
    const uri = server.uri.replace(/\/(\?|$)/u, '/app$1');
    const own = new MongoClient(uri);
    await own.db('admin').command({ shardCollection: 'app.reminders', key: { region: 'hashed' } });
    const documents = own.db('app').collection('reminders');
    await documents.insertMany(Array.from({ length: 30 }, (_, n) => ({ region: n, sleepUntil: past() })));
    const fixture = { store: mongodb({ uri }), collection: 'reminders' } as unknown as DocumentFixture;
    for (const concurrency of [1, 10]) {
      const { schedule, ran, errors } = watched(fixture, { concurrency });
      await documents.updateMany({}, { $set: { sleepUntil: past() } });
      await schedule.start();
      await until('all are done', async () => (await documents.countDocuments({ sleepUntil: null })) === 30);
      await schedule.stop();
      expect([ran.length, new Set(ran).size, errors]).toEqual([30, 30, []]);
    }
    await own.close();
  });
});
