import { expect, it } from 'vitest';
import { gate, until } from '../../support/mills.js';
import { eachPlanner, type Thing } from './test-databases.js';

const AT_ONCE = { collection: 'things', debounce: 0, task: 't' } as const;
const RETRY = { type: 'fixed', interval: '1h', maxAttempts: 3 } as const;
const BATCH = { size: 3, wait: '30s' } as const;
const three = [
  { _id: 1, n: 10 },
  { _id: 2, n: 20 },
  { _id: 3, n: 30 },
] as const;

eachPlanner('batches of reactive tasks', (aDatabase) => {
  it('gives the handler the due tasks and their documents in one call', async () => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    const calls: (readonly [unknown, number | null | undefined])[][] = [];
    await mill.reactiveTask<Thing>({
      ...AT_ONCE,
      batch: BATCH,
      handler: async (tasks, { getDocuments }) => {
        const documents = await getDocuments();
        calls.push(tasks.map(({ docId }, index) => [docId, documents[index]?.n]));
      },
    });
    await mill.start();
    await docs.insertMany(three);
    for (const { _id } of three) await reaches(mill, 't', _id, 'completed');
    expect(calls).toHaveLength(1);
    expect(new Map(calls[0])).toEqual(new Map(three.map(({ _id, n }) => [_id, n])));
  });

  it('gives each task of a batch its own outcome', async () => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    await mill.reactiveTask({
      ...AT_ONCE,
      batch: BATCH,
      retryPolicy: RETRY,
      handler: (tasks) => {
        const of = (id: number) => tasks.find(({ docId }) => docId === id)!;
        of(1).complete();
        of(2).deferCurrent('1h');
        throw new Error('the rest failed');
      },
    });
    await mill.start();
    await docs.insertMany(three);
    expect((await reaches(mill, 't', 1, 'completed')).attempts).toBe(1);
    await until('all have an outcome', async () => (await mill.tasks.count({ status: 'pending' })) === 2);
    const [, second, third] = await Promise.all(three.map(async ({ _id }) => mill.tasks.get('t', _id)));
    expect(second).toMatchObject({ status: 'pending', attempts: 0 });
    expect(third).toMatchObject({ status: 'pending', attempts: 1, lastError: 'the rest failed' });
  });

  it('skips the tasks of a batch whose document changed, and fetches those of the others', async () => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    const skipped: unknown[] = [];
    const read: unknown[] = [];
    let calls = 0;
    mill.on('task:skip', ({ task }) => skipped.push(task.sourceDocId));
    await mill.reactiveTask<Thing>({
      ...AT_ONCE,
      batch: { size: 3, wait: 300 },
      watchProjection: { n: 1 },
      handler: async (tasks, { getDocuments }) => {
        calls += 1;
        if (calls === 1) await docs.updateOne({ _id: 2 }, { $set: { n: 21 } });
        const documents = await getDocuments({ projection: { n: 1 } });
        read.push(tasks.map(({ docId }, index) => `${String(docId)} ${String(documents[index]?.n)}`).sort());
      },
    });
    await mill.start();
    await docs.insertMany(three);
    await until('the change has run', () => calls >= 2);
    for (const { _id } of three) await reaches(mill, 't', _id, 'completed');
    expect(read[0]).toEqual(['1 10', '2 undefined', '3 30']);
    expect(read.at(-1)).toEqual(['2 21']);
    // Its change came before the outcome, which therefore counts for neither.
    expect(skipped.every((id) => id === 2)).toBe(true);
  });

  it('completes all tasks of a batch inside one transaction', async () => {
    const { docs, mill: aMill, reaches } = await aDatabase();
    const mill = aMill();
    const read: unknown[] = [];
    await mill.reactiveTask<Thing>({
      ...AT_ONCE,
      batch: BATCH,
      handler: async (_tasks, { getDocuments, markCompleted }) => {
        await mill.withTransaction(async (transaction) => {
          read.push((await getDocuments({ transaction })).map((document) => document?.n).sort());
          await markCompleted({ transaction });
        });
      },
    });
    await mill.start();
    await docs.insertMany(three);
    for (const { _id } of three) await reaches(mill, 't', _id, 'completed');
    expect(read).toEqual([[10, 20, 30]]);
  });

  it('hands back the tasks of a batch at the end of a stop, without using an attempt', async () => {
    const { docs, mill: aMill } = await aDatabase();
    const mill = aMill();
    const began = gate();
    const reasons: unknown[] = [];
    await mill.reactiveTask({
      ...AT_ONCE,
      batch: BATCH,
      handler: async (_tasks, { signal }) => {
        began.open();
        await new Promise((resolve) => signal.addEventListener('abort', resolve));
        reasons.push((signal.reason as { code: string }).code);
        throw signal.reason;
      },
    });
    await mill.start();
    await docs.insertMany(three);
    await began.promise;
    await mill.stop({ timeout: 0 });
    expect(reasons).toEqual(['STOPPING']);
    const again = aMill();
    await again.reactiveTask({ ...AT_ONCE, batch: BATCH, handler: () => undefined });
    const found = await Promise.all(three.map(async ({ _id }) => again.tasks.get('t', _id)));
    expect(found.map((task) => [task?.status, task?.attempts])).toEqual(three.map(() => ['pending', 0]));
  });
});
