import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { MongoServerError, UUID, type ClientSession } from 'mongodb';
import { describe, expect, it, onTestFinished } from 'vitest';
import { gate, until } from '../support/mills.js';
import { startedUp, statusesOf, withBeacon } from './beacons.js';
import { workshop, type Row } from './workshop.js';

const AT_ONCE = { collection: 'things', debounce: 0 } as const;
const QUICK = { type: 'fixed', interval: 10, maxAttempts: 5 } as const;

describe('markCompleted', () => {
  it('completes the task with the commit of the transaction, once, and nothing touches it afterwards', async () => {
    const { docs, db, client, stored, raw, mill: aMill } = workshop();
    const mill = aMill();
    const [committed, end] = [gate(), gate()];
    const completed: string[] = [];
    mill.on('task:complete', ({ task }) => completed.push(task.status));
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async ({ docId, markCompleted }) => {
        await client.withSession((session) =>
          session.withTransaction(async () => {
            await db.collection<Row>('effects').insertOne({ _id: docId as number }, { session });
            await markCompleted({ session });
          }),
        );
        committed.open();
        await end.promise;
      },
    });
    // The first look at all documents would be one more write.
    await startedUp(mill, 't');
    const writes: unknown[] = [];
    const stream = stored.watch([], { fullDocument: 'updateLookup' });
    onTestFinished(() => stream.close());
    stream.on('change', (event) => writes.push(event));
    await until('the stream is open', () => stream.resumeToken !== undefined);
    await docs.insertOne({ _id: 1 });
    await committed.promise;
    const task = await raw('t', 1);
    expect(task).toMatchObject({ status: 'completed', attempts: 1, lastError: null });
    expect(task?.['lastSuccess']).toMatchObject({ durationMs: expect.any(Number) as number });
    expect(task).not.toHaveProperty('claimedBy');
    end.open();
    await until('it was said', () => completed.length > 0);
    await mill.stop();
    expect(await raw('t', 1)).toEqual(task);
    expect(completed).toEqual(['completed']);
    // Planned, claimed, completed.
    await until('all writes were heard', () => writes.length >= 3);
    expect(writes).toHaveLength(3);
  });

  it('leaves a task that another change made pending alone, when its handler ends late', async () => {
    const { docs, client, raw, mill: aMill, reaches } = workshop();
    const mill = aMill();
    const [committed, end] = [gate(), gate()];
    let runs = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async ({ markCompleted }) => {
        runs += 1;
        if (runs > 1) return;
        await client.withSession((session) => session.withTransaction(() => markCompleted({ session })));
        committed.open();
        await end.promise;
        throw new Error('too late to fail');
      },
    });
    await mill.start();
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

  it('makes a task that changed meanwhile run again', async () => {
    const { docs, client, mill: aMill, reaches } = workshop();
    const mill = aMill();
    const [started, go] = [gate(), gate()];
    const runs: unknown[] = [];
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async ({ watchedValues, markCompleted }) => {
        runs.push(watchedValues['n']);
        started.open();
        await go.promise;
        await client.withSession((session) => session.withTransaction(() => markCompleted({ session })));
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
    ['defers', 'deferred', undefined],
  ] as const)(
    'after an abort the attempt is judged by its outcome: one that %s is %s',
    async (what, status, message) => {
      const { docs, db, client, mill: aMill, reaches } = workshop();
      const mill = aMill();
      await mill.reactiveTask({
        ...AT_ONCE,
        task: 't',
        retryPolicy: QUICK,
        handler: async ({ attempt, docId, markCompleted, deferCurrent }) => {
          const first = (await db.collection('tries').countDocuments()) === 0;
          await db.collection('tries').insertOne({ attempt });
          await client.withSession(async (session) => {
            session.startTransaction();
            await db.collection<Row>('effects').insertOne({ _id: docId as number }, { session });
            await markCompleted({ session });
            await (first ? session.abortTransaction() : session.commitTransaction());
          });
          if (first && what === 'throws') throw new Error('on purpose');
          if (first && what === 'defers') deferCurrent(10);
        },
      });
      await startedUp(mill, 't');
      await docs.insertOne({ _id: 1 });
      const task = await reaches(mill, 't', 1, 'completed');
      expect(statusesOf(task)).toEqual([status, 'completed']);
      expect(task.executionHistory?.[0]?.error?.message ?? '').toContain(message ?? '');
      expect(await db.collection('effects').countDocuments()).toBe(1);
    },
  );

  it('takes part in every try of a transaction that is tried again', async () => {
    const { docs, db, client, mill: aMill, reaches } = workshop();
    const mill = aMill();
    let tries = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async ({ docId, getDocument, markCompleted }) => {
        await client.withSession((session) =>
          session.withTransaction(async () => {
            tries += 1;
            await getDocument({ session });
            await db.collection<Row>('effects').insertOne({ _id: docId as number }, { session });
            await markCompleted({ session });
            if (tries === 3) return;
            // What a driver sees when its primary steps down at this moment.
            const error = new MongoServerError({ message: 'passing', code: 112 });
            error.addErrorLabel('TransientTransactionError');
            throw error;
          }),
        );
      },
    });
    await startedUp(mill, 't');
    await docs.insertOne({ _id: 1 });
    const task = await reaches(mill, 't', 1, 'completed');
    expect(tries).toBe(3);
    expect(statusesOf(task)).toEqual(['completed']);
    expect(task.attempts).toBe(1);
    expect(await db.collection('effects').countDocuments()).toBe(1);
  });

  it('makes a transaction that saw an old document try again, and then give up', async () => {
    const { docs, db, client, mill: aMill, planned, reaches } = workshop();
    const mill = aMill();
    const effects: unknown[] = [];
    let runs = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async ({ getDocument, markCompleted }) => {
        runs += 1;
        const first = runs === 1;
        await client.withSession((session) =>
          session.withTransaction(async () => {
            const document = await getDocument({ session });
            await db.collection<Row>('effects').insertOne({ _id: document['n'] as number }, { session });
            if (first && effects.length === 0) {
              effects.push('changed');
              await docs.updateOne({ _id: 1 }, { $set: { n: 2 } });
              await planned();
            }
            await markCompleted({ session });
          }),
        );
      },
    });
    await withBeacon(mill);
    await startedUp(mill, 't');
    await docs.insertOne({ _id: 1, n: 1 });
    await until('the second version was handled', async () => {
      const task = await mill.tasks.get('t', 1);
      return task?.status === 'completed' && statusesOf(task).includes('completed');
    });
    expect(await db.collection('effects').distinct('_id')).toEqual([2]);
    const task = await reaches(mill, 't', 1, 'completed');
    expect(statusesOf(task)).toEqual(['skipped', 'completed']);
  });

  it.each([
    ['nothing', undefined],
    ['an empty object', {}],
    ['something that is no session', { session: {} }],
  ])('refuses %s in the place of a session', async (_what, argument) => {
    const { docs, mill: aMill, reaches } = workshop();
    const mill = aMill();
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      retryPolicy: { ...QUICK, maxAttempts: 1 },
      handler: ({ markCompleted }) => markCompleted(argument as never),
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    expect((await reaches(mill, 't', 1, 'failed')).lastError).toMatch(/needs \{ session \}/u);
  });

  it('refuses a session without a transaction, which would complete the task before its effects', async () => {
    const { docs, client, mill: aMill, reaches } = workshop();
    const mill = aMill();
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      retryPolicy: { ...QUICK, maxAttempts: 1 },
      handler: ({ markCompleted }) =>
        client.withSession((session: ClientSession) => markCompleted({ session })),
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    expect((await reaches(mill, 't', 1, 'failed')).lastError).toMatch(/transaction/u);
  });

  it('does not hold up the planner while its transaction is open', async () => {
    const { docs, client, mill: aMill, reaches, planned } = workshop();
    const mill = aMill();
    const [marked, commit] = [gate(), gate()];
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async ({ docId, markCompleted }) => {
        if (docId !== 1) return;
        await client.withSession(async (session) => {
          session.startTransaction();
          await markCompleted({ session });
          marked.open();
          await commit.promise;
          await session.commitTransaction();
        });
      },
    });
    await withBeacon(mill);
    await startedUp(mill, 't');
    await docs.insertOne({ _id: 1, n: 1 });
    await marked.promise;
    await docs.insertOne({ _id: 2 });
    await reaches(mill, 't', 2, 'completed');
    await planned();
    commit.open();
    await reaches(mill, 't', 1, 'completed');
  });
});

describe('a process that is killed at one step of a transactional handler', () => {
  /** Of the one that is killed; long enough that it does not lose it before. */
  const LEASE_MS = 3_000;

  it.each(['before the transaction', 'before markCompleted', 'before the commit', 'after the commit'])(
    'has its effect exactly once: %s',
    async (step) => {
      const { uri, docs, db, client, mill: aMill, reaches, raw } = workshop();
      const effects = db.collection<Row>('effects');
      await db.createCollection('effects');
      const file = fileURLToPath(new URL('exactly-once-worker.ts', import.meta.url));
      const child = fork(file, [uri, step, String(LEASE_MS)], {
        execArgv: ['--import', 'tsx'],
        stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      });
      onTestFinished(() => void child.kill('SIGKILL'));
      const stopped = new Promise<{ session?: string }>((resolve) => child.once('message', resolve as never));
      await docs.insertOne({ _id: 'one' });
      const { session } = await stopped;
      const dead = new Promise((resolve) => child.once('exit', resolve));
      child.kill('SIGKILL');
      await dead;
      // The server would end it by itself, but only after a minute.
      if (session !== undefined)
        await client.db('admin').command({ killSessions: [{ id: new UUID(session) }] });
      const mill = aMill();
      const attempts: number[] = [];
      await mill.reactiveTask({
        ...AT_ONCE,
        task: 'exact',
        retryPolicy: { type: 'fixed', interval: 10, maxAttempts: 3 },
        handler: async ({ docId, attempt, markCompleted }) => {
          attempts.push(attempt);
          await client.withSession((own) =>
            own.withTransaction(async () => {
              await effects.insertOne({ _id: docId as string, by: 'parent' }, { session: own });
              await markCompleted({ session: own });
            }),
          );
        },
      });
      await mill.start();
      const task = await reaches(mill, 'exact', 'one', 'completed');
      const committed = step === 'after the commit';
      expect(statusesOf(task)).toEqual(committed ? ['completed'] : ['crashed', 'completed']);
      expect(attempts).toEqual(committed ? [] : [2]);
      expect(await effects.find().toArray()).toMatchObject([{ by: committed ? 'child' : 'parent' }]);
      // The dead one's lease ends: nothing of it touches what is completed.
      const before = await raw('exact', 'one');
      await until('the dead instance was buried', async () => {
        const instances = await db.collection('_tidemill_globals').countDocuments({ kind: 'instance' });
        return instances === 1;
      });
      expect(await raw('exact', 'one')).toEqual(before);
    },
    60_000,
  );
});
