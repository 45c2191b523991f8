import { Binary, Decimal128, Long, MaxKey, MinKey, ObjectId, Timestamp, UUID, type Document } from 'mongodb';
import { describe, expect, it } from 'vitest';
import type { ReactiveTaskDefinition, Tidemill, TidemillOptions } from '../../src/index.js';
import { mongodb, type MongodbStore } from '../../src/mongodb/index.js';
import { aMill, gate, until } from '../support/mills.js';
import { freshUri, rawClient } from '../support/stores.js';
import { spawnInstance } from './instances.js';
import { collect, globalsOf, Handled, keepLines } from './mills.js';

const fast: Partial<TidemillOptions> = { pollInterval: { min: 10, max: 200 } };

interface Doc {
  readonly _id: number;
  readonly amount: number;
  readonly dueAt?: Date;
}

const amounts = (from: number, to: number): Doc[] =>
  Array.from({ length: to - from }, (_, n) => ({ _id: from + n, amount: from + n }));

/** A mill with the task `pay` on `docs`; what it handled is noted as (id, amount). */
async function aPayer(
  store: MongodbStore,
  handled: Handled,
  definition: Partial<ReactiveTaskDefinition<Doc>> = {},
  options: Partial<TidemillOptions> = {},
): Promise<Tidemill> {
  const mill = aMill(store, { ...fast, ...options });
  await mill.reactiveTask<Doc>({
    task: 'pay',
    collection: 'docs',
    debounce: 0,
    handler: async ({ docId, getDocument }) => {
      handled.note(docId, (await getDocument()).amount);
    },
    ...definition,
  });
  return mill;
}

const ids = (handled: Handled): number[] => handled.runs.map(({ id }) => Number(id)).sort((a, b) => a - b);
const count = (n: number, from = 0): number[] => Array.from({ length: n }, (_, index) => from + index);

/** When every request made so far has been served. */
async function reconciled(client: ReturnType<typeof rawClient>, times: number, task = 'pay'): Promise<void> {
  await until(`${task} was reconciled ${String(times)} times`, async () => {
    const state = (await globalsOf(client).findOne({ _id: `task:${task}` }))?.['state'] as
      Document | undefined;
    return Number(state?.['done'] ?? 0) >= times;
  });
}

describe('the first registration', () => {
  it('runs for every document that was there before, once', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    await client.db().collection<Doc>('docs').insertMany(amounts(0, 2_500));
    const handled = new Handled();
    const mill = await aPayer(mongodb({ uri }), handled, {
      filter: { amount: { $gte: 500 } },
      concurrency: 50,
    });
    const completed = collect(mill, 'reconcile:complete');
    await mill.start();
    await until('all were handled', () => handled.runs.length >= 2_000);
    await until('it has ended', () => completed.length > 0);
    expect(ids(handled)).toEqual(count(2_000, 500));
    expect(completed).toMatchObject([{ tasks: ['pay'], collection: 'docs', processed: 2_500 }]);
  });

  it('is the only one: a restart looks at nothing again', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    await client.db().collection<Doc>('docs').insertMany(amounts(0, 10));
    const handled = new Handled();
    const first = await aPayer(mongodb({ uri }), handled);
    await first.start();
    await until('all were handled', () => handled.runs.length >= 10);
    await reconciled(client, 1);
    await first.stop();
    const second = await aPayer(mongodb({ uri }), handled);
    const started = collect(second, 'reconcile:start');
    await second.start();
    await client.db().collection<Doc>('docs').insertOne({ _id: 10, amount: 10 });
    await until('the new one was handled', () => handled.times(10) === 1);
    expect(started).toEqual([]);
    expect(ids(handled)).toEqual(count(11));
  });

  it('visits ids of every type', async () => {
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
      ...amounts(100, 1_200).map(({ _id }) => _id),
      ...count(1_100).map((n) => `text-${String(n)}`),
      ...count(1_100).map(() => new ObjectId()),
    ];
    const all = [...odd, ...many];
    await client
      .db()
      .collection('docs')
      .insertMany(all.map((_id) => ({ _id, amount: 1 })) as never[]);
    const mill = aMill(mongodb({ uri }), fast);
    let runs = 0;
    await mill.reactiveTask({
      task: 'pay',
      collection: 'docs',
      debounce: 0,
      concurrency: 50,
      handler: () => void (runs += 1),
    });
    await mill.start();
    await reconciled(client, 1);
    const tasks = client.db().collection('docs_tasks');
    expect(await tasks.countDocuments()).toBe(all.length);
    await until('all were handled', () => runs >= all.length);
    // And all of them are found again when their documents are gone.
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

describe('a changed trigger', () => {
  it('that is wider runs for what it takes in now, and for nothing else', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    await client.db().collection<Doc>('docs').insertMany(amounts(0, 100));
    const handled = new Handled();
    const narrow = await aPayer(mongodb({ uri }), handled, { filter: { amount: { $gte: 60 } } });
    await narrow.start();
    await until('the first were handled', () => handled.runs.length >= 40);
    await reconciled(client, 1);
    await narrow.stop();
    const wide = await aPayer(mongodb({ uri }), handled, { filter: { amount: { $gte: 30 } } });
    const { length: before } = handled.runs;
    await wide.start();
    await reconciled(client, 2);
    await until('the others were handled', () => handled.runs.length >= 70);
    expect(before).toBe(40);
    expect(ids(handled)).toEqual(count(70, 30));
  });

  it('that is narrower skips what waits, without its handler', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    await client.db().collection<Doc>('docs').insertMany(amounts(0, 20));
    const handled = new Handled();
    const wide = await aPayer(mongodb({ uri }), handled, { filter: { amount: { $gte: 0 } } });
    await wide.tasks.pause('pay');
    await wide.start();
    await until('all are planned', async () => (await wide.countReactiveTasks({ status: 'pending' })) === 20);
    await reconciled(client, 1);
    await wide.stop();
    const narrow = await aPayer(mongodb({ uri }), handled, { filter: { amount: { $gte: 15 } } });
    const skipped = collect(narrow, 'task:skip');
    await narrow.start();
    await reconciled(client, 2);
    await narrow.tasks.resume('pay');
    await until('none waits', async () => (await narrow.countReactiveTasks({ status: 'completed' })) === 20);
    expect(ids(handled)).toEqual(count(5, 15));
    expect(skipped).toHaveLength(15);
    const [task] = (await narrow.getReactiveTasks({ sourceDocFilter: { _id: 3 } })).items;
    expect(task?.executionHistory?.map(({ status }) => status)).toEqual(['skipped']);
  });

  it('looks at nothing where the definition says so', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    await client.db().collection<Doc>('docs').insertMany(amounts(0, 20));
    const handled = new Handled();
    const narrow = await aPayer(mongodb({ uri }), handled, { filter: { amount: { $gte: 15 } } });
    await narrow.start();
    await until('the first were handled', () => handled.runs.length >= 5);
    await reconciled(client, 1);
    await narrow.stop();
    const wide = await aPayer(mongodb({ uri }), handled, {
      filter: { amount: { $gte: 10 } },
      evolution: { reconcileOnTriggerChange: false },
    });
    const started = collect(wide, 'reconcile:start');
    await wide.start();
    await client
      .db()
      .collection<Doc>('docs')
      .updateOne({ _id: 10 }, { $inc: { amount: 1 } });
    await until('the changed one was handled', () => handled.times(10) === 1);
    expect(started).toEqual([]);
    expect(ids(handled)).toEqual([10, ...count(5, 15)]);
  });
});

describe('on demand', () => {
  it('brings back records that were deleted by hand, and runs nothing else', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    await client.db().collection<Doc>('docs').insertMany(amounts(0, 30));
    const handled = new Handled();
    const mill = await aPayer(mongodb({ uri }), handled);
    await mill.start();
    await until('all were handled', () => handled.runs.length >= 30);
    await reconciled(client, 1);
    await until(
      'all are settled',
      async () => (await mill.countReactiveTasks({ status: 'completed' })) === 30,
    );
    await client
      .db()
      .collection('docs_tasks')
      .deleteMany({ sourceDocId: { $lt: 10 } });
    expect(await mill.tasks.reconcile('pay')).toEqual({ tasks: ['pay'] });
    await reconciled(client, 2);
    await until('they ran again', () => handled.runs.length >= 40);
    expect(ids(handled)).toEqual([...count(10), ...count(30)].sort((a, b) => a - b));
  });

  it('may be asked for as soon as the mill has started', async () => {
    const uri = freshUri();
    const mill = await aPayer(mongodb({ uri }), new Handled());
    await mill.start();
    expect(await mill.tasks.reconcile('pay')).toEqual({ tasks: ['pay'] });
    await expect(mill.tasks.reconcile('other')).rejects.toThrow('other');
  });

  it('looks at all tasks where none is named, in one pass per collection', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    await client.db().collection<Doc>('docs').insertMany(amounts(0, 5));
    const mill = aMill(mongodb({ uri }), fast);
    for (const [task, collection] of [
      ['a', 'docs'],
      ['b', 'docs'],
      ['c', 'others'],
    ] as const)
      await mill.reactiveTask({ task, collection, debounce: 0, handler: () => undefined });
    const completed = collect(mill, 'reconcile:complete');
    await mill.start();
    for (const task of ['a', 'b', 'c']) await reconciled(client, 1, task);
    const { length: before } = completed;
    expect([...(await mill.tasks.reconcile()).tasks].sort()).toEqual(['a', 'b', 'c']);
    for (const task of ['a', 'b', 'c']) await reconciled(client, 2, task);
    await until('both passes have ended', () => completed.length >= before + 2);
    const passes = completed.slice(before).map(({ tasks }) => [...tasks].sort().join());
    expect(passes.sort()).toEqual(['a,b', 'c']);
  });
});

describe('now and then', () => {
  it.each([
    ['every', 300],
    ['by a CRON', 'CRON * * * * * *'],
  ] as const)('finds %s what comes to match by time alone', async (_, reconcileEvery) => {
    const uri = freshUri();
    const client = rawClient(uri);
    const handled = new Handled();
    const mill = await aPayer(mongodb({ uri }), handled, {
      filter: { $expr: { $lte: ['$dueAt', '$$NOW'] } },
      reconcileEvery,
    });
    await mill.start();
    await reconciled(client, 1);
    const now = Date.now();
    await client
      .db()
      .collection<Doc>('docs')
      .insertMany([
        { _id: 1, amount: 1, dueAt: new Date(now + 1_500) },
        { _id: 2, amount: 1, dueAt: new Date(now + 3_600_000) },
      ]);
    await until('it was handled when its time came', () => handled.times(1) === 1);
    expect(Date.now() - now).toBeGreaterThanOrEqual(1_400);
    expect(ids(handled)).toEqual([1]);
  });

  it('does not ask the database again and again while a pass takes longer than its interval', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    await client.db().collection<Doc>('docs').insertMany(amounts(0, 3_000));
    const monitored = rawClient(uri.replace('?', '?monitorCommands=true&'));
    let reads = 0;
    monitored.on('commandStarted', ({ command }) => {
      if (command['find'] === '_tidemill_globals' && (command['filter'] as Document)['kind'] === 'definition')
        reads += 1;
    });
    const mill = await aPayer(
      mongodb({ client: monitored }),
      new Handled(),
      { reconcileEvery: 100, filter: { amount: -1 } },
      { reactive: { reconcileRate: 1_000 } },
    );
    await mill.start();
    await reconciled(client, 1);
    const before = reads;
    await reconciled(client, 2);
    expect(reads - before).toBeLessThan(20);
  });
});

describe('the way of a pass', () => {
  it('goes on from its checkpoint where its leader is killed', async () => {
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
    // What was planned already is not looked at again: without its records it would show.
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

  it('begins anew where another task joins', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    await client
      .db()
      .collection('docs')
      .insertMany(count(6_000).map((n) => ({ _id: n, version: 1 })) as never[]);
    const first = await aPayer(mongodb({ uri }), new Handled(), {}, { reactive: { reconcileRate: 500 } });
    await first.start({ roles: ['plan'] });
    await until('a checkpoint is kept', async () => {
      const row = await globalsOf(client).findOne({ _id: 'checkpoint:.docs' });
      return row?.['checkpoint'] instanceof Object;
    });
    await first.stop();
    const second = await aPayer(mongodb({ uri }), new Handled());
    await second.reactiveTask({ task: 'more', collection: 'docs', handler: () => undefined });
    const completed = collect(second, 'reconcile:complete');
    await second.start({ roles: ['plan'] });
    await until('both are reconciled', () => completed.length > 0);
    expect(completed.map(({ tasks, processed }) => ({ tasks: [...tasks].sort(), processed }))).toEqual([
      { tasks: ['more', 'pay'], processed: 6_000 },
    ]);
    for (const task of ['more', 'pay']) expect(await second.countReactiveTasks({ task })).toBe(6_000);
  });

  it('keeps to its rate, and tells how far it has come', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    await client.db().collection<Doc>('docs').insertMany(amounts(0, 7_000));
    const { logger, lines } = keepLines();
    const mill = await aPayer(
      mongodb({ uri }),
      new Handled(),
      { filter: { amount: -1 } },
      {
        logger,
        reactive: { reconcileRate: 1_000 },
      },
    );
    const [started, progress, completed] = [
      collect(mill, 'reconcile:start'),
      collect(mill, 'reconcile:progress'),
      collect(mill, 'reconcile:complete'),
    ];
    await mill.start();
    await until('it has begun', () => started.length > 0);
    const began = performance.now();
    await until('it has ended', () => completed.length > 0);
    expect(performance.now() - began).toBeGreaterThan(5_500);
    expect(progress.length).toBeGreaterThan(0);
    expect(progress[0]).toMatchObject({ tasks: ['pay'], collection: 'docs' });
    expect(progress[0]!.processed).toBeGreaterThan(0);
    expect(progress[0]!.processed).toBeLessThan(7_000);
    expect(lines.some(({ text }) => /\d+ documents so far/u.test(text))).toBe(true);
  });

  it('loses and doubles nothing beside live writes', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    const docs = client.db().collection<Doc>('docs');
    await docs.insertMany(amounts(0, 1_500));
    const handled = new Handled();
    const mill = await aPayer(
      mongodb({ uri }),
      handled,
      { debounce: 0 },
      { reactive: { concurrency: 50, reconcileRate: 1_000 } },
    );
    const completed = collect(mill, 'reconcile:complete');
    await mill.start();
    let written = 0;
    for (let n = 0; completed.length === 0; n = (n + 37) % 1_500) {
      await docs.updateOne({ _id: n }, { $inc: { amount: 100_000 } });
      written += 1;
    }
    let left: string[] = [];
    await until(
      () =>
        `the last state of every document was handled; missing: ${left.slice(0, 10).join()} of ${String(left.length)}`,
      async () => {
        const last = new Map(handled.runs.map(({ id, version }) => [id, version]));
        const all = await docs.find().toArray();
        left = all
          .filter(({ _id, amount }) => last.get(String(_id)) !== amount)
          .map(({ _id }) => String(_id));
        return left.length === 0;
      },
      60_000,
    );
    expect(written).toBeGreaterThan(0);
    const states = handled.runs.map(({ id, version }) => `${id}@${String(version)}`);
    expect(states.length - new Set(states).size).toBe(0);
  }, 90_000);

  it('does not hold up the tasks that are due meanwhile, nor the start', async () => {
    const uri = freshUri();
    const client = rawClient(uri);
    await client.db().collection<Doc>('docs').insertMany(amounts(0, 5_000));
    const handled = new Handled();
    const mill = await aPayer(
      mongodb({ uri }),
      handled,
      { filter: { amount: { $gte: 10_000 } } },
      // So slow that it cannot end before the test does.
      { reactive: { reconcileRate: 50 } },
    );
    const completed = collect(mill, 'reconcile:complete');
    const started = gate();
    mill.on('reconcile:start', () => started.open());
    await mill.start();
    await started.promise;
    await client.db().collection<Doc>('docs').insertOne({ _id: 10_000, amount: 10_000 });
    await until('the new one was handled', () => handled.times(10_000) === 1);
    expect(completed).toEqual([]);
  });
});
