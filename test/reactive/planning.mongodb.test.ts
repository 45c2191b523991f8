import { describe, expect, it } from 'vitest';
import { gate, until } from '../support/mills.js';
import { Plant } from './plant.js';

const FILTERED = {
  collection: 'orders',
  filter: { status: 'paid' },
  watchProjection: { status: 1, total: 1 },
} as const;

describe('planning of changes on MongoDB', () => {
  it('runs a document that is inserted, updated, replaced or upserted so that it matches', async () => {
    const plant = new Plant();
    const orders = plant.collection('orders');
    await plant.started(FILTERED);
    await orders.insertOne({ _id: 'inserted', status: 'paid', total: 1 });
    expect((await plant.ran('inserted'))[0]).toMatchObject({
      attempt: 1,
      values: { _id: 'inserted', status: 'paid', total: 1 },
    });
    await orders.insertMany([
      { _id: 'updated', status: 'new' },
      { _id: 'replaced', status: 'new' },
    ]);
    await plant.quiet(['orders']);
    expect(await plant.tasks('orders').countDocuments()).toBe(1);
    await orders.updateOne({ _id: 'updated' }, { $set: { status: 'paid' } });
    await orders.replaceOne({ _id: 'replaced' }, { status: 'paid', total: 3 });
    await orders.updateOne({ _id: 'upserted' }, { $set: { status: 'paid' } }, { upsert: true });
    await Promise.all(['updated', 'replaced', 'upserted'].map((id) => plant.ran(id)));
    expect(await plant.settled('orders', 'replaced')).toMatchObject({
      task: 'task',
      sourceDocId: 'replaced',
      attempts: 1,
      lastObservedValues: { _id: 'replaced', status: 'paid', total: 3 },
    });
    expect(plant.errors).toEqual([]);
  });

  it('runs a document when watched fields change, not when others do or values stay the same', async () => {
    const plant = new Plant();
    const orders = plant.collection('orders');
    await plant.started(FILTERED);
    await orders.insertOne({ _id: 1, status: 'paid', total: 1, note: 'a' });
    await plant.ran(1);
    const before = await plant.settled('orders', 1);
    await orders.updateOne({ _id: 1 }, { $set: { note: 'b' } });
    await orders.updateOne({ _id: 1 }, { $set: { total: 2 } });
    await orders.updateOne({ _id: 1 }, { $set: { total: 1 } });
    await orders.replaceOne({ _id: 1 }, { status: 'paid', total: 1, other: true });
    await plant.quiet(['orders']);
    // The short visit to another total may have been seen or not; the final state is what counts.
    const seen = plant.of(1).length;
    expect(plant.of(1).at(-1)?.values).toMatchObject({ total: 1 });
    expect((await plant.task('orders', 1))?.['createdAt']).toEqual(before['createdAt']);
    const still = await plant.task('orders', 1);
    await orders.updateOne({ _id: 1 }, { $set: { note: 'c' } });
    await plant.quiet(['orders']);
    expect(await plant.task('orders', 1)).toEqual(still);
    await orders.updateOne({ _id: 1 }, { $set: { total: 9 } });
    await plant.ran(1, seen + 1);
    expect(plant.of(1).at(-1)?.values).toMatchObject({ total: 9 });
  });

  it('runs a document when any field changes if there is no projection', async () => {
    const plant = new Plant();
    const notes = plant.collection('notes');
    await plant.started({ collection: 'notes' });
    await notes.insertOne({ _id: 1, deep: { list: [1, 2] } });
    expect((await plant.ran(1))[0]?.values).toEqual({ _id: 1, deep: { list: [1, 2] } });
    await plant.settled('notes', 1);
    await notes.updateOne({ _id: 1 }, { $push: { 'deep.list': 3 } as never });
    await plant.ran(1, 2);
    await plant.settled('notes', 1);
    await notes.updateOne({ _id: 1 }, { $set: { added: null } });
    await plant.ran(1, 3);
    await plant.settled('notes', 1);
    await notes.updateOne({ _id: 1 }, { $unset: { added: 1 } });
    await plant.ran(1, 4);
  });

  it('runs a document again when it returns with the same values after it left or was deleted', async () => {
    const plant = new Plant();
    const orders = plant.collection('orders');
    await plant.started(FILTERED);
    await orders.insertOne({ _id: 1, status: 'paid', total: 1 });
    await plant.ran(1);
    await orders.updateOne({ _id: 1 }, { $set: { status: 'open' } });
    await plant.quiet(['orders']);
    expect(await plant.task('orders', 1)).toMatchObject({ status: 'completed', matched: false });
    await orders.updateOne({ _id: 1 }, { $set: { status: 'paid' } });
    const [first, second] = await plant.ran(1, 2);
    expect(second?.values).toEqual(first?.values);
    await orders.deleteOne({ _id: 1 });
    await plant.quiet(['orders']);
    expect(await plant.task('orders', 1)).toMatchObject({ matched: false });
    await orders.insertOne({ _id: 1, status: 'paid', total: 1 });
    await plant.ran(1, 3);
  });

  it('does not run a document that is deleted', async () => {
    const plant = new Plant();
    const notes = plant.collection('notes');
    await plant.started({ collection: 'notes' });
    await notes.insertMany([{ _id: 1 }, { _id: 2 }]);
    await Promise.all([plant.ran(1), plant.ran(2)]);
    await notes.deleteMany({});
    await plant.quiet(['notes']);
    expect(plant.runs.filter(({ task }) => task === 'task')).toHaveLength(2);
    expect(await plant.tasks('notes').countDocuments({ matched: true })).toBe(0);
  });

  it('runs documents that existed before the task was defined', async () => {
    const plant = new Plant();
    await plant.collection('orders').insertMany([
      { _id: 'a', status: 'paid' },
      { _id: 'b', status: 'new' },
    ]);
    await plant.started(FILTERED);
    await plant.ran('a');
    await plant.quiet(['orders']);
    expect(await plant.tasks('orders').countDocuments()).toBe(1);
  });
});

describe('tasks of documents that leave the filter on MongoDB', () => {
  const leaving = async (deleteWhen: string, keepFor: number | string): Promise<Plant> => {
    const plant = new Plant();
    await plant.started({ ...FILTERED, cleanupPolicy: { deleteWhen: deleteWhen as never, keepFor } });
    await plant.collection('orders').insertMany([
      { _id: 'left', status: 'paid' },
      { _id: 'gone', status: 'paid' },
      { _id: 'stays', status: 'paid' },
    ]);
    await Promise.all(['left', 'gone', 'stays'].map((id) => plant.ran(id)));
    await plant.quiet(['orders']);
    await plant.collection('orders').updateOne({ _id: 'left' }, { $set: { status: 'open' } });
    await plant.collection('orders').deleteOne({ _id: 'gone' });
    await plant.quiet(['orders']);
    return plant;
  };
  const kept = async (plant: Plant): Promise<unknown[]> =>
    (await plant.tasks('orders').find().sort({ _id: 1 }).toArray()).map((row) => row['sourceDocId']);

  it('with keepFor 0, keeps the task of a document that left the filter, not of a deleted one', async () => {
    expect(await kept(await leaving('sourceDocumentDeleted', 0))).toEqual(['left', 'stays']);
  });

  it('sourceDocumentDeletedOrNoLongerMatching with keepFor 0 deletes the task of a document that left', async () => {
    const plant = await leaving('sourceDocumentDeletedOrNoLongerMatching', 0);
    expect(await kept(plant)).toEqual(['stays']);
    await plant.collection('orders').updateOne({ _id: 'left' }, { $set: { status: 'paid' } });
    await plant.ran('left', 2);
  });

  it('keepFor keeps the task of a document that left, and deleteWhen never keeps it forever', async () => {
    expect(await kept(await leaving('sourceDocumentDeletedOrNoLongerMatching', '1h'))).toHaveLength(3);
    expect(await kept(await leaving('never', 0))).toHaveLength(3);
  });

  it('skips a document that left before its task was claimed, and runs it when it returns', async () => {
    const plant = new Plant();
    const orders = plant.collection('orders');
    const planner = plant.mill();
    void plant.define(planner, FILTERED);
    plant.mark(planner);
    await planner.start({ roles: ['plan', 'maintain'] });
    await orders.insertOne({ _id: 1, status: 'paid' });
    await until('it is planned', () => plant.task('orders', 1).then((task) => task !== null));
    await orders.updateOne({ _id: 1 }, { $set: { status: 'open' } });
    await until('it has left', async () => (await plant.task('orders', 1))?.['matched'] === false);
    const worker = plant.mill();
    void plant.define(worker, FILTERED);
    plant.mark(worker);
    await worker.start({ roles: ['work'] });
    const task = await plant.settled('orders', 1);
    expect(task['executionHistory']).toMatchObject([{ status: 'skipped' }]);
    expect(plant.of(1)).toEqual([]);
    await orders.updateOne({ _id: 1 }, { $set: { status: 'paid' } });
    await plant.ran(1);
  });
});

describe('debounce on MongoDB', () => {
  it('a burst of updates leads to one run with the last values', async () => {
    const plant = new Plant();
    const notes = plant.collection('notes');
    await plant.started({ collection: 'notes', debounce: '1h' });
    await notes.insertOne({ _id: 1, n: 0 });
    for (let n = 1; n <= 40; n += 1) await notes.updateOne({ _id: 1 }, { $set: { n } });
    await plant.quiet();
    expect(plant.of(1)).toEqual([]);
    await plant.tasks('notes').updateOne({}, { $set: { scheduledAt: new Date(0) } });
    await plant.quiet(['notes']);
    expect(plant.of(1)).toMatchObject([{ values: { n: 40 } }]);
  });

  it('a document that keeps changing runs within maxWait, and so does its last state', async () => {
    const plant = new Plant();
    const notes = plant.collection('notes');
    await plant.started({ collection: 'notes', debounce: { wait: 450, maxWait: 500 } });
    await notes.insertOne({ _id: 1, n: 0 });
    const began = Date.now();
    let n = 0;
    while (plant.of(1).length < 2 && Date.now() - began < 40_000)
      await notes.updateOne({ _id: 1 }, { $set: { n: (n += 1) } });
    expect(plant.of(1).length).toBeGreaterThanOrEqual(2);
    const between = plant.of(1).map(({ values }) => Number(values['n']));
    expect(between).toEqual([...between].sort((a, b) => a - b));
    await until('the last state has run', () => plant.of(1).at(-1)?.values['n'] === n);
  });

  it('waits 1000 ms by default, and at most 5000 ms for a document that keeps changing', async () => {
    const plant = new Plant();
    const mill = plant.mill();
    plant.mark(mill);
    void mill.reactiveTask({ task: 'task', collection: 'notes', handler: () => undefined });
    await mill.start({ roles: ['plan'] });
    await plant.collection('notes').insertOne({ _id: 1 });
    const task = await until('it is planned', async () => (await plant.task('notes', 1)) ?? false);
    const { createdAt, scheduledAt } = task as unknown as Record<'createdAt' | 'scheduledAt', Date>;
    expect(scheduledAt.getTime() - createdAt.getTime()).toBe(1_000);
    let wait = 0;
    for (let n = 0; wait < 4_500; n += 1) {
      await plant.collection('notes').updateOne({ _id: 1 }, { $set: { n } });
      const next = (await until('the change is planned', async () => {
        const row = await plant.task('notes', 1);
        return (row?.['lastObservedValues'] as { n?: number }).n === n && row;
      })) as unknown as { scheduledAt: Date };
      wait = next.scheduledAt.getTime() - createdAt.getTime();
      expect(wait).toBeLessThanOrEqual(5_000);
    }
  });
});

describe('changes while a task runs on MongoDB', () => {
  it('any number of changes while a task runs leads to exactly one more run', async () => {
    const plant = new Plant();
    const notes = plant.collection('notes');
    const [entered, leave] = [gate(), gate()];
    await plant.started({
      collection: 'notes',
      watchProjection: { n: 1 },
      handler: async () => {
        entered.open();
        await leave.promise;
      },
    });
    await notes.insertOne({ _id: 1, n: 0 });
    await entered.promise;
    await notes.updateOne({ _id: 1 }, { $set: { other: true } });
    await plant.quiet();
    expect(await plant.task('notes', 1)).toMatchObject({ status: 'processing' });
    for (let n = 1; n <= 5; n += 1) await notes.updateOne({ _id: 1 }, { $set: { n } });
    await until('it is dirty', async () => {
      const task = await plant.task('notes', 1);
      return task?.['status'] === 'processing_dirty' && (task['lastObservedValues'] as { n: number }).n === 5;
    });
    expect(plant.of(1)).toHaveLength(1);
    leave.open();
    await plant.ran(1, 2);
    await plant.quiet(['notes']);
    expect(plant.of(1).map(({ values }) => values['n'])).toEqual([0, 5]);
    expect(await plant.task('notes', 1)).toMatchObject({ status: 'completed', attempts: 1 });
  });

  it('a change that is undone while the task runs still leads to another run', async () => {
    const plant = new Plant();
    const notes = plant.collection('notes');
    const [entered, leave] = [gate(), gate()];
    await plant.started({
      collection: 'notes',
      handler: async () => {
        entered.open();
        await leave.promise;
      },
    });
    await notes.insertOne({ _id: 1, n: 0 });
    await entered.promise;
    await notes.updateOne({ _id: 1 }, { $set: { n: 1 } });
    await plant.quiet();
    await notes.updateOne({ _id: 1 }, { $set: { n: 0 } });
    await plant.quiet();
    leave.open();
    await plant.ran(1, 2);
  });
});

describe('updatedAt of tasks on MongoDB', () => {
  it('updatedAt moves with the snapshot and a manual retry, not with claims, failures or settlements', async () => {
    const plant = new Plant();
    const notes = plant.collection('notes');
    const failing = { value: true };
    const mill = await plant.started({
      collection: 'notes',
      watchProjection: { n: 1 },
      retryPolicy: { type: 'fixed', interval: 10, maxAttempts: 3 },
      handler: () => {
        if (failing.value) throw new Error('no');
      },
    });
    await notes.insertOne({ _id: 1, n: 0 });
    const failed = await plant.settled('notes', 1, 'failed');
    expect(failed).toMatchObject({ attempts: 3, updatedAt: failed['createdAt'] as Date });
    failing.value = false;
    expect(await mill.retryReactiveTasks({ task: 'task' })).toEqual({ modifiedCount: 1 });
    const retried = await plant.settled('notes', 1);
    expect(+retried['updatedAt']).toBeGreaterThan(+failed['updatedAt']);
    await notes.updateOne({ _id: 1 }, { $set: { other: 1 } });
    await plant.quiet(['notes']);
    expect((await plant.task('notes', 1))?.['updatedAt']).toEqual(retried['updatedAt']);
    await notes.updateOne({ _id: 1 }, { $set: { n: 1 } });
    await plant.quiet(['notes']);
    const changed = await plant.task('notes', 1);
    expect(+changed?.['updatedAt']).toBeGreaterThan(+retried['updatedAt']);
    expect(changed?.['createdAt']).toEqual(failed['createdAt']);
  });
});
