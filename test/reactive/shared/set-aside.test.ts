import { expect, it } from 'vitest';
import type { Tidemill } from '../../../src/index.js';
import { gate, until } from '../../support/mills.js';
import { withBeacon } from '../beacons.js';
import { eachServedYard, type Yard } from './yards.js';

const FAST = { pollInterval: { min: 10, max: 1_000 }, leaseDuration: 3_000 } as const;

/** A worker whose handler keeps its transaction open after `markCompleted`, and a separate leader. */
async function anOpenTransaction(aYard: () => Promise<Yard>) {
  const yard = await aYard();
  const handled: string[] = [];
  const [marked, commit] = [gate(), gate()];
  const worker = yard.mill(FAST);
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
  await withBeacon(worker);
  await worker.start({ roles: ['work', 'maintain'] });
  const leader = async (): Promise<Tidemill> => {
    const mill = yard.mill(FAST);
    await withBeacon(mill);
    await mill.start({ roles: ['plan'] });
    return mill;
  };
  const first = await leader();
  await yard.docs.insertOne({ _id: 1, n: 1 });
  await marked.promise;
  await yard.docs.updateOne({ _id: 1 }, { $set: { n: 2 } });
  const has = (what: string) => until(`${what} among ${handled.join(', ')}`, () => handled.includes(what));
  return { yard, worker, first, leader, commit, handled, has };
}

eachServedYard("a user's open transaction on one task", (aYard) => {
  it('an open transaction on a task holds up no other document, no reconciliation and no resume point', async () => {
    const { yard, worker, first, commit, handled, has } = await anOpenTransaction(aYard);
    await yard.docs.insertOne({ _id: 2, n: 1 });
    await yard.others.insertOne({ _id: 3 });
    await Promise.all([has('held 2 1'), has('free 3')]);
    await yard.planned();
    expect(await yard.unplanned?.()).toBe(0);
    const before = (await yard.state('held'))?.done ?? 0;
    await worker.tasks.reconcile('held');
    await until('it is reconciled', async () => ((await yard.state('held'))?.done ?? 0) > before);
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
    const { yard, first, leader, commit, has } = await anOpenTransaction(aYard);
    await yard.planned();
    await first.stop();
    await leader();
    await yard.planned();
    commit.open();
    await has('held 1 2');
  });
});
