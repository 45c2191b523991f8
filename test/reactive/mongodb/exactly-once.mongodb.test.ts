import { describe, expect, it, onTestFinished } from 'vitest';
import { gate, until } from '../../support/mills.js';
import { startedUp, statusesOf, withProbeTask } from '../probes.js';
import { thingsFixture, type Row } from '../things-fixture.js';

const AT_ONCE = { collection: 'things', debounce: 0 } as const;

describe('markCompleted on MongoDB', () => {
  it('markCompleted completes the task with the commit, and nothing writes to it afterwards', async () => {
    const { docs, db, client, stored, raw, mill: aMill } = thingsFixture();
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
    // The initial reconciliation would be one more write.
    await startedUp(mill, 't');
    const writes: unknown[] = [];
    const stream = stored.watch([], { fullDocument: 'updateLookup' });
    onTestFinished(() => stream.close());
    stream.on('change', (event) => writes.push(event));
    await until('the stream is open', () => (stream.resumeToken ?? null) !== null);
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
    await until(
      () => `all writes were heard, not only ${JSON.stringify(writes)}`,
      () => writes.length >= 3,
    );
    expect(writes).toHaveLength(3);
  });

  it('a transaction that saw an old document does not commit, and the new version is handled', async () => {
    const { docs, db, client, mill: aMill, planned, reaches } = thingsFixture();
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
    await withProbeTask(mill);
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
});
