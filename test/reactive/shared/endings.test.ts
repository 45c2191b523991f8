import type { ChildProcess } from 'node:child_process';
import { expect, it, onTestFinished } from 'vitest';
import { AttemptTimeoutError, StoppingError } from '../../../src/index.js';
import { gate, until } from '../../support/mills.js';
import { forkScript } from '../../support/scripts.js';
import { statusesOf } from '../probes.js';
import { eachServedDatabase, eachPlanner, type Thing } from './test-databases.js';

const AT_ONCE = { collection: 'things', debounce: 0 } as const;
const rows = (count: number): Thing[] => Array.from({ length: count }, (_, _id) => ({ _id }));

eachPlanner('timeouts of tasks', (aDatabase) => {
  it('a timeout aborts the signal and fails the attempt, also if the handler ignores it', async () => {
    const { docs, mill: aMill, reaches } = await aDatabase();
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
          // Too late: nothing waits for it any more.
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

eachPlanner('stop with running tasks', (aDatabase) => {
  it('stop() waits for running tasks and starts no more', async () => {
    const { docs, count, mill: aMill } = await aDatabase();
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
    await until('all are planned', async () => (await count({})) === 10);
    const stopped = mill.stop({ timeout: '10s' });
    go.open();
    await stopped;
    expect(started).toBe(2);
    expect(await mill.countReactiveTasks({ status: 'completed' })).toBe(2);
    expect(await mill.countReactiveTasks({ status: 'pending' })).toBe(8);
  });

  it.each([
    ['that listens to its signal', true],
    ['that ignores its signal', false],
  ])('stop() hands back a task %s without using an attempt', async (_what, listens) => {
    const { docs, mill: aMill, raw } = await aDatabase();
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
    expect(task).toMatchObject({ status: 'pending', attempts: 0 });
    expect(task?.['lockedAt'] ?? null).toBeNull();
    expect(task?.['initialScheduledAt']).toEqual(before?.['initialScheduledAt']);
    expect(task).not.toHaveProperty('lastError');
    await second.reactiveTask({ ...AT_ONCE, task: 't', handler: ({ attempt }) => attempts.push(attempt) });
    await second.start();
    await until('it runs elsewhere', () => attempts.length === 1);
    expect(attempts).toEqual([1]);
  });
});

eachServedDatabase('workers killed with SIGKILL', (aDatabase) => {
  /** Long enough that it does not expire before the kill. */
  const LEASE_MS = 3_000;

  function worker(address = ''): { child: ChildProcess; started: { docId: unknown; attempt: number }[] } {
    const script = new URL('../crashing-worker.ts', import.meta.url);
    const child = forkScript(script, [address, String(LEASE_MS)], {
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

  it('the tasks of a killed worker run elsewhere, and the crash counts as an attempt', async () => {
    const { address, docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill({ instanceId: 'survivor', leaseDuration: 3_000 });
    const { child, started } = worker(address);
    const attempts: number[] = [];
    const recovered: number[] = [];
    mill.on('stale:recovered', ({ count }) => recovered.push(count));
    await mill.reactiveTask({ ...LONG, handler: ({ attempt }) => attempts.push(attempt) });
    // It does not work yet: the child must get the tasks.
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
    const sum = (): number => recovered.reduce((total, count) => total + count, 0);
    await until('it was said of each', () => sum() >= 3);
    expect(sum()).toBe(3);
  });

  it('a task that kills its worker repeatedly ends as failed', async () => {
    const { address, docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill({ leaseDuration: 3_000 });
    await mill.reactiveTask({ ...LONG, handler: () => undefined });
    await mill.start({ roles: ['plan', 'maintain'] });
    await docs.insertOne({ _id: 1 });
    for (const attempt of [1, 2]) {
      const { child, started } = worker(address);
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
  });
});
