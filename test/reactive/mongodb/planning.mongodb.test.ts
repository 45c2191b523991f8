import { describe, expect, it } from 'vitest';
import { gate, until } from '../../support/mills.js';
import { Fixture } from '../fixture.js';

const FILTERED = {
  collection: 'orders',
  filter: { status: 'paid' },
  watchProjection: { status: 1, total: 1 },
} as const;

describe('planning of changes on MongoDB', () => {
  it('runs a document that is inserted, updated, replaced or upserted so that it matches', async () => {
    const fixture = new Fixture();
    const orders = fixture.collection('orders');
    await fixture.started(FILTERED);
    await orders.insertOne({ _id: 'inserted', status: 'paid', total: 1 });
    expect((await fixture.ran('inserted'))[0]).toMatchObject({
      attempt: 1,
      values: { _id: 'inserted', status: 'paid', total: 1 },
    });
    await orders.insertMany([
      { _id: 'updated', status: 'new' },
      { _id: 'replaced', status: 'new' },
    ]);
    await fixture.quiet(['orders']);
    expect(await fixture.tasks('orders').countDocuments()).toBe(1);
    await orders.updateOne({ _id: 'updated' }, { $set: { status: 'paid' } });
    await orders.replaceOne({ _id: 'replaced' }, { status: 'paid', total: 3 });
    await orders.updateOne({ _id: 'upserted' }, { $set: { status: 'paid' } }, { upsert: true });
    await Promise.all(['updated', 'replaced', 'upserted'].map((id) => fixture.ran(id)));
    expect(await fixture.settled('orders', 'replaced')).toMatchObject({
      task: 'task',
      sourceDocId: 'replaced',
      attempts: 1,
      lastObservedValues: { _id: 'replaced', status: 'paid', total: 3 },
    });
    expect(fixture.errors).toEqual([]);
  });

  it('runs a document when watched fields change, not when others do or values stay the same', async () => {
    const fixture = new Fixture();
    const orders = fixture.collection('orders');
    await fixture.started(FILTERED);
    await orders.insertOne({ _id: 1, status: 'paid', total: 1, note: 'a' });
    await fixture.ran(1);
    const before = await fixture.settled('orders', 1);
    await orders.updateOne({ _id: 1 }, { $set: { note: 'b' } });
    await orders.updateOne({ _id: 1 }, { $set: { total: 2 } });
    await orders.updateOne({ _id: 1 }, { $set: { total: 1 } });
    await orders.replaceOne({ _id: 1 }, { status: 'paid', total: 1, other: true });
    await fixture.quiet(['orders']);
    // The short visit to another total may have been seen or not; the final state is what counts.
    const seen = fixture.of(1).length;
    expect(fixture.of(1).at(-1)?.values).toMatchObject({ total: 1 });
    expect((await fixture.task('orders', 1))?.['createdAt']).toEqual(before['createdAt']);
    const still = await fixture.task('orders', 1);
    await orders.updateOne({ _id: 1 }, { $set: { note: 'c' } });
    await fixture.quiet(['orders']);
    expect(await fixture.task('orders', 1)).toEqual(still);
    await orders.updateOne({ _id: 1 }, { $set: { total: 9 } });
    await fixture.ran(1, seen + 1);
    expect(fixture.of(1).at(-1)?.values).toMatchObject({ total: 9 });
  });

  it('runs a document when any field changes if there is no projection', async () => {
    const fixture = new Fixture();
    const notes = fixture.collection('notes');
    await fixture.started({ collection: 'notes' });
    await notes.insertOne({ _id: 1, deep: { list: [1, 2] } });
    expect((await fixture.ran(1))[0]?.values).toEqual({ _id: 1, deep: { list: [1, 2] } });
    await fixture.settled('notes', 1);
    await notes.updateOne({ _id: 1 }, { $push: { 'deep.list': 3 } as never });
    await fixture.ran(1, 2);
    await fixture.settled('notes', 1);
    await notes.updateOne({ _id: 1 }, { $set: { added: null } });
    await fixture.ran(1, 3);
    await fixture.settled('notes', 1);
    await notes.updateOne({ _id: 1 }, { $unset: { added: 1 } });
    await fixture.ran(1, 4);
  });

  it('runs a document again when it returns with the same values after it left or was deleted', async () => {
    const fixture = new Fixture();
    const orders = fixture.collection('orders');
    await fixture.started(FILTERED);
    await orders.insertOne({ _id: 1, status: 'paid', total: 1 });
    await fixture.ran(1);
    await orders.updateOne({ _id: 1 }, { $set: { status: 'open' } });
    await fixture.quiet(['orders']);
    expect(await fixture.task('orders', 1)).toMatchObject({ status: 'completed', matched: false });
    await orders.updateOne({ _id: 1 }, { $set: { status: 'paid' } });
    const [first, second] = await fixture.ran(1, 2);
    expect(second?.values).toEqual(first?.values);
    await orders.deleteOne({ _id: 1 });
    await fixture.quiet(['orders']);
    expect(await fixture.task('orders', 1)).toMatchObject({ matched: false });
    await orders.insertOne({ _id: 1, status: 'paid', total: 1 });
    await fixture.ran(1, 3);
  });

  it('does not run a document that is deleted', async () => {
    const fixture = new Fixture();
    const notes = fixture.collection('notes');
    await fixture.started({ collection: 'notes' });
    await notes.insertMany([{ _id: 1 }, { _id: 2 }]);
    await Promise.all([fixture.ran(1), fixture.ran(2)]);
    await notes.deleteMany({});
    await fixture.quiet(['notes']);
    expect(fixture.runs.filter(({ task }) => task === 'task')).toHaveLength(2);
    expect(await fixture.tasks('notes').countDocuments({ matched: true })).toBe(0);
  });

  it('runs documents that existed before the task was defined', async () => {
    const fixture = new Fixture();
    await fixture.collection('orders').insertMany([
      { _id: 'a', status: 'paid' },
      { _id: 'b', status: 'new' },
    ]);
    await fixture.started(FILTERED);
    await fixture.ran('a');
    await fixture.quiet(['orders']);
    expect(await fixture.tasks('orders').countDocuments()).toBe(1);
  });
});

describe('tasks of documents that leave the filter on MongoDB', () => {
  const leaving = async (deleteWhen: string, keepFor: number | string): Promise<Fixture> => {
    const fixture = new Fixture();
    await fixture.started({ ...FILTERED, cleanupPolicy: { deleteWhen: deleteWhen as never, keepFor } });
    await fixture.collection('orders').insertMany([
      { _id: 'left', status: 'paid' },
      { _id: 'gone', status: 'paid' },
      { _id: 'stays', status: 'paid' },
    ]);
    await Promise.all(['left', 'gone', 'stays'].map((id) => fixture.ran(id)));
    await fixture.quiet(['orders']);
    await fixture.collection('orders').updateOne({ _id: 'left' }, { $set: { status: 'open' } });
    await fixture.collection('orders').deleteOne({ _id: 'gone' });
    await fixture.quiet(['orders']);
    return fixture;
  };
  const kept = async (fixture: Fixture): Promise<unknown[]> =>
    (await fixture.tasks('orders').find().sort({ _id: 1 }).toArray()).map((row) => row['sourceDocId']);

  it('with keepFor 0, keeps the task of a document that left the filter, not of a deleted one', async () => {
    expect(await kept(await leaving('sourceDocumentDeleted', 0))).toEqual(['left', 'stays']);
  });

  it('sourceDocumentDeletedOrNoLongerMatching with keepFor 0 deletes the task of a document that left', async () => {
    const fixture = await leaving('sourceDocumentDeletedOrNoLongerMatching', 0);
    expect(await kept(fixture)).toEqual(['stays']);
    await fixture.collection('orders').updateOne({ _id: 'left' }, { $set: { status: 'paid' } });
    await fixture.ran('left', 2);
  });

  it('keepFor keeps the task of a document that left, and deleteWhen never keeps it forever', async () => {
    expect(await kept(await leaving('sourceDocumentDeletedOrNoLongerMatching', '1h'))).toHaveLength(3);
    expect(await kept(await leaving('never', 0))).toHaveLength(3);
  });

  it('skips a document that left before its task was claimed, and runs it when it returns', async () => {
    const fixture = new Fixture();
    const orders = fixture.collection('orders');
    const planner = fixture.mill();
    void fixture.define(planner, FILTERED);
    fixture.mark(planner);
    await planner.start({ roles: ['plan', 'maintain'] });
    await orders.insertOne({ _id: 1, status: 'paid' });
    await until('it is planned', () => fixture.task('orders', 1).then((task) => task !== null));
    await orders.updateOne({ _id: 1 }, { $set: { status: 'open' } });
    await until('it has left', async () => (await fixture.task('orders', 1))?.['matched'] === false);
    const worker = fixture.mill();
    void fixture.define(worker, FILTERED);
    fixture.mark(worker);
    await worker.start({ roles: ['work'] });
    const task = await fixture.settled('orders', 1);
    expect(task['executionHistory']).toMatchObject([{ status: 'skipped' }]);
    expect(fixture.of(1)).toEqual([]);
    await orders.updateOne({ _id: 1 }, { $set: { status: 'paid' } });
    await fixture.ran(1);
  });
});

describe('debounce on MongoDB', () => {
  it('a burst of updates leads to one run with the last values', async () => {
    const fixture = new Fixture();
    const notes = fixture.collection('notes');
    await fixture.started({ collection: 'notes', debounce: '1h' });
    await notes.insertOne({ _id: 1, n: 0 });
    for (let n = 1; n <= 40; n += 1) await notes.updateOne({ _id: 1 }, { $set: { n } });
    await fixture.quiet();
    expect(fixture.of(1)).toEqual([]);
    await fixture.tasks('notes').updateOne({}, { $set: { scheduledAt: new Date(0) } });
    await fixture.quiet(['notes']);
    expect(fixture.of(1)).toMatchObject([{ values: { n: 40 } }]);
  });

  it('a document that keeps changing runs within maxWait, and so does its last state', async () => {
    const fixture = new Fixture();
    const notes = fixture.collection('notes');
    await fixture.started({ collection: 'notes', debounce: { wait: 450, maxWait: 500 } });
    await notes.insertOne({ _id: 1, n: 0 });
    const began = Date.now();
    let n = 0;
    while (fixture.of(1).length < 2 && Date.now() - began < 40_000)
      await notes.updateOne({ _id: 1 }, { $set: { n: (n += 1) } });
    expect(fixture.of(1).length).toBeGreaterThanOrEqual(2);
    const between = fixture.of(1).map(({ values }) => Number(values['n']));
    expect(between).toEqual([...between].sort((a, b) => a - b));
    await until('the last state has run', () => fixture.of(1).at(-1)?.values['n'] === n);
  });

  it('waits 1000 ms by default, and at most 5000 ms for a document that keeps changing', async () => {
    const fixture = new Fixture();
    const mill = fixture.mill();
    fixture.mark(mill);
    void mill.reactiveTask({ task: 'task', collection: 'notes', handler: () => undefined });
    await mill.start({ roles: ['plan'] });
    await fixture.collection('notes').insertOne({ _id: 1 });
    const task = await until('it is planned', async () => (await fixture.task('notes', 1)) ?? false);
    const { createdAt, scheduledAt } = task as unknown as Record<'createdAt' | 'scheduledAt', Date>;
    expect(scheduledAt.getTime() - createdAt.getTime()).toBe(1_000);
    let wait = 0;
    for (let n = 0; wait < 4_500; n += 1) {
      await fixture.collection('notes').updateOne({ _id: 1 }, { $set: { n } });
      const next = (await until('the change is planned', async () => {
        const row = await fixture.task('notes', 1);
        return (row?.['lastObservedValues'] as { n?: number }).n === n && row;
      })) as unknown as { scheduledAt: Date };
      wait = next.scheduledAt.getTime() - createdAt.getTime();
      expect(wait).toBeLessThanOrEqual(5_000);
    }
  });
});

describe('changes while a task runs on MongoDB', () => {
  it('any number of changes while a task runs leads to exactly one more run', async () => {
    const fixture = new Fixture();
    const notes = fixture.collection('notes');
    const [entered, leave] = [gate(), gate()];
    await fixture.started({
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
    await fixture.quiet();
    expect(await fixture.task('notes', 1)).toMatchObject({ status: 'processing' });
    for (let n = 1; n <= 5; n += 1) await notes.updateOne({ _id: 1 }, { $set: { n } });
    await until('it is dirty', async () => {
      const task = await fixture.task('notes', 1);
      return task?.['status'] === 'processing_dirty' && (task['lastObservedValues'] as { n: number }).n === 5;
    });
    expect(fixture.of(1)).toHaveLength(1);
    leave.open();
    await fixture.ran(1, 2);
    await fixture.quiet(['notes']);
    expect(fixture.of(1).map(({ values }) => values['n'])).toEqual([0, 5]);
    expect(await fixture.task('notes', 1)).toMatchObject({ status: 'completed', attempts: 1 });
  });

  it('a change that is undone while the task runs still leads to another run', async () => {
    const fixture = new Fixture();
    const notes = fixture.collection('notes');
    const [entered, leave] = [gate(), gate()];
    await fixture.started({
      collection: 'notes',
      handler: async () => {
        entered.open();
        await leave.promise;
      },
    });
    await notes.insertOne({ _id: 1, n: 0 });
    await entered.promise;
    await notes.updateOne({ _id: 1 }, { $set: { n: 1 } });
    await fixture.quiet();
    await notes.updateOne({ _id: 1 }, { $set: { n: 0 } });
    await fixture.quiet();
    leave.open();
    await fixture.ran(1, 2);
  });
});

describe('updatedAt of tasks on MongoDB', () => {
  it('updatedAt moves with the snapshot and a manual retry, not with claims, failures or settlements', async () => {
    const fixture = new Fixture();
    const notes = fixture.collection('notes');
    const failing = { value: true };
    const mill = await fixture.started({
      collection: 'notes',
      watchProjection: { n: 1 },
      retryPolicy: { type: 'fixed', interval: 10, maxAttempts: 3 },
      handler: () => {
        if (failing.value) throw new Error('no');
      },
    });
    await notes.insertOne({ _id: 1, n: 0 });
    const failed = await fixture.settled('notes', 1, 'failed');
    expect(failed).toMatchObject({ attempts: 3, updatedAt: failed['createdAt'] as Date });
    failing.value = false;
    expect(await mill.retryReactiveTasks({ task: 'task' })).toEqual({ modifiedCount: 1 });
    const retried = await fixture.settled('notes', 1);
    expect(+retried['updatedAt']).toBeGreaterThan(+failed['updatedAt']);
    await notes.updateOne({ _id: 1 }, { $set: { other: 1 } });
    await fixture.quiet(['notes']);
    expect((await fixture.task('notes', 1))?.['updatedAt']).toEqual(retried['updatedAt']);
    await notes.updateOne({ _id: 1 }, { $set: { n: 1 } });
    await fixture.quiet(['notes']);
    const changed = await fixture.task('notes', 1);
    expect(+changed?.['updatedAt']).toBeGreaterThan(+retried['updatedAt']);
    expect(changed?.['createdAt']).toEqual(failed['createdAt']);
  });
});
