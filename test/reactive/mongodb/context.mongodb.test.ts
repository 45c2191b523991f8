import { Binary, Long, ObjectId, type ClientSession } from 'mongodb';
import { describe, expect, it } from 'vitest';
import { TaskConditionFailedError, type TaskContext, type Tidemill } from '../../../src/index.js';
import type { MongodbStore } from '../../../src/mongodb/index.js';
import { gate, until } from '../../support/mills.js';
import { startedUp, statusesOf, withProbeTask } from '../probes.js';
import { thingsFixture } from '../things-fixture.js';

type Context = TaskContext<Record<string, unknown>, ClientSession>;

const AT_ONCE = { collection: 'things', debounce: 0 } as const;

describe('the handler context on MongoDB', () => {
  it('a handler gets docId, task, attempt, watchedValues and a signal', async () => {
    const { docs, mill: aMill } = thingsFixture();
    const mill = aMill();
    const seen = gate<Context>();
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      watchProjection: { status: 1, total: { $add: ['$a', '$b'] } },
      handler: (context) => seen.open(context),
    });
    await mill.start();
    await docs.insertOne({ _id: 'one', status: 'paid', a: 1, b: 2, other: 'x' });
    const context = await seen.promise;
    expect(context).toMatchObject({
      docId: 'one',
      task: 't',
      attempt: 1,
      watchedValues: { _id: 'one', status: 'paid', total: 3 },
    });
    expect(context.watchedValues).not.toHaveProperty('other');
    expect(context.signal.aborted).toBe(false);
  });

  it("the methods of a handler's context can be destructured", async () => {
    const { docs, mill: aMill, reaches, client } = thingsFixture();
    const mill = aMill();
    const fetched: unknown[] = [];
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async ({ docId, attempt, getDocument, markCompleted, deferCurrent, throttleAll }) => {
        if (docId === 'later' && fetched.length < 1) {
          fetched.push(await getDocument());
          throttleAll(1);
          deferCurrent(1);
          return;
        }
        fetched.push(attempt);
        await client.withSession((session) =>
          session.withTransaction(async () => markCompleted({ session })),
        );
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 'later' });
    const task = await reaches(mill, 't', 'later', 'completed');
    expect(fetched).toEqual([{ _id: 'later' }, 1]);
    expect(statusesOf(task)).toEqual(['deferred', 'completed']);
  });

  it.each([
    ['a text', 'x'],
    ['a number', 5],
    ['a fraction', 5.5],
    ['an ObjectId', new ObjectId()],
    ['a small 64-bit integer', Long.fromNumber(5)],
    ['a large 64-bit integer', Long.fromString('9007199254740993')],
    ['a date', new Date(1)],
    ['a document with integer-like keys', { b: 1, 10: 'ten', 2: Long.fromNumber(2) }],
    ['bytes', new Binary(Buffer.from('bytes'))],
    ['a text with a dollar', '$status'],
    ['false', false],
    ['null', null],
  ])('getDocument and tasks.get find a document whose _id is %s', async (_what, id) => {
    const { docs, db, mill: aMill } = thingsFixture();
    const mill = aMill();
    const seen = gate<unknown>();
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async ({ getDocument, docId }) => {
        const document = await getDocument().catch((error: unknown) => error);
        seen.open([document, await docs.countDocuments({ _id: docId as never })]);
      },
    });
    await mill.start();
    // Not by insertOne, which replaces an _id of null.
    await db.command({ insert: 'things', documents: [{ _id: id, value: 1 }] });
    const [document, found] = (await seen.promise) as [Record<string, unknown>, number];
    expect(document).toMatchObject({ value: 1 });
    expect(found).toBe(1);
    const task = await until('it is completed', async () => {
      const one = await mill.tasks.get('t', id);
      return one?.status === 'completed' && one;
    });
    expect(await mill.countReactiveTasks({ _id: task._id })).toBe(1);
  });
});

describe('getDocument on MongoDB', () => {
  const change = {
    'is gone': async (docs) => docs.deleteOne({ _id: 1 }),
    'left the filter': async (docs) => docs.updateOne({ _id: 1 }, { $set: { status: 'cancelled' } }),
    'has other watched values': async (docs) => docs.updateOne({ _id: 1 }, { $set: { total: 2 } }),
  } satisfies Record<string, (docs: ReturnType<typeof thingsFixture>['docs']) => Promise<unknown>>;

  it.each(
    Object.entries(change).flatMap(([what, apply]) => [
      [what, 'planned', apply, true] as const,
      [what, 'fetched', apply, false] as const,
    ]),
  )(
    'getDocument skips the attempt when the document %s (before it was %s), and its return runs again',
    async (_what, _when, apply, seen) => {
      const { docs, mill: aMill, planned, reaches } = thingsFixture();
      const mill = aMill();
      const [started, go] = [gate(), gate()];
      const errors: unknown[] = [];
      const runs: unknown[] = [];
      const skipped: string[] = [];
      mill.on('task:skip', ({ task }) => skipped.push(task.task));
      await mill.reactiveTask({
        ...AT_ONCE,
        task: 't',
        filter: { status: 'paid' },
        watchProjection: { total: 1 },
        handler: async ({ getDocument }) => {
          started.open();
          await go.promise;
          try {
            runs.push(await getDocument());
          } catch (error) {
            errors.push(error);
            throw error;
          }
        },
      });
      await withProbeTask(mill);
      await mill.start();
      const original = { _id: 1, status: 'paid', total: 1 };
      await docs.insertOne(original);
      await started.promise;
      await apply(docs);
      // Whether the planner has seen it or not makes no difference.
      if (seen) await planned();
      go.open();
      await until('it was skipped', () => errors.length > 0);
      expect(errors[0]).toBeInstanceOf(TaskConditionFailedError);
      expect(errors[0]).toMatchObject({ code: 'TASK_CONDITION_FAILED' });
      const task = await reaches(mill, 't', 1, 'completed');
      expect(statusesOf(task)[0]).toBe('skipped');
      expect(task.lastError).toBeUndefined();
      await until('it was said', () => skipped.length > 0);
      await docs.replaceOne({ _id: 1 }, original, { upsert: true });
      await until('it ran for what came back', () =>
        runs.some((row) => (row as typeof original).total === 1),
      );
      expect(runs.at(-1)).toEqual(original);
    },
  );

  it('getDocument ignores changes of fields that are not watched', async () => {
    const { docs, mill: aMill, reaches } = thingsFixture();
    const mill = aMill();
    const [started, go] = [gate(), gate()];
    let fetched: unknown;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      watchProjection: { total: 1 },
      handler: async ({ getDocument }) => {
        started.open();
        await go.promise;
        fetched = await getDocument();
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1, total: 1, note: 'old' });
    await started.promise;
    await docs.updateOne({ _id: 1 }, { $set: { note: 'new' } });
    go.open();
    const task = await reaches(mill, 't', 1, 'completed');
    expect(fetched).toEqual({ _id: 1, total: 1, note: 'new' });
    expect(statusesOf(task)).toEqual(['completed']);
  });

  it('a document that left and came back while its skipped attempt was ending is handled', async () => {
    const { docs, mill: aMill, planned } = thingsFixture();
    const [worker, first, second] = [aMill(), aMill(), aMill()];
    const [started, changed, failed, end] = [gate(), gate(), gate(), gate()];
    const runs: unknown[] = [];
    const definition = { ...AT_ONCE, task: 't', watchProjection: { total: 1 } };
    await worker.reactiveTask({
      ...definition,
      handler: async ({ getDocument }) => {
        started.open();
        await changed.promise;
        try {
          runs.push(await getDocument());
        } catch (error) {
          failed.open();
          await end.promise;
          throw error;
        }
      },
    });
    for (const planner of [first, second]) {
      await planner.reactiveTask({ ...definition, handler: () => undefined });
      await withProbeTask(planner);
    }
    await worker.start({ roles: ['work'] });
    await first.start({ roles: ['plan'] });
    await docs.insertOne({ _id: 1, total: 1 });
    await started.promise;
    // No instance plans while the document is different: the next planner sees no difference.
    await first.stop();
    await docs.updateOne({ _id: 1 }, { $set: { total: 2 } });
    changed.open();
    await failed.promise;
    await docs.updateOne({ _id: 1 }, { $set: { total: 1 } });
    await second.start({ roles: ['plan'] });
    await planned();
    end.open();
    await until('the final state was handled', () => runs.length > 0);
    expect(runs).toEqual([{ _id: 1, total: 1 }]);
  });

  it.each([
    ['inclusion', { name: 1 }, { _id: 1, name: 'n' }],
    ['inclusion without the id', { name: 1, _id: 0 }, { name: 'n' }],
    ['exclusion', { big: 0 }, { _id: 1, name: 'n', nested: { a: 1, b: 2 } }],
    ['a nested path', { 'nested.a': 1 }, { _id: 1, nested: { a: 1 } }],
    ['a computed field', { sum: { $add: ['$nested.a', '$nested.b'] } }, { _id: 1, sum: 3 }],
    ['nothing', {}, { _id: 1, name: 'n', big: 'x', nested: { a: 1, b: 2 } }],
  ])('getDocument returns what the projection asks for: %s', async (_what, projection, expected) => {
    const { docs, mill: aMill } = thingsFixture();
    const mill = aMill();
    const seen = gate<unknown>();
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      watchProjection: { big: 1 },
      handler: async ({ getDocument }) => seen.open(await getDocument({ projection })),
    });
    await mill.start();
    await docs.insertOne({ _id: 1, name: 'n', big: 'x', nested: { a: 1, b: 2 } });
    expect(await seen.promise).toEqual(expected);
  });

  it('getDocument rejects an unknown option', async () => {
    const { docs, mill: aMill, reaches } = thingsFixture();
    const mill = aMill();
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      retryPolicy: { type: 'fixed', interval: 0, maxAttempts: 1 },
      handler: ({ getDocument }) => getDocument({ skip: 1 } as never),
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    expect((await reaches(mill, 't', 1, 'failed')).lastError).toMatch(/skip/u);
  });

  it('getDocument with a session reads the snapshot of its transaction', async () => {
    const { docs, db, client, mill: aMill, reaches } = thingsFixture();
    const mill = aMill();
    const fetched: unknown[] = [];
    await db.createCollection('other');
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      watchProjection: { total: 1 },
      handler: async ({ getDocument }) => {
        if (fetched.length > 0) return;
        await client.withSession(async (session) => {
          session.startTransaction({ readConcern: { level: 'snapshot' } });
          await db.collection('other').findOne({}, { session });
          await docs.updateOne({ _id: 1 }, { $set: { note: 'later', total: 2 } });
          fetched.push(await getDocument({ session }));
          fetched.push(await getDocument({ session, projection: { note: 1 } }));
          await session.abortTransaction();
        });
        fetched.push(await getDocument().catch((error: unknown) => (error as Error).name));
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1, note: 'first', total: 1 });
    await until('all were fetched', () => fetched.length === 3);
    expect(fetched).toEqual([
      { _id: 1, note: 'first', total: 1 },
      { _id: 1, note: 'first' },
      'TaskConditionFailedError',
    ]);
    await reaches(mill, 't', 1, 'completed');
  });

  it('getDocument with a session sees what its own transaction wrote', async () => {
    const { docs, client, mill: aMill, reaches } = thingsFixture();
    const mill = aMill();
    const fetched: unknown[] = [];
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      watchProjection: { total: 1 },
      handler: async ({ getDocument, markCompleted }) => {
        await client.withSession((session) =>
          session.withTransaction(async () => {
            await docs.updateOne({ _id: 1 }, { $set: { note: 'mine' } }, { session });
            fetched.push(await getDocument({ session }));
            await markCompleted({ session });
          }),
        );
      },
    });
    await startedUp(mill, 't');
    await docs.insertOne({ _id: 1, total: 1 });
    await reaches(mill, 't', 1, 'completed');
    expect(fetched).toEqual([{ _id: 1, total: 1, note: 'mine' }]);
  });

  it.each([
    ['the whole document', undefined],
    ['computed from the whole document', { size: { $bsonSize: '$$ROOT' }, whole: '$$ROOT' }],
    ['inclusions in another order than stored', { long: 1, 10: 1, b: 1, text: 1 }],
    ['computed fields, without the id', { _id: 0, sum: { $add: ['$b', '$c'] }, now: '$date' }],
    ['a nested path', { 'nested.2': 1 }],
    ['a missing field', { missing: 1 }],
  ])('the server compares snapshots exactly, whatever they hold: %s', async (_what, watchProjection) => {
    const { docs, mill: aMill, planned, reaches } = thingsFixture();
    const mill = aMill();
    const runs: unknown[] = [];
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      ...(watchProjection === undefined ? {} : { watchProjection }),
      handler: async ({ getDocument }) => runs.push(await getDocument()),
    });
    await withProbeTask(mill);
    await mill.start();
    const nested = new Map<string, unknown>([
      ['b', 1],
      ['10', 'ten'],
      ['2', Long.fromString('9007199254740993')],
    ]);
    const row = new Map<string, unknown>([
      ['_id', 1],
      ['b', 1],
      ['c', 2.5],
      ['10', 'ten'],
      ['2', 'two'],
      ['long', Long.fromString('9007199254740993')],
      ['small', Long.fromNumber(7)],
      ['text', '$b'],
      ['date', new Date(5)],
      ['none', null],
      ['bytes', new Binary(Buffer.from([1, 2]))],
      ['nested', nested],
      ['list', [nested, { $literal: 1 }]],
    ]);
    await docs.insertOne(row as never);
    const task = await reaches(mill, 't', 1, 'completed');
    expect(statusesOf(task)).toEqual(['completed']);
    expect(runs).toHaveLength(1);
    // Written once more as it is: nothing happens.
    await docs.replaceOne({ _id: 1 }, row);
    await planned();
    expect((await mill.tasks.get('t', 1))?.status).toBe('completed');
    expect(runs).toHaveLength(1);
  });

  it('concurrent calls of getDocument share one query per claim', async () => {
    const { docs, stored, mill: aMill } = thingsFixture();
    const count = 20;
    const mill = aMill({ reactive: { concurrency: count } });
    const fetched: unknown[] = [];
    const [all, tokens] = [gate(), new Set<unknown>()];
    let waiting = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async ({ getDocument, docId }) => {
        waiting += 1;
        if (waiting === count) {
          for (const row of await stored.find().toArray()) tokens.add(row['leaseToken']);
          await stored.db.command({ profile: 2 });
          all.open();
        }
        await all.promise;
        fetched.push((await getDocument())['_id'] === docId);
      },
    });
    // All are planned before the first claim, so that few claims take them.
    await mill.tasks.pause('t');
    await mill.start();
    await docs.insertMany(Array.from({ length: count }, (_, _id) => ({ _id, value: _id })));
    await until('all are planned', async () => (await stored.countDocuments()) === count);
    await mill.tasks.resume('t');
    await until('all were fetched', () => fetched.length === count);
    await stored.db.command({ profile: 0 });
    const queries = await stored.db.collection('system.profile').countDocuments({
      'command.pipeline.1.$lookup.let.snapshot': { $exists: true },
    });
    expect(fetched).toEqual(Array.from({ length: count }, () => true));
    expect(queries).toBe(tokens.size);
    expect(queries).toBeLessThan(count / 4);
  });
});

describe('a task whose document no longer matches when it is claimed', () => {
  /** Plans one document, and stops planning: later changes of it are not planned. */
  async function planAndChange(
    apply: (docs: ReturnType<typeof thingsFixture>['docs']) => Promise<unknown>,
  ): Promise<{ runs: unknown[]; worker: Tidemill<MongodbStore>; shop: ReturnType<typeof thingsFixture> }> {
    const shop = thingsFixture();
    const [planner, worker] = [shop.mill(), shop.mill()];
    const runs: unknown[] = [];
    for (const mill of [planner, worker]) {
      await mill.reactiveTask({
        ...AT_ONCE,
        task: 't',
        filter: { status: 'paid' },
        handler: ({ docId }) => runs.push(docId),
      });
    }
    await planner.start({ roles: ['plan'] });
    await shop.docs.insertOne({ _id: 1, status: 'paid' });
    await shop.reaches(planner, 't', 1, 'pending');
    await planner.stop();
    await apply(shop.docs);
    return { runs, worker, shop };
  }

  it.each([
    ['deleted', (docs: ReturnType<typeof thingsFixture>['docs']) => docs.deleteOne({ _id: 1 })],
    [
      'changed so that it left the filter',
      (docs: ReturnType<typeof thingsFixture>['docs']) =>
        docs.updateOne({ _id: 1 }, { $set: { status: 'cancelled' } }),
    ],
  ])('skips a claimed task without calling its handler if its document was %s', async (_what, apply) => {
    const { runs, worker, shop } = await planAndChange(apply);
    await worker.start({ roles: ['work'] });
    const task = await shop.reaches(worker, 't', 1, 'completed');
    expect(statusesOf(task)).toEqual(['skipped']);
    expect(task.lastSuccess).toBeUndefined();
    expect(runs).toEqual([]);
    await worker.stop();
    // Its last state was not handled: when it returns unchanged, it runs.
    await worker.start();
    await shop.docs.replaceOne({ _id: 1 }, { status: 'paid' }, { upsert: true });
    await until('it ran', () => runs.length > 0);
    expect(runs).toEqual([1]);
  });
});
