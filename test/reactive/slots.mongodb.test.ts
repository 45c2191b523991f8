import { expect, it } from 'vitest';
import { Plant } from './plant.js';

it('the concurrency of the mill is one limit over jobs and tasks', async () => {
  const plant = new Plant();
  const mill = plant.mill({ concurrency: 3, reactive: { concurrency: 10 } });
  let running = 0;
  let most = 0;
  const work = async (): Promise<void> => {
    most = Math.max(most, (running += 1));
    await new Promise((resolve) => setTimeout(resolve, 5));
    running -= 1;
  };
  const job = mill.job('job', { concurrency: 10 }, work);
  void plant.define(mill, { collection: 'things', handler: work });
  await plant.collection('things').insertMany(Array.from({ length: 30 }, (_, _id) => ({ _id })));
  const asked = await job.enqueueMany(Array.from({ length: 30 }, (_, n) => ({ data: n })));
  await mill.start();
  await Promise.all([
    ...asked.map(({ id }) => mill.jobs.result(id)),
    ...Array.from({ length: 30 }, (_, id) => plant.ran(id)),
  ]);
  expect(most).toBe(3);
});
