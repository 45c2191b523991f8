import { expect, it, onTestFinished } from 'vitest';
import { gate, until } from '../../support/mills.js';
import { forkScript } from '../../support/scripts.js';
import { startedUp, statusesOf, withProbeTask } from '../probes.js';
import { effect } from './effects.js';
import { eachServedDatabase, eachDatabase } from './test-databases.js';

const AT_ONCE = { collection: 'things', debounce: 0, task: 't' } as const;
const QUICK = { type: 'fixed', interval: 10, maxAttempts: 5 } as const;

eachDatabase('markCompleted', (aDatabase) => {
  it('markCompleted completes the task with the commit, and nothing changes it afterwards', async () => {
    const { docs, raw, ids, mill: aMill } = await aDatabase();
    const mill = aMill();
    const [committed, end] = [gate(), gate()];
    const completed: string[] = [];
    mill.on('task:complete', ({ task }) => completed.push(task.status));
    await mill.reactiveTask({
      ...AT_ONCE,
      handler: async ({ docId, getDocument, markCompleted }) => {
        await mill.withTransaction(async (transaction) => {
          await getDocument({ transaction });
          await effect(transaction, docId as number);
          await markCompleted({ transaction });
        });
        committed.open();
        await end.promise;
      },
    });
    // The initial reconciliation would be one more write.
    await startedUp(mill, 't');
    await docs.insertOne({ _id: 1 });
    await committed.promise;
    const task = await raw('t', 1);
    expect(task).toMatchObject({ status: 'completed', attempts: 1 });
    expect(task?.['lastSuccess']).toMatchObject({ durationMs: expect.any(Number) as number });
    expect(task).not.toHaveProperty('claimedBy');
    end.open();
    await until('it was said', () => completed.length > 0);
    await mill.stop();
    expect(await raw('t', 1)).toEqual(task);
    expect(completed).toEqual(['completed']);
    expect(await ids('others')).toEqual([1]);
  });

  it('a handler that ends late after markCompleted does not touch a task that has run again', async () => {
    const { docs, raw, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    const [committed, end] = [gate(), gate()];
    let runs = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      handler: async ({ markCompleted }) => {
        runs += 1;
        if (runs > 1) return;
        await mill.withTransaction((transaction) => markCompleted({ transaction }));
        committed.open();
        await end.promise;
        throw new Error('too late to fail');
      },
    });
    await startedUp(mill, 't');
    await docs.insertOne({ _id: 1, n: 1 });
    await committed.promise;
    await docs.updateOne({ _id: 1 }, { $set: { n: 2 } });
    await until('the change ran beside the handler that has not ended', () => runs === 2);
    await reaches(mill, 't', 1, 'completed');
    const before = await raw('t', 1);
    end.open();
    await mill.stop();
    expect(await raw('t', 1)).toEqual(before);
  });

  it('markCompleted lets a task that changed meanwhile run again', async () => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    const [started, go] = [gate(), gate()];
    const runs: unknown[] = [];
    await mill.reactiveTask({
      ...AT_ONCE,
      handler: async ({ watchedValues, markCompleted }) => {
        runs.push(watchedValues['n']);
        started.open();
        await go.promise;
        await mill.withTransaction((transaction) => markCompleted({ transaction }));
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1, n: 1 });
    await started.promise;
    await docs.updateOne({ _id: 1 }, { $set: { n: 2 } });
    await reaches(mill, 't', 1, 'processing_dirty');
    go.open();
    await until('it ran again', () => runs.length === 2);
    const task = await reaches(mill, 't', 1, 'completed');
    expect(runs).toEqual([1, 2]);
    expect(statusesOf(task)).toEqual(['completed', 'completed']);
  });

  it.each([
    ['throws', 'failed', 'on purpose'],
    ['returns', 'failed', 'was not committed'],
    ['defers', 'deferred', ''],
  ] as const)(
    'after an aborted markCompleted transaction, a handler that %s ends as %s',
    async (what, status, message) => {
      const { docs, ids, mill: aMill, reaches } = await aDatabase();
      const mill = aMill();
      const undone = new Error('undone');
      let tries = 0;
      await mill.reactiveTask({
        ...AT_ONCE,
        retryPolicy: QUICK,
        handler: async ({ docId, markCompleted, deferCurrent }) => {
          const first = (tries += 1) === 1;
          const transacted = mill.withTransaction(async (transaction) => {
            await effect(transaction, docId as number);
            await markCompleted({ transaction });
            if (first) throw undone;
          });
          await transacted.catch((error: unknown) => {
            if (error !== undone) throw error;
          });
          if (first && what === 'throws') throw new Error('on purpose');
          if (first && what === 'defers') deferCurrent(10);
        },
      });
      await startedUp(mill, 't');
      await docs.insertOne({ _id: 1 });
      const task = await reaches(mill, 't', 1, 'completed');
      expect(statusesOf(task)).toEqual([status, 'completed']);
      expect(task.executionHistory?.[0]?.error?.message ?? '').toContain(message);
      expect(await ids('others')).toEqual([1]);
    },
  );

  it('markCompleted takes part in every retry of a transaction', async ({ skip }) => {
    const { docs, ids, conflict, mill: aMill, reaches } = await aDatabase();
    if (conflict === undefined) return skip('a transaction in memory is not tried again by itself');
    const mill = aMill();
    let tries = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      handler: ({ docId, getDocument, markCompleted }) =>
        mill.withTransaction(async (transaction) => {
          tries += 1;
          await getDocument({ transaction });
          await effect(transaction, docId as number);
          await markCompleted({ transaction });
          if (tries < 3) throw conflict();
        }),
    });
    await startedUp(mill, 't');
    await docs.insertOne({ _id: 1 });
    const task = await reaches(mill, 't', 1, 'completed');
    expect(tries).toBe(3);
    expect(statusesOf(task)).toEqual(['completed']);
    expect(task.attempts).toBe(1);
    expect(await ids('others')).toEqual([1]);
  });

  it.each([
    ['nothing', undefined],
    ['an empty object', {}],
    ['something that is no handle', { transaction: {} }],
  ])('markCompleted rejects %s in place of a transaction', async (_what, argument) => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    await mill.reactiveTask({
      ...AT_ONCE,
      retryPolicy: { ...QUICK, maxAttempts: 1 },
      handler: ({ markCompleted }) => markCompleted(argument as never),
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    expect((await reaches(mill, 't', 1, 'failed')).lastError).toMatch(/needs \{ transaction \}/u);
  });
});

eachServedDatabase('markCompleted', (aDatabase) => {
  it('markCompleted rejects a handle on which no transaction was begun', async () => {
    const { docs, bare, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    await mill.reactiveTask({
      ...AT_ONCE,
      retryPolicy: { ...QUICK, maxAttempts: 1 },
      handler: ({ markCompleted }) => bare?.((transaction) => markCompleted({ transaction })),
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    expect((await reaches(mill, 't', 1, 'failed')).lastError).toMatch(/transaction/u);
  });

  it('an open markCompleted transaction does not hold up the planner', async () => {
    const { docs, mill: aMill, reaches, planned } = await aDatabase();
    const mill = aMill();
    const [marked, commit] = [gate(), gate()];
    await mill.reactiveTask({
      ...AT_ONCE,
      handler: async ({ docId, markCompleted }) => {
        if (docId !== 1) return;
        await mill.withTransaction(async (transaction) => {
          await markCompleted({ transaction });
          marked.open();
          await commit.promise;
        });
      },
    });
    await withProbeTask(mill);
    await startedUp(mill, 't');
    await docs.insertOne({ _id: 1, n: 1 });
    await marked.promise;
    await docs.insertOne({ _id: 2 });
    await reaches(mill, 't', 2, 'completed');
    // Its own document changes, and has to wait for the end of the transaction.
    await docs.updateOne({ _id: 1 }, { $set: { n: 2 } });
    await planned();
    commit.open();
    await until('the change ran', async () => statusesOf(await mill.tasks.get('t', 1)).length === 2);
  });
});

eachServedDatabase('a process killed at one step of a transactional handler', (aDatabase) => {
  /** The lease of the process that is killed; long enough that it does not expire before. */
  const LEASE_MS = 3_000;
  const BEFORE_THE_SERVER_MS = 40_000;

  it.each(['before the transaction', 'before markCompleted', 'before the commit', 'after the commit'])(
    'a transactional handler has its effect exactly once if its process is killed %s',
    async (step) => {
      const {
        address = '',
        docs,
        others,
        ids,
        endSession,
        mill: aMill,
        reaches,
        raw,
        lives,
      } = await aDatabase();
      // A collection must exist before a MongoDB transaction writes to it.
      await others.insertOne({ _id: 0 });
      const script = new URL('../exactly-once-worker.ts', import.meta.url);
      const child = forkScript(script, [address, step, String(LEASE_MS)], {
        stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      });
      onTestFinished(() => void child.kill('SIGKILL'));
      const stopped = new Promise<{ session?: string }>((resolve) => child.once('message', resolve as never));
      await docs.insertOne({ _id: 1 });
      const { session } = await stopped;
      const dead = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGKILL');
      await dead;
      // From markCompleted on, the instance that takes over knows the session and ends it; before, only the server
      // does, after a minute.
      if (session !== undefined && step !== 'before the commit') await endSession?.(session);
      const mill = aMill({ leaseDuration: LEASE_MS });
      const attempts: number[] = [];
      await mill.reactiveTask({
        ...AT_ONCE,
        task: 'exact',
        retryPolicy: { type: 'fixed', interval: 10, maxAttempts: 3 },
        handler: async ({ docId, attempt, markCompleted }) => {
          attempts.push(attempt);
          await mill.withTransaction(async (transaction) => {
            // The child writes the id itself.
            await effect(transaction, Number(docId) + 100);
            await markCompleted({ transaction });
          });
        },
      });
      await mill.start();
      await until(
        'it is completed, before the server ends the transaction by itself',
        async () => (await mill.tasks.get('exact', 1))?.status === 'completed',
        BEFORE_THE_SERVER_MS,
      );
      const task = await reaches(mill, 'exact', 1, 'completed');
      const committed = step === 'after the commit';
      expect(statusesOf(task)).toEqual(committed ? ['completed'] : ['crashed', 'completed']);
      expect(attempts).toEqual(committed ? [] : [2]);
      expect(await ids('others')).toEqual(committed ? [0, 1] : [0, 101]);
      // The dead process's lease ends: nothing of it changes what is completed.
      const before = await raw('exact', 1);
      await until('the dead instance was buried', async () => (await lives()) === 1);
      expect(await raw('exact', 1)).toEqual(before);
    },
  );
});
