import { expect, it } from 'vitest';
import { defineJob } from '../../src/index.js';
import { testMill } from '../../src/testing/index.js';

const imported = defineJob<number>('import');

it.each(['drain', 'runDue'] as const)('%s runs batches without waiting until they are full', async (run) => {
  const mill = testMill();
  const calls: number[][] = [];
  mill.batch(imported, { size: 2, wait: '10s', concurrency: 1 }, (jobs) => {
    calls.push(jobs.map(({ data }) => data));
  });
  await mill.enqueueMany([1, 2, 3].map((data) => ({ job: imported, data })));
  expect(await mill[run]()).toMatchObject({ completed: 3, failed: 0, retried: 0 });
  expect(calls).toEqual([[1, 2], [3]]);
});

it('runs batches of reactive tasks', async () => {
  const mill = testMill();
  const calls: unknown[][] = [];
  await mill.reactiveTask({
    task: 't',
    collection: 'things',
    debounce: 0,
    batch: { wait: '10s' },
    handler: async (tasks, { getDocuments }) => {
      calls.push((await getDocuments()).map((document) => document?.['n']));
    },
  });
  const things = mill.store.collection('things');
  for (const n of [1, 2]) things.insert({ _id: n, n });
  expect(await mill.drain()).toMatchObject({ completed: 2 });
  expect(calls).toEqual([[1, 2]]);
});

it('runs batches by key without waiting, with jobs of one key in each call', async () => {
  const mill = testMill();
  const calls: unknown[] = [];
  mill.batch(imported, { size: 2, wait: '10s', byKey: true }, (jobs, { limitKey }) => {
    calls.push([limitKey, jobs.map(({ data }) => data)]);
  });
  for (const [n, key] of ['a', 'b', 'a', 'a'].entries()) await mill.enqueue(imported, n, { key });
  await mill.enqueue(imported, 4);
  expect(await mill.drain()).toMatchObject({ completed: 5, failed: 0, retried: 0 });
  expect(calls).toEqual([
    ['a', [0, 2]],
    ['b', [1]],
    ['', [4]],
    ['a', [3]],
  ]);
});
