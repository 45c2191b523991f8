import { expect, it } from 'vitest';
import type { Tidemill, TidemillOptions } from '../../../src/index.js';
import { until } from '../../support/mills.js';
import { startedUp } from '../beacons.js';
import { eachPlanner, type Yard } from './yards.js';

const numbers = (count: number) => Array.from({ length: count }, (_, _id) => ({ _id, n: 1 }));

/** A mill whose reconciliation of `things` takes long, with a record of its handlers' calls. */
function aMill(yard: Yard, reactive: TidemillOptions['reactive'] = {}) {
  const mill = yard.mill({
    pollInterval: { min: 10, max: 1_000 },
    // Slow enough not to end before what it must not hold up, also on a busy machine.
    reactive: { reconcileRate: 100, ...reactive },
  });
  const [runs, reconciled]: string[][] = [[], []];
  mill.on('reconcile:complete', ({ tasks }) => reconciled?.push(...tasks));
  const define = (task: string, collection: string, filter: object): Promise<void> =>
    mill.reactiveTask({
      task,
      collection,
      filter,
      debounce: 0,
      handler: ({ docId }) => void runs?.push(`${task} ${String(docId)}`),
    });
  return { mill, runs: runs ?? [], reconciled: reconciled ?? [], define };
}

const begun = (mill: Tidemill): Promise<unknown> =>
  until('the large one is looked at', async () =>
    (await mill.tasks.planning()).reconciling.some(({ processed }) => processed > 0),
  );

eachPlanner('a long reconciliation', (aYard) => {
  it('a long reconciliation does not hold up the first one of a smaller collection', async () => {
    const yard = await aYard();
    await yard.docs.insertMany(numbers(5_000));
    await yard.others.insertOne({ _id: 1 });
    const { mill, runs, reconciled, define } = aMill(yard);
    await define('large', 'things', { n: 2 });
    await mill.start();
    await begun(mill);
    await define('small', 'others', {});
    await until('the small one is handled', () => runs.includes('small 1'));
    expect(reconciled).not.toContain('large');
  });

  it('a long reconciliation does not hold up documents that were written since the start', async () => {
    const yard = await aYard();
    await yard.docs.insertMany(numbers(5_000));
    const { mill, runs, reconciled, define } = aMill(yard);
    await define('large', 'things', { n: 2 });
    await mill.start();
    await yard.docs.insertOne({ _id: 1_000_000, n: 2 });
    await until('the new document is handled', () => runs.includes('large 1000000'));
    expect(reconciled).toEqual([]);
    // A pass visits it last.
    const { reconciling } = await mill.tasks.planning();
    expect(reconciling).toMatchObject([{ task: 'large' }]);
    expect(reconciling[0]?.processed).toBeLessThan(4_000);
  });
});

eachPlanner('a cleanup begun by another leader', (aYard) => {
  it('a new leader continues a cleanup from where the previous one stopped', async () => {
    const yard = await aYard();
    const { mill: first, define } = aMill(yard);
    await define('t', 'things', {});
    await startedUp(first, 't');
    await first.stop();
    const old = new Date(0);
    await yard.putTasks(
      Array.from({ length: 20 }, (_, sourceDocId) => ({
        task: 't',
        sourceDocId,
        status: 'completed' as const,
        scheduledAt: old,
        initialScheduledAt: old,
        createdAt: old,
        updatedAt: old,
        attempts: 1,
        matched: false,
      })),
    );
    await yard.begunCleanup('t', 12);
    const { mill, define: defineAgain } = aMill(yard, { cleanupInterval: '1h' });
    await defineAgain('t', 'things', {});
    await mill.start();
    await until('the rest is gone', async () => (await yard.count({ task: 't' })) === 12);
    await until('it has ended', async () => (await yard.state('t'))?.cleanedUpTo === null);
    expect(await yard.count({ task: 't' })).toBe(12);
  });
});
