import { AsyncLocalStorage } from 'node:async_hooks';
import { fork, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished } from 'vitest';
import { AttemptTimeoutError, StoppingError } from '../../src/index.js';
import { gate, rarely, until } from '../support/mills.js';
import { statusesOf, withBeacon } from './beacons.js';
import { workshop, type Row } from './workshop.js';

const AT_ONCE = { collection: 'things', debounce: 0 } as const;
const ONCE = { type: 'fixed', interval: 1, maxAttempts: 1 } as const;
const rows = (count: number, from = 0): Row[] =>
  Array.from({ length: count }, (_, at) => ({ _id: from + at }));

describe('how many tasks run at once', () => {
  it.each([
    ['five by default', undefined, undefined, 5],
    ['reactive.concurrency', 3, undefined, 3],
    ['more than the tasks of one claim', 30, undefined, 30],
    ['the concurrency of the task', 10, 2, 2],
    ['no more than the instance allows, whatever the task says', 4, 100, 4],
  ])('%s', async (_what, concurrency, ofTask, expected) => {
    const { docs, mill: aMill } = workshop();
    const mill = aMill(concurrency === undefined ? {} : { reactive: { concurrency } });
    const go = gate();
    let running = 0;
    let most = 0;
    let ended = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      ...(ofTask === undefined ? {} : { concurrency: ofTask }),
      handler: async () => {
        running += 1;
        most = Math.max(most, running);
        if (ended === 0) await go.promise;
        await new Promise((resolve) => setTimeout(resolve, 2));
        running -= 1;
        ended += 1;
      },
    });
    await mill.start();
    await docs.insertMany(rows(40));
    await until('all slots are taken', () => running === expected);
    go.open();
    await until('all have run', () => ended === 40);
    expect(most).toBe(expected);
  });

  it('a task with a limit of its own leaves the other slots to others', async () => {
    const { docs, stored, mill: aMill } = workshop();
    const mill = aMill();
    const go = gate();
    const running = { narrow: 0, wide: 0 };
    for (const task of ['narrow', 'wide'] as const) {
      await mill.reactiveTask({
        ...AT_ONCE,
        task,
        ...(task === 'narrow' ? { concurrency: 1 } : {}),
        handler: async () => {
          running[task] += 1;
          await go.promise;
        },
      });
    }
    // The tasks are planned one after the other: the first would take all slots before the second is there.
    await mill.start({ roles: ['plan'] });
    await docs.insertMany(rows(10));
    await until('all are planned', async () => (await stored.countDocuments()) === 20);
    await mill.stop();
    await mill.start();
    await until('all slots are taken', () => running.narrow + running.wide === 5);
    expect(running).toEqual({ narrow: 1, wide: 4 });
    go.open();
    await until('all have run', () => running.narrow + running.wide === 20);
  });
});

describe('reactive.filter', () => {
  it('is asked again: what it refuses stays pending, and runs when it does not any more', async () => {
    const { docs, mill: aMill, planned } = workshop();
    let open = false;
    const mill = aMill({
      pollInterval: { min: '1s', max: '1s' },
      reactive: { filter: ({ task }) => task !== 'nightly' || open },
    });
    const ran: string[] = [];
    for (const task of ['nightly', 'daily'])
      await mill.reactiveTask({ ...AT_ONCE, task, handler: () => ran.push(task) });
    await withBeacon(mill);
    await mill.start();
    await docs.insertMany(rows(5));
    await until('the other ran', () => ran.length === 5);
    await planned();
    expect(ran).not.toContain('nightly');
    const pending = await mill.getReactiveTasks({ task: 'nightly', status: 'pending' });
    expect(pending.items.map(({ attempts }) => attempts)).toEqual([0, 0, 0, 0, 0]);
    // Nothing but the filter changes.
    open = true;
    await until('it ran', () => ran.length === 10);
  });

  it('is asked again while there is always something else to do', async () => {
    const { docs, db, mill: aMill } = workshop();
    let open = false;
    const mill = aMill({ reactive: { filter: ({ task }) => task !== 'shut' || open } });
    let flood = 0;
    let shut = 0;
    let over = false;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 'flood',
      handler: async ({ docId }) => {
        flood += 1;
        await new Promise((resolve) => setTimeout(resolve, 5));
        // Keeps itself busy: each run makes the next one due.
        if (!over) await docs.updateOne({ _id: docId as number }, { $inc: { n: 1 } });
      },
    });
    await mill.reactiveTask({ task: 'shut', collection: 'others', debounce: 0, handler: () => (shut += 1) });
    await mill.start();
    await db.collection<Row>('others').insertOne({ _id: 1 });
    await docs.insertMany(rows(50));
    await until('the flood is on', () => flood > 300);
    expect(shut).toBe(0);
    open = true;
    const before = flood;
    await until('it ran in spite of the flood', () => shut === 1);
    expect(flood).toBeGreaterThan(before);
    over = true;
  });

  it('that throws refuses, and is heard of', async () => {
    const { docs, mill: aMill, planned } = workshop();
    let broken = true;
    const mill = aMill({
      reactive: {
        filter: ({ task }) => {
          if (broken && task === 't') throw new Error('broken filter');
          return true;
        },
      },
    });
    const errors: string[] = [];
    mill.on('error', ({ error, where }) => errors.push(`${where}: ${error.message}`));
    let runs = 0;
    await mill.reactiveTask({ ...AT_ONCE, task: 't', handler: () => (runs += 1) });
    await withBeacon(mill);
    await mill.start();
    await docs.insertOne({ _id: 1 });
    await planned();
    expect(runs).toBe(0);
    expect(errors).toContain('reactive.filter: broken filter');
    broken = false;
    await until('it ran', () => runs === 1);
  });
});

describe('reactive.caller', () => {
  it('wraps each run', async () => {
    const { docs, mill: aMill, reaches } = workshop();
    const storage = new AsyncLocalStorage<string>();
    const seen: string[] = [];
    const mill = aMill({
      reactive: {
        caller: async (run) => {
          seen.push('before');
          await storage.run('correlated', run);
          seen.push('after');
        },
      },
    });
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async ({ getDocument }) => {
        await getDocument();
        seen.push(storage.getStore() ?? 'nothing');
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    await reaches(mill, 't', 1, 'completed');
    expect(seen).toEqual(['before', 'correlated', 'after']);
  });

  it.each([
    ['before the run', false, 0],
    ['after the run', true, 1],
  ])('may throw: %s, and the attempt has failed', async (_what, call, expected) => {
    const { docs, mill: aMill, reaches } = workshop();
    let runs = 0;
    const mill = aMill({
      reactive: {
        caller: async (run) => {
          if (call) await run();
          throw new Error('the caller');
        },
      },
    });
    await mill.reactiveTask({ ...AT_ONCE, task: 't', retryPolicy: ONCE, handler: () => (runs += 1) });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    expect((await reaches(mill, 't', 1, 'failed')).lastError).toBe('the caller');
    expect(runs).toBe(expected);
  });

  it('sees what the handler throws, and a skipped document stays a skipped one', async () => {
    const { docs, mill: aMill, reaches } = workshop();
    const caught: string[] = [];
    const mill = aMill({
      reactive: {
        caller: async (run) => {
          try {
            await run();
          } catch (error) {
            caught.push((error as Error).name);
            throw error;
          }
        },
      },
    });
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async ({ getDocument }) => {
        await docs.deleteOne({ _id: 1 });
        await getDocument();
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    const task = await reaches(mill, 't', 1, 'completed');
    // Twice, where the first reconciliation looked at the document while its task ran.
    expect(new Set(statusesOf(task))).toEqual(new Set(['skipped']));
    expect(new Set(caught)).toEqual(new Set(['TaskConditionFailedError']));
  });
});

describe('fairness', () => {
  it.each([
    ['of the same collection', 'things'],
    ['of another collection', 'others'],
  ])('a flood of one task does not keep another one %s waiting', async (_what, collection) => {
    const { docs, db, mill: aMill } = workshop();
    const mill = aMill();
    const planned = gate();
    const FLOOD = 1_500;
    let flood = 0;
    let others = 0;
    let floodWhenDone = Infinity;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 'flood',
      filter: { flood: true },
      handler: async () => {
        flood += 1;
        if (flood > 100) await planned.promise;
        await new Promise((resolve) => setTimeout(resolve, 5));
      },
    });
    await mill.reactiveTask({
      task: 'rare',
      collection,
      filter: { rare: true },
      debounce: 0,
      handler: () => {
        others += 1;
        if (others === 20) floodWhenDone = flood;
      },
    });
    await mill.start();
    await docs.insertMany(rows(FLOOD).map((row) => ({ ...row, flood: true })));
    await until('the flood runs', () => flood > 100);
    await db.collection<Row>(collection).insertMany(rows(20, 10_000).map((row) => ({ ...row, rare: true })));
    // However long planning takes, the flood must not be over before that.
    await until('the rare ones are planned', async () => (await mill.tasks.count({ task: 'rare' })) === 20);
    planned.open();
    await until('the rare ones ran', () => others === 20);
    expect(floodWhenDone).toBeLessThan(FLOOD * 0.8);
  });

  it('claims across collections and databases', async () => {
    const { docs, db, client, mill: aMill } = workshop();
    const elsewhere = `${db.databaseName}_b`;
    onTestFinished(async () => {
      await client.db(elsewhere).dropDatabase();
    });
    const mill = aMill();
    const ran: string[] = [];
    await mill.reactiveTask({ ...AT_ONCE, task: 'one', handler: () => ran.push('one') });
    await mill.reactiveTask({
      task: 'two',
      collection: 'others',
      debounce: 0,
      handler: () => ran.push('two'),
    });
    await mill.reactiveTask({
      ...AT_ONCE,
      database: elsewhere,
      task: 'three',
      handler: async ({ getDocument }) => ran.push(String((await getDocument())['name'])),
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    await db.collection<Row>('others').insertOne({ _id: 1 });
    await client.db(elsewhere).collection<Row>('things').insertOne({ _id: 1, name: 'three' });
    await until('all ran', () => ran.length === 3);
    expect(ran.sort()).toEqual(['one', 'three', 'two']);
    expect((await mill.tasks.get('three', 1))?.task).toBe('three');
    expect(await client.db(elsewhere).collection('things_tasks').countDocuments()).toBe(1);
  });
});

describe('an instance that does not lead', () => {
  it('is woken when something was planned elsewhere', async () => {
    const { docs, mill: aMill } = workshop();
    const [planner, worker] = [aMill(), aMill({ pollInterval: rarely })];
    const seen = new Set<unknown>();
    for (const mill of [planner, worker])
      await mill.reactiveTask({ ...AT_ONCE, task: 't', handler: ({ docId }) => seen.add(docId) });
    await planner.start({ roles: ['plan', 'maintain'] });
    await worker.start({ roles: ['work'] });
    for (const { _id } of rows(10)) {
      await docs.insertOne({ _id });
      await until('it ran', () => seen.has(_id));
    }
  });
});

describe('a task with a timeout', () => {
  it('aborts its signal, fails the attempt and is tried again, also if the handler does not listen', async () => {
    const { docs, mill: aMill, reaches } = workshop();
    const mill = aMill();
    const reasons: unknown[] = [];
    const late = gate();
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      timeout: 100,
      retryPolicy: { type: 'fixed', interval: 1, maxAttempts: 3 },
      handler: async ({ attempt, signal, deferCurrent }) => {
        if (attempt === 3) return;
        signal.addEventListener('abort', () => reasons.push(signal.reason));
        if (attempt === 1) {
          await late.promise;
          // Too late: nobody waits for it any more.
          deferCurrent('1h');
          return;
        }
        await new Promise((_resolve, reject) =>
          signal.addEventListener('abort', () => reject(new Error('heard'))),
        );
      },
    });
    await mill.start();
    await docs.insertOne({ _id: 1 });
    const task = await reaches(mill, 't', 1, 'completed');
    late.open();
    expect(statusesOf(task)).toEqual(['failed', 'failed', 'completed']);
    expect(task.executionHistory?.[0]?.error).toMatchObject({ name: 'AttemptTimeoutError' });
    expect(task.executionHistory?.[1]?.error?.message).toMatch(/timeout of 100 ms/u);
    expect(reasons.every((reason) => reason instanceof AttemptTimeoutError)).toBe(true);
    expect(reasons).toHaveLength(2);
    await mill.stop();
    expect((await mill.tasks.get('t', 1))?.status).toBe('completed');
  });
});

describe('stop', () => {
  it('waits for running tasks, and starts no more', async () => {
    const { docs, stored, mill: aMill } = workshop();
    const mill = aMill({ reactive: { concurrency: 2 } });
    const go = gate();
    let started = 0;
    await mill.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async () => {
        started += 1;
        await go.promise;
      },
    });
    await mill.start();
    await docs.insertMany(rows(10));
    await until('two run', () => started === 2);
    await until('all are planned', async () => (await stored.countDocuments()) === 10);
    const stopped = mill.stop({ timeout: '10s' });
    go.open();
    await stopped;
    expect(started).toBe(2);
    expect(await mill.countReactiveTasks({ status: 'completed' })).toBe(2);
    expect(await mill.countReactiveTasks({ status: 'pending' })).toBe(8);
  });

  it.each([
    ['that listens to its signal', true],
    ['that does not', false],
  ])('hands back a task %s, without using an attempt', async (_what, listens) => {
    const { docs, mill: aMill, raw } = workshop();
    const [first, second] = [aMill(), aMill()];
    const started = gate<AbortSignal>();
    const attempts: number[] = [];
    await first.reactiveTask({
      ...AT_ONCE,
      task: 't',
      handler: async ({ signal }) => {
        started.open(signal);
        await new Promise((_resolve, reject) => {
          if (listens) signal.addEventListener('abort', () => reject(new Error('stopping')));
        });
      },
    });
    await first.start();
    await docs.insertOne({ _id: 1 });
    const signal = await started.promise;
    const before = await raw('t', 1);
    await first.stop({ timeout: 0 });
    expect(signal.reason).toBeInstanceOf(StoppingError);
    const task = await raw('t', 1);
    expect(task).toMatchObject({ status: 'pending', attempts: 0, lockedAt: null });
    expect(task?.['initialScheduledAt']).toEqual(before?.['initialScheduledAt']);
    expect(task).not.toHaveProperty('lastError');
    await second.reactiveTask({ ...AT_ONCE, task: 't', handler: ({ attempt }) => attempts.push(attempt) });
    await second.start();
    await until('it runs elsewhere', () => attempts.length === 1);
    expect(attempts).toEqual([1]);
  });
});

describe('a worker that is killed with SIGKILL', () => {
  /** Long enough that it does not lose it before. */
  const LEASE_MS = 3_000;

  function worker(uri: string): { child: ChildProcess; started: { docId: unknown; attempt: number }[] } {
    const file = fileURLToPath(new URL('crashing-worker.ts', import.meta.url));
    const child = fork(file, [uri, String(LEASE_MS)], {
      execArgv: ['--import', 'tsx'],
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
    });
    onTestFinished(() => void child.kill('SIGKILL'));
    const started: { docId: unknown; attempt: number }[] = [];
    child.on('message', (message) => started.push(message as never));
    return { child, started };
  }

  const LONG = {
    ...AT_ONCE,
    task: 'long',
    retryPolicy: { type: 'fixed', interval: '1h', maxAttempts: 2 },
  } as const;

  it('has its tasks run elsewhere, and a crash is counted', async () => {
    const { uri, docs, mill: aMill, reaches } = workshop();
    const mill = aMill({ instanceId: 'survivor' });
    const { child, started } = worker(uri);
    const attempts: number[] = [];
    const recovered: number[] = [];
    mill.on('stale:recovered', ({ count }) => recovered.push(count));
    await mill.reactiveTask({ ...LONG, handler: ({ attempt }) => attempts.push(attempt) });
    // It does not work yet: the child has to get them.
    await mill.start({ roles: ['plan'] });
    await docs.insertMany(rows(3));
    await until('the child runs all of them', () => started.length === 3);
    await mill.stop();
    await mill.start();
    child.kill('SIGKILL');
    await until('all have run here', () => attempts.length === 3);
    expect(attempts).toEqual([2, 2, 2]);
    const task = await reaches(mill, 'long', 0, 'completed');
    expect(statusesOf(task)).toEqual(['crashed', 'completed']);
    expect(task.executionHistory?.map(({ instanceId }) => instanceId === 'survivor')).toEqual([false, true]);
    await until('it was said', () => recovered.length > 0);
    expect(recovered.reduce((sum, count) => sum + count, 0)).toBe(3);
  }, 60_000);

  it('again and again ends in failed: work that kills its process comes to an end', async () => {
    const { uri, docs, mill: aMill, reaches } = workshop();
    const mill = aMill();
    await mill.reactiveTask({ ...LONG, handler: () => undefined });
    await mill.start({ roles: ['plan', 'maintain'] });
    await docs.insertOne({ _id: 1 });
    for (const attempt of [1, 2]) {
      const { child, started } = worker(uri);
      await until('it runs', () => started.length === 1);
      expect(started).toEqual([{ docId: 1, attempt }]);
      child.kill('SIGKILL');
      await until('the crash is counted', async () => {
        const task = await mill.tasks.get('long', 1);
        return statusesOf(task).length === attempt;
      });
    }
    const task = await reaches(mill, 'long', 1, 'failed');
    expect(statusesOf(task)).toEqual(['crashed', 'crashed']);
    expect(task.lastError).toMatch(/died or lost its lease/u);
    expect(await mill.countReactiveTasks({ status: 'failed', errorMessage: 'died' })).toBe(1);
  }, 60_000);
});
