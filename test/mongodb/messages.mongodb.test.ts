import { MongoClient, type Document } from 'mongodb';
import { afterAll, describe, expect, it } from 'vitest';
import { mongodb } from '../../src/mongodb/index.js';
import { aMill, rarely, until } from '../support/mills.js';
import { opened } from '../support/port.js';
import { freshUri, rawClient } from '../support/stores.js';

const WAKES = 'tidemill_jobs_wakes';
const own = rawClient(freshUri());
const clients: MongoClient[] = [];
afterAll(() => Promise.all(clients.map((client) => client.close())));

/** A worker that hardly polls, and the ways in which it listens. */
function listening(uri: string, createIndexes = true) {
  const client = new MongoClient(uri, { monitorCommands: true });
  clients.push(client);
  const ways: string[] = [];
  client.on('commandStarted', ({ commandName, command }) => {
    const [stage] = (command['pipeline'] ?? []) as Document[];
    if (stage?.['$changeStream'] !== undefined) ways.push('stream');
    if (commandName === 'find' && command['tailable'] === true) ways.push('messages');
  });
  const worker = aMill(mongodb({ client, createIndexes }), { pollInterval: rarely });
  worker.job('x', () => 'ran');
  return { worker, ways, client };
}

/** A due job as processes write it that send no messages. */
const silent = (name: string): Document => ({
  _id: `silent-${name}`,
  v: 1,
  name,
  data: {},
  status: 'pending',
  priority: 0,
  nextRunAt: new Date(0),
  lockedAt: null,
  failCount: 0,
  createdAt: new Date(),
  updatedAt: new Date(),
  wake: 1,
});

const completed = (client: MongoClient, _id: string) => async (): Promise<boolean> => {
  const job = await client.db().collection<Document & { _id: string }>('tidemill_jobs').findOne({ _id });
  return job?.['status'] === 'completed';
};

describe('messages to idle instances on MongoDB', () => {
  it('an idle instance follows the messages, and no change stream', async () => {
    const uri = freshUri();
    const { worker, ways } = listening(uri);
    await worker.start();
    await until('it listens', () => ways.length > 0);
    const operator = aMill(mongodb({ uri }));
    const job = await operator.enqueue('x', {});
    expect(await operator.jobs.result(job.id, { timeout: '45s' })).toBe('ran');
    expect(new Set(ways)).toEqual(new Set(['messages']));
  });

  it('a call that enqueues many jobs sends one message, and one for a later time none', async () => {
    const uri = freshUri();
    const store = await opened(mongodb({ uri }));
    const producer = aMill(store);
    const wakes = own.db(new URL(uri).pathname.slice(1)).collection(WAKES);
    await producer.enqueueMany(Array.from({ length: 50 }, (_one, n) => ({ name: 'x', data: n })));
    await producer.enqueue('x', {}, { delay: '1h' });
    await until('the message is there', async () => (await wakes.countDocuments()) > 1);
    // The first comes with the collection.
    expect(await wakes.countDocuments()).toBe(2);
    const [last] = await wakes.find({}, { sort: { $natural: -1 }, limit: 1 }).toArray();
    expect(last).toMatchObject({ kind: 'jobs', name: 'x' });
  });

  it('a job enqueued in a transaction wakes an idle instance once it is committed', async () => {
    const uri = freshUri();
    const { worker, ways, client } = listening(uri);
    await worker.start();
    await until('it listens', () => ways.length > 0);
    const operator = aMill(mongodb({ client }));
    const session = client.startSession();
    session.startTransaction();
    const job = await operator.enqueue('x', {}, { session });
    await session.commitTransaction();
    expect(await operator.jobs.result(job.id, { timeout: '45s' })).toBe('ran');
    await session.endSession();
  });

  it('beside an instance of an earlier version, an instance follows the change stream as well', async () => {
    const uri = freshUri();
    const { worker, ways, client } = listening(uri);
    const globals = client.db().collection<Document & { _id: string }>('_tidemill_globals');
    const older = { kind: 'instance', instanceId: 'older', life: 'f'.repeat(16), names: ['y'], policies: [] };
    const leaseUntil = new Date(Date.now() + 600_000);
    await globals.insertOne({ _id: 'instance:older', ...older, dead: false, host: 'h', pid: 1, leaseUntil });
    await worker.start();
    await until('it listens', () => ways.includes('stream'));
    await until('it is idle', () => worker.health().wakeUp === 'stream');
    await client
      .db()
      .collection<Document & { _id: string }>('tidemill_jobs')
      .insertOne(silent('x') as never);
    await until('it ran', completed(client, 'silent-x'));
  });

  it('after a job of a process that sends no messages, an instance follows the change stream', async () => {
    const uri = freshUri();
    const { worker, ways, client } = listening(uri);
    await client
      .db()
      .collection<Document & { _id: string }>('tidemill_jobs')
      .insertOne(silent('x') as never);
    await worker.start();
    await until('it ran', completed(client, 'silent-x'));
    await until('it follows the stream', () => ways.includes('stream'));
    expect(ways).toContain('messages');
  });

  it('without the collection of messages, wake-ups come by the change stream', async () => {
    const uri = freshUri();
    await opened(mongodb({ uri }));
    await own.db(new URL(uri).pathname.slice(1)).dropCollection(WAKES);
    const { worker, ways } = listening(uri, false);
    await worker.start();
    await until('it listens', () => ways.length > 0);
    const operator = aMill(mongodb({ uri, createIndexes: false }));
    const job = await operator.enqueue('x', {});
    expect(await operator.jobs.result(job.id, { timeout: '45s' })).toBe('ran');
    expect(new Set(ways)).toEqual(new Set(['stream']));
  });

  it('wake-ups come again after the cursor of an idle instance was killed', async () => {
    const uri = freshUri();
    const { worker, ways } = listening(uri);
    await worker.start();
    await until('it listens', () => ways.length > 0);
    const database = new URL(uri).pathname.slice(1);
    const following = [
      { $currentOp: { idleCursors: true, allUsers: true } },
      { $match: { ns: `${database}.${WAKES}`, 'cursor.tailable': true } },
    ];
    const cursors = async (): Promise<readonly unknown[]> => {
      const waiting = await own.db('admin').aggregate<{ cursor: { cursorId: unknown } }>(following).toArray();
      return waiting.map(({ cursor }) => cursor.cursorId);
    };
    await until('the cursor waits', async () => (await cursors()).length === 1);
    await own.db(database).command({ killCursors: WAKES, cursors: await cursors() });
    await until('it listens again', () => ways.length > 1);
    const operator = aMill(mongodb({ uri }));
    const job = await operator.enqueue('x', {});
    expect(await operator.jobs.result(job.id, { timeout: '45s' })).toBe('ran');
  });

  it('an ordinary collection in the place of the capped one is replaced when a store is opened', async () => {
    const uri = freshUri();
    const db = own.db(new URL(uri).pathname.slice(1));
    await db.createCollection(WAKES);
    await opened(mongodb({ uri }));
    const [found] = await db.listCollections({ name: WAKES }).toArray();
    expect(found).toMatchObject({ options: { capped: true, size: 262_144 } });
  });
});
