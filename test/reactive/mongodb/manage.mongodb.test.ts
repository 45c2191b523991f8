import { ObjectId } from 'mongodb';
import { describe, expect, it } from 'vitest';
import type { Task, TasksFilter, Tidemill } from '../../../src/index.js';
import type { MongodbStore } from '../../../src/mongodb/index.js';
import { gate, rarely, until } from '../../support/mills.js';
import { statusesOf, withProbeTask } from '../probes.js';
import { thingsFixture, type Row, type ThingsFixture } from '../things-fixture.js';

const AT_ONCE = { collection: 'things', debounce: 0 } as const;
const ONCE = { type: 'fixed', interval: 1, maxAttempts: 1 } as const;

interface Failed extends ThingsFixture {
  readonly instance: Tidemill<MongodbStore>;
  /** What ran, as `task:id`. */
  readonly ran: string[];
  /** From here on nothing fails any more. */
  readonly mend: () => void;
}

/** Two tasks on six orders: `sync` fails for the odd ones with different errors, `mail` never. */
async function withFailures(): Promise<Failed> {
  const shop = thingsFixture();
  const mill = shop.mill();
  const ran: string[] = [];
  let mended = false;
  await mill.reactiveTask({
    ...AT_ONCE,
    task: 'sync',
    retryPolicy: ONCE,
    handler: ({ docId }) => {
      ran.push(`sync:${String(docId)}`);
      if (mended) return;
      if (docId === 1) throw new Error('timeout (30s) of erp.example.com');
      if (docId === 3) throw new Error('Timeout of crm');
      if (docId === 5) throw new Error('refused: a+b');
    },
  });
  await mill.reactiveTask({
    ...AT_ONCE,
    task: 'mail',
    handler: ({ docId }) => ran.push(`mail:${String(docId)}`),
  });
  await mill.start();
  await shop.docs.insertMany(
    Array.from({ length: 6 }, (_, at) => ({
      _id: at + 1,
      isVip: at < 3,
      total: at * 10,
      lines: [{ sku: `s${String(at)}`, count: at }],
    })),
  );
  await until('all have ended', async () => {
    const [failed, completed] = await Promise.all([
      mill.countReactiveTasks({ status: 'failed' }),
      mill.countReactiveTasks({ status: 'completed' }),
    ]);
    return failed === 3 && completed === 9;
  });
  return { ...shop, instance: mill, ran, mend: () => (mended = true) };
}

const idsOf = (items: readonly Task[]): string[] =>
  items.map(({ task, sourceDocId }) => `${task}:${String(sourceDocId)}`).sort();

describe('failed tasks as dead letters', () => {
  const filters: readonly (readonly [string, TasksFilter, readonly string[]])[] = [
    ['task and status', { task: 'sync', status: 'failed' }, ['sync:1', 'sync:3', 'sync:5']],
    ['a list of tasks', { task: ['mail', 'nobody'], sourceDocFilter: { _id: 1 } }, ['mail:1']],
    ['a list of statuses', { status: ['failed', 'processing'] }, ['sync:1', 'sync:3', 'sync:5']],
    ['a text of the error, taken literally', { errorMessage: 'timeout (30s) of erp.' }, ['sync:1']],
    ['another text that is no expression', { errorMessage: 'a+b' }, ['sync:5']],
    ['an expression that the error matches', { errorMessage: /^timeout/i }, ['sync:1', 'sync:3']],
    ['having an error', { hasError: true }, ['sync:1', 'sync:3', 'sync:5']],
    ['having none', { hasError: false, task: 'sync' }, ['sync:2', 'sync:4', 'sync:6']],
    ['the id of the document', { sourceDocFilter: { _id: 3 } }, ['mail:3', 'sync:3']],
    ['several ids', { task: 'sync', sourceDocFilter: { _id: { $in: [1, 2] } } }, ['sync:1', 'sync:2']],
    [
      'a field of the document',
      { task: 'sync', sourceDocFilter: { isVip: true } },
      ['sync:1', 'sync:2', 'sync:3'],
    ],
    [
      'a complex query on the document',
      {
        status: 'failed',
        sourceDocFilter: {
          $or: [
            { lines: { $elemMatch: { sku: 's2', count: { $gt: 1 } } } },
            { $expr: { $eq: ['$total', 40] } },
          ],
          isVip: { $in: [true, false] },
        },
      },
      ['sync:3', 'sync:5'],
    ],
    ['the stored _id', { _id: { task: 'sync', id: 5 } }, ['sync:5']],
    [
      'several stored _ids, and more',
      {
        _id: [
          { task: 'sync', id: 5 },
          { task: 'sync', id: 2 },
          { task: 'mail', id: 1 },
        ],
        status: 'failed',
      },
      ['sync:5'],
    ],
    ['a task that nobody knows', { task: 'nobody' }, []],
    ['an empty list', { status: [] }, []],
  ];

  it('getReactiveTasks and countReactiveTasks accept every filter', async () => {
    const { instance } = await withFailures();
    for (const [what, filter, expected] of filters) {
      const { items } = await instance.getReactiveTasks(filter);
      expect(idsOf(items), what).toEqual(expected);
      expect(await instance.countReactiveTasks(filter), what).toBe(expected.length);
      expect((await instance.tasks.find(filter, { limit: 1, total: true })).total, what).toBe(
        expected.length,
      );
    }
    expect(await instance.countReactiveTasks()).toBe(12);
  });

  it('retryReactiveTasks retries exactly the tasks that a filter matches', async () => {
    const { instance, ran, mend } = await withFailures();
    mend();
    for (const [what, filter, expected] of filters) {
      if (/having|failed|status/u.test(JSON.stringify(filter) + what) || 'errorMessage' in filter) continue;
      ran.length = 0;
      expect(await instance.retryReactiveTasks(filter), what).toEqual({ modifiedCount: expected.length });
      await until(`${what}: all ran`, () => ran.length >= expected.length);
      expect([...ran].sort(), what).toEqual(expected);
    }
    ran.length = 0;
    expect(await instance.retryReactiveTasks({ task: 'sync', status: 'failed' })).toEqual({
      modifiedCount: 0,
    });
  });

  it.each<readonly [string, TasksFilter, readonly string[]]>([
    ['status', { status: 'failed' }, ['sync:1', 'sync:3', 'sync:5']],
    ['a text of the error', { errorMessage: 'timeout (30s)' }, ['sync:1']],
    ['an expression', { errorMessage: /timeout/i }, ['sync:1', 'sync:3']],
    ['having an error', { hasError: true }, ['sync:1', 'sync:3', 'sync:5']],
    ['a query on the document', { status: 'failed', sourceDocFilter: { isVip: false } }, ['sync:5']],
  ])('retries failed tasks by %s with a fresh sequence of attempts', async (_what, filter, expected) => {
    const { instance, ran, mend, reaches } = await withFailures();
    const before = await instance.tasks.get('sync', Number(expected[0]?.slice(5)));
    mend();
    ran.length = 0;
    expect(await instance.tasks.retryMany(filter)).toEqual({ count: expected.length });
    await until('all ran', () => ran.length === expected.length);
    expect([...ran].sort()).toEqual(expected);
    const task = await reaches(instance, 'sync', before?.sourceDocId, 'completed');
    expect(task).toMatchObject({ attempts: 1 });
    expect(task.lastError).toBeUndefined();
    expect(task.firstErrorAt).toBeUndefined();
    expect(statusesOf(task)).toEqual(['failed', 'completed']);
    expect(task.updatedAt.getTime()).toBeGreaterThan(before?.updatedAt.getTime() ?? Infinity);
    expect(await instance.countReactiveTasks({ status: 'failed' })).toBe(3 - expected.length);
  });

  it('finds tasks by a regular expression on the ids of their documents', async () => {
    const { docs, mill: aMill } = thingsFixture();
    const mill = aMill();
    await mill.reactiveTask({ ...AT_ONCE, task: 't', handler: () => undefined });
    await mill.start();
    await docs.insertMany([{ _id: 'order-1' }, { _id: 'order-2' }, { _id: 'draft-1' }]);
    await until('all are there', async () => (await mill.countReactiveTasks({ status: 'completed' })) === 3);
    expect(await mill.countReactiveTasks({ sourceDocFilter: { _id: /^order-/u } })).toBe(2);
    expect(await mill.countReactiveTasks({ sourceDocFilter: { _id: 'order-1' } })).toBe(1);
    expect(await mill.countReactiveTasks({ sourceDocFilter: { _id: 'order-1', missing: 1 } })).toBe(0);
  });

  it('a process that neither defines nor runs the tasks can count and retry them', async () => {
    const { mill: aMill, ran, mend } = await withFailures();
    const manager = aMill();
    expect(await manager.countReactiveTasks({ status: 'failed' })).toBe(3);
    mend();
    ran.length = 0;
    expect(await manager.retryReactiveTasks({ status: 'failed' })).toEqual({ modifiedCount: 3 });
    await until('they ran where they are defined', () => ran.length === 3);
  });

  it('a failed task whose document is gone is still found by its id', async () => {
    const { instance, docs } = await withFailures();
    await docs.deleteOne({ _id: 1 });
    expect((await instance.tasks.get('sync', 1))?.status).toBe('failed');
    expect(await instance.countReactiveTasks({ sourceDocFilter: { _id: 1 } })).toBe(2);
    expect(await instance.countReactiveTasks({ sourceDocFilter: { isVip: true } })).toBe(4);
  });
});

describe('retryReactiveTasks', () => {
  it('retrying a running task makes it dirty, and it runs once more', async () => {
    const { docs, mill: aMill, reaches } = thingsFixture();
    const mill = aMill();
    const [started, go] = [gate(), gate()];
    let runs = 0;
    let fetched: unknown;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async ({ getDocument }) => {
        runs += 1;
        started.open();
        await go.promise;
        fetched ??= await getDocument();
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    await started.promise;
    expect(await mill.retryReactiveTasks({ task: 't' })).toEqual({ modifiedCount: 1 });
    expect((await mill.tasks.get('t', 1))?.status).toBe('processing_dirty');
    // Nothing has changed in its document, so there is nothing to skip.
    go.open();
    const task = await reaches(mill, 't', 1, 'completed');
    expect(runs).toBe(2);
    expect(fetched).toEqual({ _id: 1 });
    expect(statusesOf(task)).toEqual(['completed', 'completed']);
    expect(task.attempts).toBe(1);
  });

  it.each([
    ['an empty filter', {}],
    ['a filter without a value', { task: undefined }],
    ['an empty query', { sourceDocFilter: {} }],
    ['all with something else', { all: true, task: 't' }],
    ['all that is not true', { all: false }],
    ['a key that nobody knows', { taks: 't' }],
    ['no filter', undefined],
    ['null', null],
  ])('retryReactiveTasks rejects %s', async (_what, filter) => {
    const { mill: aMill } = thingsFixture();
    const mill = aMill();
    await expect(mill.retryReactiveTasks(filter as never)).rejects.toMatchObject({ code: 'BAD_OPTION' });
  });

  it('retryReactiveTasks with { all: true } retries every task', async () => {
    const { instance, ran, mend } = await withFailures();
    mend();
    ran.length = 0;
    expect(await instance.retryReactiveTasks({ all: true })).toEqual({ modifiedCount: 12 });
    await until('all ran', () => ran.length === 12);
    expect(new Set(ran).size).toBe(12);
  });
});

describe('getReactiveTasks', () => {
  /** Paused tasks, all planned by one statement, so that their times are equal. */
  async function manyTasks(ids: readonly Row['_id'][]): Promise<Tidemill<MongodbStore>> {
    const { docs, db, mill: aMill, planned } = thingsFixture();
    const mill = aMill();
    await withProbeTask(mill);
    for (const [task, collection] of [
      ['b', 'things'],
      ['a', 'things'],
      ['c', 'others'],
    ] as const) {
      await mill.tasks.pause(task);
      await mill.reactiveTask({ task, collection, debounce: 0, handler: () => undefined });
    }
    await docs.insertMany(ids.map((_id) => ({ _id })));
    await db.collection<Row>('others').insertMany(ids.map((_id) => ({ _id })));
    await mill.start();
    await planned();
    await until(
      'all are planned',
      async () => (await mill.tasks.count({ status: 'pending' })) === 3 * ids.length,
    );
    return mill;
  }

  const numbers = Array.from({ length: 25 }, (_, at) => at);
  const mixed: Row['_id'][] = [...numbers.slice(0, 9), ...numbers.map((at) => `id-${String(at)}`)];

  it.each([
    ['numbers, newest first', numbers, { scheduledAt: -1 }],
    ['numbers, oldest first', numbers, { createdAt: 1 }],
    ['ids of several types', mixed, { updatedAt: 1 }],
    ['object ids', numbers.map(() => new ObjectId() as never), { scheduledAt: 1 }],
  ] as const)(
    'getReactiveTasks pages by cursor in both directions without gaps or repeats: %s',
    async (_what, ids, sort) => {
      const mill = await manyTasks(ids);
      const filter = { task: ['a', 'b', 'c'] };
      const pages: Task[][] = [];
      let cursor: string | null = null;
      let last: string | null;
      do {
        const page = await mill.getReactiveTasks(filter, {
          limit: 7,
          sort,
          ...(cursor === null ? {} : { cursor }),
        });
        expect(page.previous === null).toBe(pages.length === 0);
        pages.push([...page.items]);
        cursor = page.next;
        last = page.previous;
      } while (cursor !== null);
      const forward = idsOf(pages.flat());
      expect(forward).toHaveLength(3 * ids.length);
      expect(new Set(forward).size).toBe(3 * ids.length);
      const back: Task[][] = [];
      while (last !== null) {
        const page = await mill.getReactiveTasks(filter, { limit: 7, sort, cursor: last });
        expect(page.next).not.toBeNull();
        back.unshift([...page.items]);
        last = page.previous;
      }
      expect(back).toEqual(pages.slice(0, -1));
      const [field, direction] = Object.entries(sort)[0] as ['scheduledAt', 1 | -1];
      const times = pages.flat().map((task) => task[field].getTime() * direction);
      expect(times).toEqual([...times].sort((a, b) => a - b));
    },
  );

  it('getReactiveTasks pages by skip and limit in the same order', async () => {
    const mill = await manyTasks(numbers);
    const seen: Task[] = [];
    for (let skip = 0; skip < 80; skip += 10) {
      const page = await mill.getReactiveTasks(
        { task: ['a', 'b', 'c'] },
        { limit: 10, skip, sort: { scheduledAt: -1 } },
      );
      seen.push(...page.items);
    }
    expect(new Set(idsOf(seen)).size).toBe(75);
    expect(seen).toHaveLength(75);
    const byCursor = await mill.getReactiveTasks({ task: ['a', 'b', 'c'] }, { limit: 100 });
    expect(byCursor.items).toEqual(seen);
    expect(byCursor).toMatchObject({ next: null, previous: null });
  });

  it.each([
    [{ skip: 10_001 }, /cursor/u],
    [{ skip: -1 }, /skip/u],
    [{ limit: 0 }, /limit/u],
    [{ limit: 1_001 }, /limit/u],
    [{ limit: 1.5 }, /limit/u],
    [{ sort: { attempts: 1 } }, /sort/u],
    [{ sort: { scheduledAt: 2 } }, /sort/u],
    [{ sort: { scheduledAt: 1, createdAt: 1 } }, /sort/u],
    [{ cursor: 'nonsense' }, /cursor/u],
    [{ page: 2 }, /page/u],
    [{ total: 'yes' }, /total must be true or false/u],
  ])('getReactiveTasks rejects the page options %o', async (page, message) => {
    const { mill: aMill } = thingsFixture();
    await expect(aMill().getReactiveTasks({}, page as never)).rejects.toThrow(message);
  });

  it.each([
    [{ status: 'done' }, /status/u],
    [{ task: { $ne: null } }, /task/u],
    [{ errorMessage: { $ne: null } }, /errorMessage/u],
    [{ hasError: 'yes' }, /hasError/u],
    [{ sourceDocFilter: 'x' }, /sourceDocFilter/u],
    [{ sourceDocFilter: [] }, /sourceDocFilter must be a query.*an array/u],
    [{ sourceDocFilter: { vip: undefined } }, /sourceDocFilter\.vip must be a value.*undefined/u],
    [{ name: 'x' }, /name/u],
  ])('rejects the task filter %o', async (filter, message) => {
    const { mill: aMill } = thingsFixture();
    const mill = aMill();
    for (const call of [
      () => mill.getReactiveTasks(filter as never),
      () => mill.countReactiveTasks(filter as never),
      () => mill.retryReactiveTasks(filter as never),
    ]) {
      await expect(call()).rejects.toMatchObject({
        code: 'BAD_OPTION',
        message: expect.stringMatching(message) as unknown,
      });
    }
  });

  it.each([
    [{ $eq: ['$vip', true] }, /unknown top level operator: \$eq.*put an expression into \{ \$expr/u],
    [{ vip: { $most: 1 } }, /unknown operator: \$most/u],
  ])('names sourceDocFilter as the option when MongoDB rejects %o', async (sourceDocFilter, message) => {
    const mill = await manyTasks([1]);
    for (const call of [
      () => mill.getReactiveTasks({ sourceDocFilter }),
      () => mill.countReactiveTasks({ sourceDocFilter }),
      () => mill.retryReactiveTasks({ sourceDocFilter }),
    ]) {
      const error = await call().catch((problem: unknown) => problem);
      expect(error).toMatchObject({ code: 'BAD_OPTION' });
      expect(String(error)).toMatch(/MongoDB refuses sourceDocFilter/u);
      expect(String(error)).toMatch(message);
    }
    await expect(
      mill.getReactiveTasks({
        sourceDocFilter: { $expr: { $gt: [{ $divide: [1, { $subtract: ['$_id', 1] }] }, 0] } },
      }),
    ).rejects.toMatchObject({ code: 'STORE' });
  });

  it('getReactiveTasks rejects a cursor of another sort', async () => {
    const mill = await manyTasks(numbers);
    const { next } = await mill.getReactiveTasks({}, { limit: 5 });
    await expect(
      mill.getReactiveTasks({}, { limit: 5, sort: { createdAt: 1 }, cursor: next ?? '' }),
    ).rejects.toThrow(/same sort/u);
  });

  it('getReactiveTasks returns tasks without internal fields', async () => {
    const { instance } = await withFailures();
    const { items } = await instance.getReactiveTasks({ task: 'sync', sourceDocFilter: { _id: 1 } });
    expect(items).toHaveLength(1);
    expect(Object.keys(items[0] ?? {}).sort()).toEqual(
      [
        ...['_id', 'id', 'task', 'sourceDocId', 'status', 'scheduledAt', 'initialScheduledAt', 'attempts'],
        ...['lastObservedValues', 'firstErrorAt', 'lastError', 'lastFinalizedAt', 'executionHistory'],
        ...['createdAt', 'updatedAt', 'lockedAt', 'runAt', 'error'],
      ].sort(),
    );
  });
});

describe('tasks.pause and tasks.resume', () => {
  it('pausing a task holds it back in the whole cluster until it is resumed', async () => {
    const { docs, mill: aMill, planned } = thingsFixture();
    const mills = [aMill({ pollInterval: rarely }), aMill({ pollInterval: rarely })];
    const ran: string[] = [];
    for (const mill of mills) {
      for (const task of ['held', 'free'])
        await mill.reactiveTask({ ...AT_ONCE, task, handler: () => ran.push(task) });
      await withProbeTask(mill);
      await mill.start();
    }
    await mills[0]?.tasks.pause('held');
    await docs.insertMany(Array.from({ length: 10 }, (_, _id) => ({ _id })));
    await until('the other ran', () => ran.filter((task) => task === 'free').length === 10);
    await planned();
    // An instance that has not heard of the pause claims some, and hands them back.
    await until(
      'all of the other wait',
      async () => (await mills[1]?.countReactiveTasks({ task: 'held', status: 'pending' })) === 10,
    );
    expect(ran).not.toContain('held');
    await mills[1]?.tasks.resume('held');
    await until('it went on', () => ran.filter((task) => task === 'held').length === 10);
  });

  it('pausing a task lets running attempts end and hands back prefetched ones', async () => {
    const { docs, mill: aMill, stored } = thingsFixture();
    const mill = aMill({ reactive: { concurrency: 1 } });
    const [started, go] = [gate(), gate()];
    let runs = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async () => {
        runs += 1;
        if (runs < 30) return;
        started.open();
        await go.promise;
      },
    });
    await mill.start();
    await docs.insertMany(Array.from({ length: 200 }, (_, _id) => ({ _id })));
    await started.promise;
    await mill.tasks.pause('t');
    await until('nothing is held but what runs', async () => {
      const held = await stored.countDocuments({ status: { $in: ['processing', 'processing_dirty'] } });
      return held === 1;
    });
    go.open();
    await until('it ended', async () => (await stored.countDocuments({ status: 'completed' })) === 30);
    await until(
      'the others are given back',
      async () => (await stored.countDocuments({ status: 'pending', attempts: 0 })) === 170,
    );
    expect(runs).toBe(30);
  });
});
