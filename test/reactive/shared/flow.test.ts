import { expect, it } from 'vitest';
import { gate, rarely, until } from '../../support/mills.js';
import { statusesOf, withProbeTask } from '../probes.js';
import { eachPlanner, type TestDatabase } from './test-databases.js';

const AT_ONCE = { collection: 'things', debounce: 0 } as const;
const ONCE = { type: 'fixed', interval: '1h', maxAttempts: 1 } as const;
const HOUR_MS = 3_600_000;

/** The database's clock is known to a few milliseconds only, and a test takes its time. */
const inAnHour = (at: Date | undefined): boolean =>
  Math.abs((at?.getTime() ?? 0) - Date.now() - HOUR_MS) < 600_000;

eachPlanner('deferCurrent', (aDatabase) => {
  it('deferCurrent uses no attempt and keeps the time at which the task was first due', async () => {
    const { docs, raw, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    const attempts: number[] = [];
    const deferred: Date[] = [];
    mill.on('task:defer', ({ runAt }) => deferred.push(runAt));
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: ({ attempt, deferCurrent }) => {
        attempts.push(attempt);
        if (attempts.length < 4) deferCurrent(20);
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    const first = await until('it is planned', async () => (await raw('t', 1)) ?? false);
    const task = await reaches(mill, 't', 1, 'completed');
    expect(attempts).toEqual([1, 1, 1, 1]);
    expect(task.attempts).toBe(1);
    expect(statusesOf(task)).toEqual(['deferred', 'deferred', 'deferred', 'completed']);
    expect(deferred).toHaveLength(3);
    expect(task.initialScheduledAt).toEqual(first['initialScheduledAt']);
    expect(task.scheduledAt.getTime()).toBeGreaterThan(task.initialScheduledAt.getTime());
    expect(task.updatedAt).toEqual(first['updatedAt']);
  });

  it.each([
    ['milliseconds', HOUR_MS],
    ['a text', '1h'],
    ['a date', new Date(Date.now() + HOUR_MS)],
  ])('deferCurrent accepts %s', async (_what, delay) => {
    const { docs, mill: aMill } = await aDatabase();
    const mill = aMill();
    await mill.reactiveTask({ ...AT_ONCE, task: 't', handler: ({ deferCurrent }) => deferCurrent(delay) });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    const task = await until('it is deferred', async () => {
      const found = await mill.tasks.get('t', 1);
      return statusesOf(found).length > 0 && found;
    });
    expect(task).toMatchObject({ status: 'pending', attempts: 0 });
    expect(inAnHour(task.scheduledAt)).toBe(true);
    expect(task.lastFinalizedAt).toBeUndefined();
  });

  it('deferCurrent followed by a throw is a failure', async () => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      retryPolicy: ONCE,
      handler: ({ deferCurrent }) => {
        deferCurrent('1h');
        throw new Error('after all');
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    const task = await reaches(mill, 't', 1, 'failed');
    expect(task).toMatchObject({ attempts: 1, lastError: 'after all' });
    expect(statusesOf(task)).toEqual(['failed']);
  });

  it.each([-1, 'soon', Number.NaN, new Date(Number.NaN)])('deferCurrent rejects %s', async (delay) => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      retryPolicy: ONCE,
      handler: ({ deferCurrent }) => deferCurrent(delay),
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    expect((await reaches(mill, 't', 1, 'failed')).lastError).toMatch(/deferCurrent/u);
  });

  it.each([
    ['the deferral', 0, '1h'],
    ['the debounce of the change', '1h', 10],
  ] as const)(
    'keeps the later due time if the document changed before deferCurrent: %s',
    async (_what, debounce, delay) => {
      const { docs, makeDue, raw, mill: aMill, reaches } = await aDatabase();
      const mill = aMill();
      const [started, go] = [gate(), gate()];
      await mill.reactiveTask({
        ...AT_ONCE,
        debounce,
        task: 't',
        handler: async ({ deferCurrent }) => {
          started.open();
          await go.promise;
          deferCurrent(delay);
        },
      });
      await mill.start();
      await docs.insertOne({ _id: 1, n: 1 });
      await until('it is planned', async () => (await raw('t', 1)) !== undefined);
      await makeDue('t');
      await mill.retryReactiveTasks({ task: 't' });
      await started.promise;
      await docs.updateOne({ _id: 1 }, { $set: { n: 2 } });
      // The retry makes it dirty as well if it was running already: what counts is the change.
      await until('the change is planned', async () => {
        const values = (await raw('t', 1))?.['lastObservedValues'] as { n?: number } | undefined;
        return values?.n === 2;
      });
      go.open();
      const task = await reaches(mill, 't', 1, 'pending');
      expect(inAnHour(task.scheduledAt)).toBe(true);
      expect(task.attempts).toBe(0);
      expect(task.lastObservedValues).toMatchObject({ n: 2 });
    },
  );

  it('a deferral holds although the document changes afterwards', async () => {
    const { docs, mill: aMill, planned } = await aDatabase();
    const mill = aMill();
    let runs = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: ({ deferCurrent }) => {
        runs += 1;
        deferCurrent('1h');
      },
    });
    await withProbeTask(mill);
    await mill.start();
    await docs.insertOne({ _id: 1, n: 1 });
    const before = await until('it is deferred', async () => {
      const found = await mill.tasks.get('t', 1);
      return statusesOf(found).length > 0 && found;
    });
    await docs.updateOne({ _id: 1 }, { $set: { n: 2 } });
    await planned();
    const task = await mill.tasks.get('t', 1);
    expect(task).toMatchObject({ status: 'pending', lastObservedValues: { n: 2 } });
    expect(task?.scheduledAt).toEqual(before.scheduledAt);
    expect(task?.initialScheduledAt).toEqual(before.initialScheduledAt);
    expect(runs).toBe(1);
    // A manual retry runs it at once.
    await mill.retryReactiveTasks({ task: 't' });
    await until('it ran', () => runs === 2);
  });

  it('deferred and dirty tasks run again without waiting for the poll', async () => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill({ pollInterval: rarely });
    const [started, go] = [gate<number>(), gate()];
    const seen: unknown[] = [];
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async ({ watchedValues, deferCurrent }) => {
        seen.push(watchedValues['n']);
        if (seen.length === 1) {
          started.open(performance.now());
          await go.promise;
        } else if (seen.length === 2) deferCurrent(50);
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1, n: 1 });
    const startedAt = await started.promise;
    await docs.updateOne({ _id: 1 }, { $set: { n: 2 } });
    await reaches(mill, 't', 1, 'processing_dirty');
    // What a shorter run leaves behind is left to the poll, which is brisk at first.
    await until('it has run for a while', () => performance.now() - startedAt > 200);
    go.open();
    await until('all have run', () => seen.length === 3);
    expect(seen).toEqual([1, 2, 2]);
  });
});

eachPlanner('throttleAll', (aDatabase) => {
  it('throttleAll holds back its task on this instance only, not running ones, even after a throw', async () => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const [a, b] = [aMill({ instanceId: 'a' }), aMill({ instanceId: 'b' })];
    const [both, throttled, end] = [gate(), gate(), gate()];
    const ran: string[] = [];
    let running = 0;
    await a.reactiveTask({
      ...AT_ONCE,
      task: 't',
      retryPolicy: ONCE,
      handler: async ({ docId, throttleAll }) => {
        ran.push('a');
        running += 1;
        if (running === 2) both.open();
        await both.promise;
        if (docId === 1) {
          throttleAll('1h');
          throttled.open();
          throw new Error('the service is down');
        }
        await end.promise;
      },
    });
    await a.start();
    await docs.insertMany([{ _id: 1 }, { _id: 2 }]);
    await throttled.promise;
    const failed = await reaches(a, 't', 1, 'failed');
    expect(failed.lastError).toBe('the service is down');
    await docs.insertMany(Array.from({ length: 20 }, (_, at) => ({ _id: 10 + at })));
    await b.reactiveTask({ ...AT_ONCE, task: 't', retryPolicy: ONCE, handler: () => ran.push('b') });
    await b.start();
    await until('the other instance ran them', () => ran.filter((one) => one === 'b').length === 20);
    end.open();
    const other = await reaches(a, 't', 2, 'completed');
    expect(other.attempts).toBe(1);
    expect(ran.filter((one) => one === 'a')).toHaveLength(2);
  });

  it('throttleAll hands back prefetched tasks', async () => {
    const { docs, mill: aMill, count } = await aDatabase();
    const mill = aMill({ reactive: { concurrency: 1 } });
    const ran: unknown[] = [];
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: ({ docId, throttleAll }) => {
        if (ran.push(docId) === 30) throttleAll('1h');
      },
    });
    await mill.start();
    await docs.insertMany(Array.from({ length: 100 }, (_, _id) => ({ _id })));
    await until('all that was held is given back', async () => {
      const pending = await count({ status: 'pending', attempts: 0 });
      return pending === 70 && (await count({ status: 'completed' })) === 30;
    });
    expect(ran).toHaveLength(30);
  });

  it('throttleAll ends by itself', async () => {
    const { docs, mill: aMill } = await aDatabase();
    const mill = aMill({ reactive: { concurrency: 1 } });
    const ran: unknown[] = [];
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: ({ docId, throttleAll }) => {
        if (ran.push(docId) === 30) throttleAll(300);
      },
    });
    await mill.start();
    await docs.insertMany(Array.from({ length: 100 }, (_, _id) => ({ _id })));
    await until('the rest ran', () => ran.length === 100);
    expect(new Set(ran).size).toBe(100);
  });

  it('throttleAll does not affect other tasks', async () => {
    const { docs, mill: aMill } = await aDatabase();
    const mill = aMill();
    const ran: string[] = [];
    for (const task of ['slow', 'brisk']) {
      await mill.reactiveTask({
        ...AT_ONCE,
        task,
        handler: ({ throttleAll }) => {
          ran.push(task);
          if (task === 'slow') throttleAll('1h');
        },
      });
    }
    await mill.start();
    await docs.insertOne({ _id: 0 });
    await until('it is throttled', () => ran.includes('slow'));
    await docs.insertMany(Array.from({ length: 10 }, (_, at) => ({ _id: at + 1 })));
    await until('the other ran', () => ran.filter((task) => task === 'brisk').length === 11);
    expect(ran.filter((task) => task === 'slow')).toHaveLength(1);
  });

  it('the longest of several throttleAll calls counts', async () => {
    const { docs, mill: aMill, planned, reaches } = await aDatabase();
    const mill = aMill();
    let runs = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: ({ throttleAll }) => {
        runs += 1;
        throttleAll('1h');
        throttleAll(1);
        throttleAll('1h', { scope: 'cluster' });
        throttleAll(1, { scope: 'cluster' });
      },
    });
    await withProbeTask(mill);
    await mill.start();
    await docs.insertOne({ _id: 1 });
    await until('it ran', () => runs === 1);
    await docs.insertOne({ _id: 2 });
    await planned();
    await planned();
    // What a claim under way took goes back.
    await reaches(mill, 't', 2, 'pending');
    expect(runs).toBe(1);
  });

  /** One of two instances throttles the cluster; then fifty more documents come. Returns when each run began. */
  const heldCluster = async ({ docs, mill: aMill, planned, paused }: TestDatabase, heldMs: number) => {
    const ran: number[] = [];
    for (const instanceId of ['a', 'b']) {
      const mill = aMill({ instanceId });
      await mill.reactiveTask({
        ...AT_ONCE,
        task: 't',
        handler: ({ docId, throttleAll }) => {
          ran.push(performance.now());
          if (docId === 0) throttleAll(heldMs, { scope: 'cluster' });
        },
      });
      await withProbeTask(mill);
      await mill.start();
    }
    await docs.insertOne({ _id: 0 });
    const isOver = (): boolean => performance.now() - (ran[0] ?? Infinity) > heldMs;
    await until('the pause is known', async () => (await paused()).has('t') || isOver());
    await docs.insertMany(Array.from({ length: 50 }, (_, at) => ({ _id: at + 1 })));
    await planned();
    return ran;
  };

  it('throttleAll with scope cluster holds back the task on all instances', async () => {
    const database = await aDatabase();
    const ran = await heldCluster(database, HOUR_MS);
    // An instance that has not heard of the pause claims some, and hands them back.
    await until(
      'all of them wait',
      async () => (await database.count({ task: 't', status: 'pending' })) === 50,
    );
    expect(ran).toHaveLength(1);
  });

  it('throttleAll with scope cluster ends by itself', async () => {
    const HELD_MS = 1_500;
    const ran = await heldCluster(await aDatabase(), HELD_MS);
    await until('all have run', () => ran.length === 51);
    // By the database's clock, which the process only estimates.
    expect((ran[1] ?? 0) - (ran[0] ?? 0)).toBeGreaterThan(HELD_MS / 2);
  });

  it('throttleAll with scope cluster does not end a manual pause', async () => {
    const { docs, mill: aMill, planned } = await aDatabase();
    const mill = aMill();
    const [started, go, ended] = [gate(), gate(), gate()];
    let runs = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async ({ throttleAll }) => {
        runs += 1;
        started.open();
        await go.promise;
        throttleAll(1, { scope: 'cluster' });
        ended.open();
      },
    });
    await withProbeTask(mill);
    await mill.start();
    await docs.insertOne({ _id: 1 });
    await started.promise;
    await mill.tasks.pause('t');
    go.open();
    await ended.promise;
    await docs.insertOne({ _id: 2 });
    await planned();
    await planned();
    expect(runs).toBe(1);
    await mill.tasks.resume('t');
    await until('it goes on', () => runs === 2);
  });

  it('throttleAll rejects an unknown scope and holds back nothing', async () => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      retryPolicy: ONCE,
      handler: ({ throttleAll }) => throttleAll('1h', { scope: 'world' } as never),
    });
    await mill.start();
    await docs.insertMany([{ _id: 1 }, { _id: 2 }]);
    expect((await reaches(mill, 't', 1, 'failed')).lastError).toMatch(/scope/u);
    await reaches(mill, 't', 2, 'failed');
  });
});
