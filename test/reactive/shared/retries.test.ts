import { expect, it } from 'vitest';
import {
  FatalError,
  type ReactiveTaskDefinition,
  type TaskContext,
  type Tidemill,
} from '../../../src/index.js';
import { gate, until } from '../../support/mills.js';
import { statusesOf, withProbeTask } from '../probes.js';
import { eachPlanner, type TestDatabase } from './test-databases.js';

const AT_ONCE = { collection: 'things', debounce: 0 } as const;
const HOUR_MS = 3_600_000;

type Policy = NonNullable<ReactiveTaskDefinition['retryPolicy']>;

/** Fails one document until it has failed for good, or until `successAt`; records the chosen delays. */
async function failing(
  aDatabase: () => Promise<TestDatabase>,
  policy: Policy | undefined,
  successAt = Infinity,
) {
  const database = await aDatabase();
  const mill = database.mill();
  const attempts: number[] = [];
  const runAts: Date[] = [];
  const fails: boolean[] = [];
  mill.on('task:retry', ({ runAt }) => runAts.push(runAt));
  mill.on('task:fail', ({ willRetry }) => fails.push(willRetry));
  await mill.reactiveTask({
    ...AT_ONCE,
    task: 't',
    executionHistoryLimit: 100,
    ...(policy === undefined ? {} : { retryPolicy: policy }),
    handler: ({ attempt }) => {
      attempts.push(attempt);
      if (attempts.length < successAt) throw new Error(`failure ${String(attempts.length)}`);
    },
  });
  await mill.start();
  await database.docs.insertOne({ _id: 1, n: 1 });
  return { ...database, instance: mill, attempts, runAts, fails };
}

eachPlanner('retries of tasks', (aDatabase) => {
  it.each([
    ['fixed', { type: 'fixed', interval: 30, maxAttempts: 4 }, [30, 30, 30]],
    ['linear', { type: 'linear', interval: '20ms', maxAttempts: 4 }, [20, 40, 60]],
    ['exponential', { type: 'exponential', min: 10, max: 50, factor: 3, maxAttempts: 5 }, [10, 30, 50, 50]],
    ['series', { type: 'series', intervals: [10, '20ms'], maxAttempts: 5 }, [10, 20, 20, 20]],
  ] as const)('retries a failed task by its %s policy', async (_type, policy, delays) => {
    const { instance, attempts, runAts, fails, reaches } = await failing(aDatabase, policy);
    const task = await reaches(instance, 't', 1, 'failed');
    // Events follow the record.
    await until('the last one was said', () => fails.length === delays.length + 1);
    const ends = (task.executionHistory ?? []).map((entry) => entry.finishedAt.getTime());
    expect(runAts.map((at, index) => at.getTime() - (ends[index] ?? 0))).toEqual(delays);
    expect(attempts).toEqual(Array.from({ length: delays.length + 1 }, (_, at) => at + 1));
    expect(fails).toEqual([...delays.map(() => true), false]);
  });

  it('does not retry a failed task before its time', async () => {
    const policy = { type: 'fixed', interval: '1s', maxAttempts: 2 } as const;
    const { instance, reaches } = await failing(aDatabase, policy);
    const [first, second] = (await reaches(instance, 't', 1, 'failed')).executionHistory ?? [];
    // By the database's clock, which the process only estimates.
    expect((second?.startedAt.getTime() ?? 0) - (first?.finishedAt.getTime() ?? 0)).toBeGreaterThan(500);
  });

  it('retries a failed task by its cron policy', async () => {
    const policy = { type: 'cron', expression: '* * * * * *', maxAttempts: 3 } as const;
    const { instance, runAts, reaches } = await failing(aDatabase, policy);
    await reaches(instance, 't', 1, 'failed');
    expect(runAts.map((at) => at.getMilliseconds())).toEqual([0, 0]);
    expect(new Set(runAts.map(Number)).size).toBe(2);
  });

  it('a task has five attempts if its policy does not say', async () => {
    const { instance, attempts, reaches } = await failing(aDatabase, { type: 'fixed', interval: 1 });
    const task = await reaches(instance, 't', 1, 'failed');
    expect(attempts).toEqual([1, 2, 3, 4, 5]);
    expect(task).toMatchObject({ attempts: 5, lastError: 'failure 5' });
  });

  it('a task without a policy waits ten seconds before its first retry', async () => {
    const { instance, runAts } = await failing(aDatabase, undefined);
    await until('it has failed once', () => runAts.length === 1);
    const task = await instance.tasks.get('t', 1);
    const ended = task?.executionHistory?.[0]?.finishedAt.getTime() ?? 0;
    expect((task?.scheduledAt.getTime() ?? 0) - ended).toBe(10_000);
    expect(task).toMatchObject({ status: 'pending', attempts: 1, lastError: 'failure 1' });
  });

  it('a task with maxAttempts -1 is retried without a limit', async () => {
    const policy = { type: 'fixed', interval: 1, maxAttempts: -1 } as const;
    const { instance, attempts, reaches } = await failing(aDatabase, policy, 20);
    const task = await reaches(instance, 't', 1, 'completed');
    expect(attempts).toHaveLength(20);
    expect(task.attempts).toBe(20);
    expect(task.firstErrorAt).toBeUndefined();
    expect(task.lastError).toBeUndefined();
  });

  it('a policy with maxDuration alone does not limit the attempts', async () => {
    const policy = { type: 'fixed', interval: 1, maxDuration: '1h' } as const;
    const { instance, attempts, reaches } = await failing(aDatabase, policy, 8);
    await reaches(instance, 't', 1, 'completed');
    expect(attempts).toHaveLength(8);
  });

  it('retries a failed task until maxDuration after its first failure', async () => {
    const policy = { type: 'fixed', interval: 20, maxDuration: 500 } as const;
    const { instance, reaches } = await failing(aDatabase, policy);
    const task = await reaches(instance, 't', 1, 'failed');
    const history = task.executionHistory ?? [];
    expect(task.firstErrorAt).toEqual(history[0]?.finishedAt);
    const since = (at: number): number =>
      (history.at(at)?.finishedAt.getTime() ?? 0) - (task.firstErrorAt?.getTime() ?? 0);
    expect(since(-1)).toBeGreaterThan(500);
    expect(since(-2)).toBeLessThanOrEqual(500);
  });

  it('a success resets maxDuration', async () => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    let runs = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      retryPolicy: { type: 'fixed', interval: 10, maxDuration: 300, resetRetriesOnDataChange: false },
      handler: ({ watchedValues }) => {
        runs += 1;
        if (runs === 1 || runs === 3) throw new Error(`failure for ${String(watchedValues['n'])}`);
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1, n: 1 });
    const first = await reaches(mill, 't', 1, 'completed');
    await new Promise((resolve) => setTimeout(resolve, 400));
    await docs.updateOne({ _id: 1 }, { $set: { n: 2 } });
    await until('it ran twice more', () => runs === 4);
    const task = await reaches(mill, 't', 1, 'completed');
    expect(statusesOf(first)).toEqual(['failed', 'completed']);
    expect(task.executionHistory?.map(({ attempt, status }) => [attempt, status])).toEqual([
      [1, 'failed'],
      [2, 'completed'],
      [1, 'failed'],
      [2, 'completed'],
    ]);
  });

  it('does not retry a task after a FatalError', async () => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: () => {
        throw new FatalError('pointless');
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    const task = await reaches(mill, 't', 1, 'failed');
    expect(task).toMatchObject({ attempts: 1, lastError: 'pointless' });
  });

  it.each([
    ['milliseconds', HOUR_MS],
    ['a text', '1h'],
    ['a date', new Date(Date.now() + HOUR_MS)],
  ])('retries a task when its error says so: retryAfter as %s', async (_what, retryAfter) => {
    const { docs, mill: aMill } = await aDatabase();
    const mill = aMill();
    const retried = gate<Date>();
    mill.on('task:retry', ({ runAt }) => retried.open(runAt));
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: () => {
        throw Object.assign(new Error('429'), { retryAfter });
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    const left = (await retried.promise).getTime() - Date.now();
    expect(Math.abs(left - HOUR_MS)).toBeLessThan(600_000);
  });

  it('keeps the message as lastError, and the stack in the history', async () => {
    const { instance, reaches } = await failing(aDatabase, { type: 'fixed', interval: 1, maxAttempts: 1 });
    const task = await reaches(instance, 't', 1, 'failed');
    expect(task.lastError).toBe('failure 1');
    expect(task.executionHistory).toMatchObject([
      { attempt: 1, status: 'failed', error: { name: 'Error', message: 'failure 1' } },
    ]);
    expect(task.executionHistory?.[0]?.error?.stack).toMatch(/retries\.test/u);
    expect(task.executionHistory?.[0]?.instanceId).toBe(instance.instanceId);
    expect(task.lastFinalizedAt).toBeInstanceOf(Date);
  });

  it.each([
    ['a text', 'plain', 'plain'],
    ['an object', { code: 5 }, '{"code":5}'],
    ['undefined', undefined, 'not an Error'],
    ['an error with $ in its message', new Error('$status $$NOW'), '$status $$NOW'],
    ['an error whose message is no text', Object.assign(new Error(), { message: { a: 1 } }), 'object'],
  ])('records any thrown value as lastError: %s', async (_what, thrown, message) => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      retryPolicy: { type: 'fixed', interval: 1, maxAttempts: 1 },
      handler: () => {
        throw thrown as Error;
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    expect((await reaches(mill, 't', 1, 'failed')).lastError).toContain(message);
  });

  it('lastSuccess says when a task last succeeded and how long that took', async () => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      retryPolicy: { type: 'fixed', interval: 1, maxAttempts: 1 },
      handler: async ({ watchedValues }) => {
        if (watchedValues['n'] === 2) throw new Error('later');
        await new Promise((resolve) => setTimeout(resolve, 60));
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1, n: 1 });
    const { lastSuccess, updatedAt } = await reaches(mill, 't', 1, 'completed');
    expect(lastSuccess?.durationMs).toBeGreaterThanOrEqual(50);
    expect(lastSuccess?.at.getTime()).toBeGreaterThanOrEqual(updatedAt.getTime());
    await docs.updateOne({ _id: 1 }, { $set: { n: 2 } });
    const failed = await reaches(mill, 't', 1, 'failed');
    expect(failed.lastSuccess).toEqual(lastSuccess);
  });

  it.each([
    [undefined, [4, 5, 6, 7, 8]],
    [2, [7, 8]],
    [0, []],
  ])('keeps as much history as executionHistoryLimit says: %s', async (limit, kept) => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      ...(limit === undefined ? {} : { executionHistoryLimit: limit }),
      retryPolicy: { type: 'fixed', interval: 1, maxAttempts: 8 },
      handler: () => {
        throw new Error('again');
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    const task = await reaches(mill, 't', 1, 'failed');
    expect((task.executionHistory ?? []).map((entry) => entry.attempt)).toEqual(kept);
    expect(task).toMatchObject({ lastError: 'again', attempts: 8 });
  });

  it('updatedAt moves only with watched values, not with claims, retries, deferrals or the end', async () => {
    const { docs, raw, mill: aMill, reaches, planned } = await aDatabase();
    const mill = aMill();
    let runs = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      watchProjection: { n: 1 },
      retryPolicy: { type: 'fixed', interval: 5 },
      handler: ({ deferCurrent }) => {
        runs += 1;
        if (runs === 1) throw new Error('once');
        if (runs === 2) deferCurrent(5);
      },
    });
    await withProbeTask(mill);
    await mill.start();
    await docs.insertOne({ _id: 1, n: 1 });
    const planning = await until('it is planned', async () => (await raw('t', 1)) ?? false);
    const task = await reaches(mill, 't', 1, 'completed');
    expect(statusesOf(task)).toEqual(['failed', 'deferred', 'completed']);
    expect(task.updatedAt).toEqual(planning['updatedAt']);
    await docs.updateOne({ _id: 1 }, { $set: { other: 1 } });
    await planned();
    expect((await raw('t', 1))?.['updatedAt']).toEqual(planning['updatedAt']);
    await docs.updateOne({ _id: 1 }, { $set: { n: 2 } });
    await until(
      'the change was planned',
      async () => Number((await raw('t', 1))?.['updatedAt']) > Number(task.updatedAt),
    );
  });
});

/** A document that changes during the first run of its task, which ends only after that. */
async function changedMeanwhile(
  { docs, mill: aMill, reaches }: TestDatabase,
  definition: Partial<ReactiveTaskDefinition>,
  handler: (context: TaskContext) => unknown,
): Promise<Tidemill> {
  const mill = aMill();
  const [started, go] = [gate(), gate()];
  await mill.reactiveTask({
    ...AT_ONCE,
    task: 't',
    ...definition,
    handler: async (context) => {
      started.open();
      await go.promise;
      await handler(context);
    },
  });
  await mill.start();
  await docs.insertOne({ _id: 1, n: 1 });
  await started.promise;
  await docs.updateOne({ _id: 1 }, { $set: { n: 2 } });
  await reaches(mill, 't', 1, 'processing_dirty');
  go.open();
  return mill;
}

/** Defines a task that always fails, and returns the numbers of its attempts. */
async function failingTask(mill: Tidemill, retryPolicy: Policy): Promise<number[]> {
  const attempts: number[] = [];
  await mill.reactiveTask({
    ...AT_ONCE,
    task: 't',
    retryPolicy,
    handler: ({ attempt }) => {
      attempts.push(attempt);
      throw new Error('no');
    },
  });
  return attempts;
}

eachPlanner('changes between the attempts of a task', (aDatabase) => {
  it.each([
    ['waits for its retry', '1h', 5, 'pending'],
    ['has failed', 1, 1, 'failed'],
  ] as const)(
    'a change restarts the attempts by default of a task that %s',
    async (_what, interval, max, status) => {
      const { docs, mill: aMill, reaches } = await aDatabase();
      const mill = aMill();
      const attempts: number[] = [];
      await mill.reactiveTask({
        ...AT_ONCE,
        task: 't',
        retryPolicy: { type: 'fixed', interval, maxAttempts: max },
        handler: ({ attempt, watchedValues }) => {
          attempts.push(attempt);
          if (watchedValues['n'] === 1) throw new Error('not yet');
        },
      });
      await mill.start();
      await docs.insertOne({ _id: 1, n: 1 });
      await until('it has failed', async () => {
        const task = await mill.tasks.get('t', 1);
        return task?.status === status && task.lastError === 'not yet';
      });
      await docs.updateOne({ _id: 1 }, { $set: { n: 2 } });
      const task = await reaches(mill, 't', 1, 'completed');
      expect(attempts).toEqual([1, 1]);
      expect(task.attempts).toBe(1);
    },
  );

  it('resetRetriesOnDataChange: false keeps attempts, first failure and delay', async () => {
    const { docs, mill: aMill, planned } = await aDatabase();
    const mill = aMill();
    const attempts = await failingTask(mill, {
      type: 'fixed',
      interval: '1h',
      maxAttempts: 2,
      resetRetriesOnDataChange: false,
    });
    await withProbeTask(mill);
    await mill.start();
    await docs.insertOne({ _id: 1, n: 1 });
    const before = await until('it has failed once', async () => {
      const task = await mill.tasks.get('t', 1);
      return task?.lastError === 'no' && task;
    });
    await docs.updateOne({ _id: 1 }, { $set: { n: 2 } });
    await planned();
    const task = await mill.tasks.get('t', 1);
    expect(task).toMatchObject({ status: 'pending', attempts: 1, lastObservedValues: { n: 2 } });
    expect(task?.scheduledAt).toEqual(before.scheduledAt);
    expect(task?.firstErrorAt).toEqual(before.firstErrorAt);
    expect(attempts).toEqual([1]);
  });

  it('resetRetriesOnDataChange: false gives a failed task one more attempt per change', async () => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    const attempts = await failingTask(mill, {
      type: 'fixed',
      interval: 1,
      maxAttempts: 2,
      resetRetriesOnDataChange: false,
    });
    await mill.start();
    await docs.insertOne({ _id: 1, n: 1 });
    const failed = await reaches(mill, 't', 1, 'failed');
    await docs.updateOne({ _id: 1 }, { $set: { n: 2 } });
    await until('it ran once more', () => attempts.length === 3);
    const task = await reaches(mill, 't', 1, 'failed');
    expect(attempts).toEqual([1, 2, 3]);
    expect(task.firstErrorAt).toEqual(failed.firstErrorAt);
  });

  const KEEPING = { type: 'fixed', interval: 1, maxAttempts: 2 } as const;

  it('resetRetriesOnDataChange: false counts the attempt during which the document changed', async () => {
    const database = await aDatabase();
    const attempts: number[] = [];
    const retryPolicy = { ...KEEPING, resetRetriesOnDataChange: false };
    const mill = await changedMeanwhile(database, { retryPolicy }, ({ attempt }) => {
      attempts.push(attempt);
      throw new Error('no');
    });
    await database.reaches(mill, 't', 1, 'failed');
    expect(attempts).toEqual([1, 2]);
  });

  it.each([true, false])(
    'a change during a successful run leads to attempt 1 (resetRetriesOnDataChange: %s)',
    async (resetRetriesOnDataChange) => {
      const database = await aDatabase();
      const attempts: number[] = [];
      const retryPolicy = { ...KEEPING, resetRetriesOnDataChange };
      const mill = await changedMeanwhile(database, { retryPolicy }, ({ attempt }) => attempts.push(attempt));
      await database.reaches(mill, 't', 1, 'completed');
      expect(attempts).toEqual([1, 1]);
    },
  );

  it('a change during an attempt that fails for good leads to another run', async () => {
    const database = await aDatabase();
    const mill = await changedMeanwhile(database, {}, ({ watchedValues }) => {
      if (watchedValues['n'] === 1) throw new FatalError('for good');
    });
    const task = await database.reaches(mill, 't', 1, 'completed');
    expect(statusesOf(task)).toEqual(['failed', 'completed']);
    expect(task).toMatchObject({ attempts: 1 });
  });
});

eachPlanner('a dead letter that could not be planned', (aDatabase) => {
  it('an unplannable dead letter ignores retries and new versions, and runs once it can be planned', async () => {
    const database = await aDatabase();
    const deploy = async (handlerVersion: number): Promise<{ mill: Tidemill; runs: unknown[] }> => {
      const mill = database.mill();
      const runs: unknown[] = [];
      await mill.reactiveTask({
        ...AT_ONCE,
        task: 't',
        filter: database.filters.failing,
        retryPolicy: { type: 'fixed', interval: 1, maxAttempts: 1 },
        evolution: { handlerVersion, onHandlerVersionChange: 'reprocess_all' },
        handler: ({ docId }) => {
          runs.push(docId);
          if (handlerVersion === 1) throw new Error('on purpose');
        },
      });
      await withProbeTask(mill);
      await mill.start();
      return { mill, runs };
    };
    const first = await deploy(1);
    await database.docs.insertMany([
      { _id: 1, other: 0 },
      { _id: 2, other: 1 },
    ]);
    await Promise.all([1, 2].map((id) => database.reaches(first.mill, 't', id, 'failed')));
    const before = await database.raw('t', 1);
    expect(before).toMatchObject({ lastError: expect.stringContaining('could not be planned') as string });
    expect(await first.mill.retryReactiveTasks({ task: 't', status: 'failed' })).toEqual({
      modifiedCount: 1,
    });
    await until('the other one ran again', () => first.runs.length === 2);
    await database.reaches(first.mill, 't', 2, 'failed');
    expect(await first.mill.retryReactiveTasks({ _id: { task: 't', id: 1 } })).toEqual({ modifiedCount: 0 });
    await first.mill.stop();
    const second = await deploy(2);
    await database.reaches(second.mill, 't', 2, 'completed');
    await database.planned();
    expect(await database.raw('t', 1)).toMatchObject({ status: 'failed', lastError: before?.['lastError'] });
    expect([...first.runs, ...second.runs]).not.toContain(1);
    await database.docs.updateOne({ _id: 1 }, { $set: { other: 1 } });
    await database.reaches(second.mill, 't', 1, 'completed');
    expect(second.runs).toContain(1);
  });

  it('a retry clears an unplannable dead letter whose document no longer matches', async () => {
    const database = await aDatabase();
    const mill = database.mill();
    const runs: unknown[] = [];
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      filter: database.filters.failing,
      handler: ({ docId }) => runs.push(docId),
    });
    await withProbeTask(mill);
    await mill.start();
    await database.docs.insertOne({ _id: 1, other: 0 });
    await database.reaches(mill, 't', 1, 'failed');
    await database.docs.updateOne({ _id: 1 }, { $set: { other: -5 } });
    await database.planned();
    expect(await mill.retryReactiveTasks({ task: 't' })).toEqual({ modifiedCount: 1 });
    await database.reaches(mill, 't', 1, 'completed');
    expect(runs).toEqual([]);
  });
});
