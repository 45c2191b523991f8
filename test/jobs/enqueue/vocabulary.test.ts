import { expect, it, onTestFinished } from 'vitest';
import type { TaskContext } from '../../../src/index.js';
import { testMill } from '../../../src/testing/index.js';

const START = '2026-01-01T00:00:00Z';
const AT = new Date('2026-01-01T01:00:00Z');
const NEAR = { from: AT, to: AT };

function aMill() {
  const mill = testMill({ now: START, logger: false });
  onTestFinished(() => mill.stop({ timeout: 0 }));
  return mill;
}

it('finds jobs by runAt or nextRunAt, sorts by either, and refuses both at once', async () => {
  const mill = aMill();
  const later = await mill.enqueue('x', {}, { runAt: AT });
  const soon = await mill.enqueue('x');
  expect(later.runAt).toEqual(later.nextRunAt);
  for (const filter of [{ runAt: NEAR }, { nextRunAt: NEAR }])
    expect((await mill.jobs.find(filter)).items.map(({ id }) => id)).toEqual([later.id]);
  for (const sort of [{ runAt: 1 }, { nextRunAt: 1 }] as const) {
    const first = await mill.jobs.find({}, { sort, limit: 1 });
    expect(first.items.map(({ id }) => id)).toEqual([soon.id]);
    const second = await mill.jobs.find({}, { sort, cursor: first.next ?? '' });
    expect(second.items.map(({ id }) => id)).toEqual([later.id]);
  }
  await expect(mill.jobs.find({ runAt: NEAR, nextRunAt: NEAR })).rejects.toThrow(
    'jobs.find: filter: nextRunAt is another name of runAt; pass one of them.',
  );
});

it('returns the message of the last failure as error, as well as by its stored name', async () => {
  const mill = aMill();
  const fail = (): never => {
    throw new Error('no such order');
  };
  mill.job('x', { retryPolicy: { type: 'fixed', interval: '1h', maxAttempts: 1 } }, fail);
  const { id, error } = await mill.enqueue('x');
  expect(error).toBeUndefined();
  mill.store.collection('orders').insert({ _id: 'a' });
  await mill.reactiveTask({ task: 't', collection: 'orders', debounce: 0, handler: fail });
  await mill.drain();
  expect(await mill.jobs.get(id)).toMatchObject({ error: 'no such order', failReason: 'no such order' });
  const task = await mill.tasks.get('t', 'a');
  expect(task).toMatchObject({ error: 'no such order', lastError: 'no such order' });
  expect(task?.runAt).toEqual(task?.scheduledAt);
});

it('finds tasks by error or errorMessage and by runAt or scheduledAt, and refuses both at once', async () => {
  const mill = aMill();
  const orders = mill.store.collection('orders');
  orders.insert({ _id: 'a', bad: true });
  orders.insert({ _id: 'b', bad: false });
  await mill.reactiveTask<{ readonly bad: boolean }>({
    task: 't',
    collection: 'orders',
    debounce: 0,
    retryPolicy: { maxAttempts: 1 },
    handler: async ({ getDocument, defer }) => {
      if ((await getDocument()).bad) throw new Error('no such order');
      defer(AT);
    },
  });
  await mill.drain();
  const idsOf = async (...given: Parameters<typeof mill.tasks.find>): Promise<unknown[]> =>
    (await mill.tasks.find(...given)).items.map(({ sourceDocId }) => sourceDocId);
  for (const filter of [{ error: 'such order' }, { errorMessage: 'such order' }])
    expect(await idsOf(filter)).toEqual(['a']);
  for (const filter of [{ runAt: NEAR }, { scheduledAt: NEAR }]) expect(await idsOf(filter)).toEqual(['b']);
  for (const sort of [{ runAt: 1 }, { scheduledAt: 1 }] as const)
    expect(await idsOf({}, { sort })).toEqual(['a', 'b']);
  await expect(mill.tasks.find({ error: 'x', errorMessage: 'x' })).rejects.toThrow(
    'tasks.find: errorMessage is another name of error; pass one of them.',
  );
  await expect(mill.tasks.find({ runAt: NEAR, scheduledAt: NEAR })).rejects.toThrow(
    'tasks.find: scheduledAt is another name of runAt; pass one of them.',
  );
});

it('finds documents by runAt or sleepUntil, and refuses both at once', async () => {
  const mill = aMill();
  const users = mill.store.collection('users');
  users.insert({ _id: 'a', sleepUntil: AT });
  users.insert({ _id: 'b', sleepUntil: new Date(AT.getTime() + 1) });
  users.insert({ _id: 'c', sleepUntil: null });
  const schedule = mill.documents({ collection: 'users', onDocument: () => undefined });
  for (const filter of [{ runAt: NEAR }, { sleepUntil: NEAR }]) {
    const { items } = await schedule.find(filter);
    expect(items).toMatchObject([{ title: 'a', runAt: AT, sleepUntil: AT }]);
  }
  const [parked] = (await schedule.find({ state: 'parked' })).items;
  expect(parked?.title).toBe('c');
  expect(parked).not.toHaveProperty('runAt');
  await expect(schedule.find({ runAt: NEAR, sleepUntil: NEAR })).rejects.toThrow(
    'find: sleepUntil is another name of runAt; pass one of them.',
  );
});

/** Runs a task whose handler makes one call, and returns what became of it. */
async function afterRun(act: (context: TaskContext, mill: ReturnType<typeof aMill>) => unknown) {
  const mill = aMill();
  mill.store.collection('orders').insert({ _id: 'a' });
  let context: TaskContext | undefined;
  await mill.reactiveTask({
    task: 't',
    collection: 'orders',
    debounce: 0,
    handler: async (given) => {
      context = given;
      await act(given, mill);
    },
  });
  await mill.drain();
  return { context, task: await mill.tasks.get('t', 'a') };
}

it.each(['complete', 'markCompleted'] as const)('completes a task in a transaction by %s', async (call) => {
  const { context, task } = await afterRun((given, mill) =>
    mill.withTransaction((transaction) => given[call]({ transaction })),
  );
  expect(task).toMatchObject({ status: 'completed' });
  await expect(context?.[call]({})).rejects.toThrow(`${call}() needs { transaction }`);
});

it.each(['defer', 'deferCurrent'] as const)('puts a task back for later by %s', async (call) => {
  const { context, task } = await afterRun((given) => given[call](AT));
  expect(task).toMatchObject({ status: 'pending', runAt: AT, attempts: 0 });
  expect(() => context?.[call]('soon')).toThrow(`${call} must be a duration`);
});
