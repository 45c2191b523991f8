import {
  Binary,
  Decimal128,
  Long,
  MaxKey,
  MinKey,
  ObjectId,
  Timestamp,
  UUID,
  type Document,
  type MongoClient,
} from 'mongodb';
import { describe, expect, it } from 'vitest';
import type { TidemillOptions } from '../../../src/index.js';
import { mongodb } from '../../../src/mongodb/index.js';
import { aMill, until } from '../../support/mills.js';
import { freshUri, rawClient } from '../../support/stores.js';
import { spawnInstance } from '../instances.js';
import { globalsOf } from '../mills.js';

const fast: Partial<TidemillOptions> = { pollInterval: { min: 10, max: 200 } };

const count = (n: number, from = 0): number[] => Array.from({ length: n }, (_, index) => from + index);

/** Waits until every request made so far has been served. */
async function reconciled(client: MongoClient, times: number): Promise<void> {
  await until(`it was reconciled ${String(times)} times`, async () => {
    const state = (await globalsOf(client).findOne({ _id: 'task:pay' }))?.['state'] as Document | undefined;
    return Number(state?.['done'] ?? 0) >= times;
  });
}

describe('the first registration on MongoDB', () => {
  it('the first reconciliation visits ids of every type', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    const odd: unknown[] = [
      new MinKey(),
      null,
      -0.5,
      1,
      Long.fromString('9007199254740993'),
      Decimal128.fromString('1.10'),
      Infinity,
      NaN,
      '',
      'text',
      '$field',
      { a: 1, b: { c: 'x' } },
      {},
      new Binary(Buffer.from([1, 2, 3])),
      new UUID(),
      new ObjectId(),
      false,
      true,
      new Date(0),
      new Date(-1),
      new Timestamp({ t: 1, i: 2 }),
      new MaxKey(),
    ];
    // More than one page, so that a page ends in each of the types.
    const many = [
      ...count(1_100, 100),
      ...count(1_100).map((n) => `text-${String(n)}`),
      ...count(1_100).map(() => new ObjectId()),
    ];
    const all = [...odd, ...many];
    await client
      .db()
      .collection('docs')
      .insertMany(all.map((_id) => ({ _id, amount: 1 })) as never[]);
    const mill = aMill(mongodb({ uri }), { ...fast, reactive: { concurrency: 50 } });
    let runs = 0;
    await mill.reactiveTask({
      task: 'pay',
      collection: 'docs',
      debounce: 0,
      handler: () => void (runs += 1),
    });
    await mill.start();
    await reconciled(client, 1);
    const tasks = client.db().collection('docs_tasks');
    expect(await tasks.countDocuments()).toBe(all.length);
    await until('all were handled', () => runs >= all.length);
    // All of them are found again when their documents are gone.
    await mill.stop();
    await client.db().collection('docs').deleteMany({});
    await client
      .db()
      .collection('_tidemill_globals')
      .updateOne({ _id: 'planner' as never }, { $set: { tokens: {} } });
    const second = aMill(mongodb({ uri }), fast);
    await second.reactiveTask({
      task: 'pay',
      collection: 'docs',
      debounce: 0,
      handler: () => void (runs += 1),
    });
    await second.start();
    await until('every task is known to have lost its document', async () => {
      return (await tasks.countDocuments({ matched: true })) === 0;
    });
    expect(runs).toBe(all.length);
  });
});

describe('periodic reconciliation on MongoDB', () => {
  it('does not poll definitions while a pass takes longer than its interval', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    await client
      .db()
      .collection('docs')
      .insertMany(count(3_000).map((n) => ({ _id: n, amount: n })) as never[]);
    const monitored = rawClient(uri.replace('?', '?monitorCommands=true&'));
    let reads = 0;
    monitored.on('commandStarted', ({ command }) => {
      if (command['find'] === '_tidemill_globals' && (command['filter'] as Document)['kind'] === 'definition')
        reads += 1;
    });
    const mill = aMill(mongodb({ client: monitored }), { ...fast, reactive: { reconcileRate: 1_000 } });
    await mill.reactiveTask({
      task: 'pay',
      collection: 'docs',
      reconcileEvery: 100,
      filter: { amount: -1 },
      handler: () => undefined,
    });
    await mill.start();
    await reconciled(client, 1);
    const before = reads;
    await reconciled(client, 2);
    expect(reads - before).toBeLessThan(20);
  });
});

describe('checkpoints of a reconciliation on MongoDB', () => {
  it('a new leader continues a reconciliation from the checkpoint of a killed one', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    await client
      .db()
      .collection('docs')
      .insertMany(count(8_000).map((n) => ({ _id: n, version: 1 })) as never[]);
    await using first = spawnInstance({ uri, rate: 500, roles: ['plan'] });
    const kept = await until('a checkpoint is kept', async () => {
      const row = await globalsOf(client).findOne({ _id: 'checkpoint:.docs' });
      const checkpoint = row?.['checkpoint'] as { processed: number } | undefined;
      return checkpoint !== undefined && checkpoint.processed >= 2_000 && checkpoint;
    });
    await first.kill();
    const planned = await client.db().collection('docs_tasks').countDocuments();
    expect(planned).toBeLessThan(8_000);
    // What was planned already is not visited again; deleting its tasks makes this visible.
    await client
      .db()
      .collection('docs_tasks')
      .deleteMany({ sourceDocId: { $lt: 1_000 } });
    await using second = spawnInstance({ uri, roles: ['plan'] });
    const said = await second.heard('reconcile:complete');
    expect(said['processed']).toBe(8_000);
    const left = await client.db().collection('docs_tasks').countDocuments();
    expect(left).toBe(7_000);
    expect(kept.processed).toBeGreaterThanOrEqual(2_000);
    expect((await globalsOf(client).findOne({ _id: 'checkpoint:.docs' }))?.['checkpoint']).toBeNull();
  });
});
