import { expect, it } from 'vitest';
import type { Tidemill } from '../../../src/index.js';
import { gate, until } from '../../support/mills.js';
import { withProbeTask } from '../probes.js';
import { eachServedDatabase, type TestDatabase } from './test-databases.js';

const FAST = { pollInterval: { min: 10, max: 1_000 }, leaseDuration: 3_000 } as const;

/** A worker whose handler keeps its transaction open after `markCompleted`, and a separate leader. */
async function anOpenTransaction(aDatabase: () => Promise<TestDatabase>) {
  const database = await aDatabase();
  const handled: string[] = [];
  const [marked, commit] = [gate(), gate()];
  const worker = database.mill(FAST);
  await worker.reactiveTask<{ n: number }>({
    task: 'held',
    collection: 'things',
    debounce: 0,
    handler: async ({ docId, getDocument, markCompleted }) => {
      const { n } = await getDocument();
      if (docId === 1 && n === 1)
        await worker.withTransaction(async (transaction) => {
          await markCompleted({ transaction });
          marked.open();
          await commit.promise;
        });
      handled.push(`held ${String(docId)} ${String(n)}`);
    },
  });
  await worker.reactiveTask({
    task: 'free',
    collection: 'others',
    debounce: 0,
    handler: ({ docId }) => void handled.push(`free ${String(docId)}`),
  });
  await withProbeTask(worker);
  await worker.start({ roles: ['work', 'maintain'] });
  const leader = async (): Promise<Tidemill> => {
    const mill = database.mill(FAST);
    await withProbeTask(mill);
    await mill.start({ roles: ['plan'] });
    return mill;
  };
  const first = await leader();
  await database.docs.insertOne({ _id: 1, n: 1 });
  await marked.promise;
  await database.docs.updateOne({ _id: 1 }, { $set: { n: 2 } });
  const has = (what: string) => until(`${what} among ${handled.join(', ')}`, () => handled.includes(what));
  return { database, worker, first, leader, commit, handled, has };
}

eachServedDatabase("a user's open transaction on one task", (aDatabase) => {
  it('an open transaction on a task holds up no other document, no reconciliation and no resume point', async () => {
    const { database, worker, first, commit, handled, has } = await anOpenTransaction(aDatabase);
    await database.docs.insertOne({ _id: 2, n: 1 });
    await database.others.insertOne({ _id: 3 });
    await Promise.all([has('held 2 1'), has('free 3')]);
    await database.planned();
    expect(await database.unplanned?.()).toBe(0);
    const before = (await database.state('held'))?.done ?? 0;
    await worker.tasks.reconcile('held');
    await until('it is reconciled', async () => ((await database.state('held'))?.done ?? 0) > before);
    await until('it is a trouble', () =>
      first.health().troubles.some((one) => one.startsWith('documents of held: 1 cannot be planned')),
    );
    expect(handled).not.toContain('held 1 1');
    commit.open();
    await has('held 1 2');
    expect(handled.filter((one) => one === 'held 1 1')).toHaveLength(1);
    await until('the trouble is over', () => first.health().troubles.length === 0);
  });

  it('a change of a document with an open transaction survives a change of leader', async () => {
    const { database, first, leader, commit, has } = await anOpenTransaction(aDatabase);
    await database.planned();
    await first.stop();
    await leader();
    await database.planned();
    commit.open();
    await has('held 1 2');
  });
});
