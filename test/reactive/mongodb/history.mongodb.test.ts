import { startMongo, type MongoServer } from '@tidemill/servers';
import type { Document, MongoClient } from 'mongodb';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Tidemill, TidemillOptions } from '../../../src/index.js';
import { mongodb, type MongodbStore } from '../../../src/mongodb/index.js';
import { aMill, until } from '../../support/mills.js';
import { freshUri, rawClient } from '../../support/stores.js';
import { spawnInstance } from '../instances.js';
import { collect, globalsOf, Handled, keepLines, type Versioned } from '../mills.js';

const fast: Partial<TidemillOptions> = { pollInterval: { min: 10, max: 200 } };

/** A mill with one task that records which version of each document it handled. */
async function aSync(
  store: MongodbStore,
  handled: Handled,
  options: Partial<TidemillOptions> = {},
  definition: { database?: string; task?: string } = {},
): Promise<Tidemill> {
  const mill = aMill(store, { ...fast, ...options });
  await mill.reactiveTask<Versioned>({
    task: 'sync',
    collection: 'docs',
    debounce: 0,
    ...definition,
    handler: async ({ docId, getDocument }) => {
      const { version } = await getDocument();
      handled.note(docId, version);
    },
  });
  return mill;
}

async function allHandled(client: MongoClient, handled: Handled, database?: string): Promise<void> {
  let missing: string[] = [];
  await until('every final state was handled', async () => {
    missing = await handled.missing(client, 'docs', database);
    return missing.length === 0;
  }).catch((error: unknown) => {
    throw new Error(`${String(error)}; missing: ${missing.slice(0, 10).join(', ')}`);
  });
}

const insertDocs = (client: MongoClient, from: number, to: number, database?: string): Promise<unknown> =>
  client
    .db(database)
    .collection<{ _id: number; version: number }>('docs')
    .insertMany(Array.from({ length: to - from }, (_, n) => ({ _id: from + n, version: 1 })));

const changeAll = (client: MongoClient, database?: string): Promise<unknown> =>
  client
    .db(database)
    .collection<Versioned>('docs')
    .updateMany({}, { $inc: { version: 1 } });

async function firstOfOplog(client: MongoClient): Promise<number> {
  const [first] = await client
    .db('local')
    .collection('oplog.rs')
    .find()
    .sort({ $natural: 1 })
    .limit(1)
    .toArray();
  return (first!['ts'] as { t: number }).t;
}

/** Bulky writes until this moment has left the oplog. */
async function rollOver(client: MongoClient): Promise<void> {
  const now = ((await client.db('admin').command({ hello: 1 }))['$clusterTime'] as Document)[
    'clusterTime'
  ] as { t: number };
  const filler = client.db('filler').collection('bulk');
  const bulk = (): Document[] => Array.from({ length: 40 }, () => ({ text: 'x'.repeat(100_000) }));
  await until('the oplog has rolled over', async () => {
    await filler.insertMany(bulk());
    return (await firstOfOplog(client)) > now.t + 1;
  });
  await filler.drop();
}

const tokenOf = async (client: MongoClient): Promise<unknown> =>
  ((await globalsOf(client).findOne({ _id: 'planner' }))?.['tokens'] as Document | undefined)?.[' '];

describe('a short oplog', () => {
  let server: MongoServer;
  beforeAll(async () => {
    server = await startMongo({ oplogMb: 8 });
  });
  afterAll(() => server.stop());

  it('handles every final state after the oplog rolled over while no instance was planning', async () => {
    const uri = freshUri(server.uri);
    const client = rawClient(uri);
    const docs = client.db().collection<{ _id: number; version: number }>('docs');
    const handled = new Handled();
    const before = await aSync(mongodb({ uri }), handled);
    await before.start();
    await insertDocs(client, 0, 300);
    await allHandled(client, handled);
    await before.stop();
    const dead = await tokenOf(client);

    await docs.updateMany({ _id: { $lt: 150 } }, { $inc: { version: 1 } });
    await docs.deleteMany({ _id: { $gte: 280 } });
    await insertDocs(client, 300, 350);
    await rollOver(client);

    const { logger, lines } = keepLines();
    const mill = await aSync(mongodb({ uri }), handled, { logger });
    const lost = collect(mill, 'history:lost');
    const errors = collect(mill, 'error');
    const completed = collect(mill, 'reconcile:complete');
    const loading = new AbortController();
    const load = (async () => {
      for (let n = 0; !loading.signal.aborted; n = (n + 7) % 280)
        await docs.updateOne({ _id: n }, { $inc: { version: 1 } });
    })();
    try {
      await mill.start();
      await until('everything was looked at again', () => completed.length > 0);
    } finally {
      loading.abort();
      await load;
    }
    await allHandled(client, handled);
    expect(lost).toEqual([
      { reason: expect.any(String) as string, tasks: ['sync'], instanceId: mill.instanceId },
    ]);
    expect(mill.health().historyLost).toBe(1);
    const reported = lines.filter(({ level, text }) => level === 'error' && text.includes('sync'));
    // The real server's own words: ChangeStreamHistoryLost.
    expect(reported.map(({ fields }) => fields)).toMatchObject([{ error: { cause: { code: 286 } } }]);
    expect(errors).toEqual([]);
    // Documents that changed neither while no instance planned nor under load were not run again.
    const runs = handled.runs.filter(({ version }) => version === 1).length;
    expect(runs).toBe(350);
    const alive = await until(
      'the dead resume point is gone',
      async () => (await tokenOf(client)) ?? undefined,
    );
    expect(alive).not.toEqual(dead);
    await mill.stop();

    const after = await aSync(mongodb({ uri }), handled);
    const lostAgain = collect(after, 'history:lost');
    await docs.updateMany({}, { $inc: { version: 1 } });
    await after.start();
    await allHandled(client, handled);
    expect(lostAgain).toEqual([]);
  });

  it('handles every final state after the oplog rolled over while the leader was frozen', async () => {
    const uri = freshUri(server.uri);
    const client = rawClient(uri);
    const docs = client.db().collection<{ _id: number; version: number }>('docs');
    await using leader = spawnInstance({ uri, leaseMs: 120_000 });
    await leader.heard('leader:gained');
    await insertDocs(client, 0, 100);
    await until('the first versions were handled', () => leader.handled.runs.length >= 100);
    leader.child.kill('SIGSTOP');
    await docs.updateMany({ _id: { $lt: 50 } }, { $inc: { version: 1 } });
    await rollOver(client);
    leader.child.kill('SIGCONT');
    await leader.heard('history:lost');
    await allHandled(client, leader.handled);
    await docs.updateMany({}, { $inc: { version: 1 } });
    await allHandled(client, leader.handled);
    expect(leader.events('history:lost')).toHaveLength(1);
  });
});

describe('an unusable resume point', () => {
  const NONSENSE = { _data: 'nonsense' };

  /** A database whose planner stopped at this resume point, with changes that came after it. */
  async function stoppedAt(token: (client: MongoClient) => Promise<unknown>) {
    const uri = freshUri();
    const client = rawClient(uri);
    const handled = new Handled();
    const before = await aSync(mongodb({ uri }), handled);
    await before.start();
    await insertDocs(client, 0, 20);
    await allHandled(client, handled);
    await before.stop();
    await changeAll(client);
    await globalsOf(client).updateOne({ _id: 'planner' }, { $set: { 'tokens. ': await token(client) } });
    return { uri, client, handled };
  }

  async function spoiled(token: (client: MongoClient) => Promise<unknown>): Promise<void> {
    const { uri, client, handled } = await stoppedAt(token);
    const mill = await aSync(mongodb({ uri }), handled);
    const lost = collect(mill, 'history:lost');
    await mill.start();
    // Some resume points turn out to be unusable only when something comes after them.
    await insertDocs(client, 20, 21);
    await allHandled(client, handled);
    expect(lost.map(({ tasks }) => tasks)).toEqual([['sync']]);
    await changeAll(client);
    await allHandled(client, handled);
    expect(lost).toHaveLength(1);
  }

  it('discards a resume point of another stream (error 280) and reconciles', () =>
    spoiled(async (client) => {
      const stream = client.db('elsewhere').watch();
      const next = stream.next();
      await until('the stream is open', () => (stream.resumeToken ?? null) !== null);
      await client.db('elsewhere').collection('other').insertOne({});
      const { _id: token } = await next;
      await stream.close();
      // Detected only when a later change is read.
      await client.db().collection('other').insertOne({});
      const tried = client.db().watch([], { startAfter: token });
      await expect(tried.next()).rejects.toMatchObject({ code: 280 });
      await tried.close();
      return token;
    }));

  it('discards a malformed resume point and reconciles', () => spoiled(() => Promise.resolve(NONSENSE)));

  it('retries the request to reconcile after an unusable resume point if it fails at first', async () => {
    const { uri, client, handled } = await stoppedAt(() => Promise.resolve(NONSENSE));
    const store = mongodb({ uri });
    const { planner } = store.reactive;
    const request = planner.request.bind(planner);
    let refusals = 1;
    Object.assign(planner, {
      request: (...args: Parameters<typeof request>) =>
        (refusals -= 1) >= 0 ? Promise.reject(new Error('no answer')) : request(...args),
    });
    const mill = await aSync(store, handled);
    await mill.start();
    await allHandled(client, handled);
    expect(refusals).toBeLessThan(0);
  });
});

describe('a change stream that breaks', () => {
  it('continues after the database of the source was dropped', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    const database = `${client.options.dbName}_source`;
    const handled = new Handled();
    const mill = await aSync(mongodb({ uri }), handled, {}, { database });
    const lost = collect(mill, 'history:lost');
    await mill.start();
    await insertDocs(client, 0, 20, database);
    await allHandled(client, handled, database);
    await client.db(database).dropDatabase();
    await insertDocs(client, 10, 40, database);
    await changeAll(client, database);
    await allHandled(client, handled, database);
    expect(lost).toEqual([]);
    await client.db(database).dropDatabase();
  });

  it('continues after its own database was dropped', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    const handled = new Handled();
    // The next renewal notices the loss.
    const mill = await aSync(mongodb({ uri }), handled, { leaseDuration: '3s' });
    await mill.start();
    await insertDocs(client, 0, 20);
    await allHandled(client, handled);
    await client.db().dropDatabase();
    await insertDocs(client, 10, 40);
    await changeAll(client);
    await allHandled(client, handled);
  });

  it('continues after its cursor was killed', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    const handled = new Handled();
    const mill = await aSync(mongodb({ uri }), handled);
    const lost = collect(mill, 'history:lost');
    await mill.start();
    await insertDocs(client, 0, 20);
    await allHandled(client, handled);
    let killed = 0;
    for (let n = 20; n < 26; n += 1) {
      killed += await killStreams(client);
      await insertDocs(client, n, n + 1);
      await allHandled(client, handled);
    }
    expect(killed).toBeGreaterThan(0);
    expect(lost).toEqual([]);
  });

  it('loses no change that waits in one database while the feed of another one opens', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    const database = `${client.options.dbName}_source`;
    const handled = new Handled();
    const both = async (store: MongodbStore): Promise<Tidemill> => {
      const mill = await aSync(store, handled, {}, { task: 'here' });
      await mill.reactiveTask({
        task: 'there',
        collection: 'docs',
        database,
        debounce: 0,
        handler: () => undefined,
      });
      return mill;
    };
    const before = await both(mongodb({ uri }));
    const reconciled = collect(before, 'reconcile:complete');
    await before.start();
    await insertDocs(client, 0, 20);
    await allHandled(client, handled);
    await until('both were looked at', () => reconciled.length >= 2);
    await before.stop();
    await changeAll(client);
    const store = mongodb({ uri });
    const { planning } = store.reactive;
    const openFeed = planning.openFeed.bind(planning);
    Object.assign(planning, {
      openFeed: async (...args: Parameters<typeof openFeed>) => {
        if (args[0].database === database) await new Promise((resolve) => setTimeout(resolve, 500));
        return openFeed(...args);
      },
    });
    const mill = await both(store);
    await mill.start();
    await allHandled(client, handled);
    await client.db(database).dropDatabase();
  });
});

/** Kills the cursors of every change stream on this client's database. */
async function killStreams(client: MongoClient): Promise<number> {
  const admin = client.db('admin');
  const operations = await admin
    .aggregate([
      { $currentOp: { allUsers: true, idleCursors: true } },
      {
        $match: {
          ns: new RegExp(`^${client.options.dbName}\\.\\$cmd\\.aggregate`, 'u'),
          'cursor.cursorId': { $exists: true },
        },
      },
    ])
    .toArray();
  const cursors = operations.map((one) => (one['cursor'] as Document)['cursorId'] as never);
  if (cursors.length > 0) await client.db().command({ killCursors: '$cmd.aggregate', cursors });
  return cursors.length;
}
