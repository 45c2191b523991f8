import { expect, it } from 'vitest';
import type { JobContext, Tidemill } from '../../../src/index.js';
import { memory } from '../../../src/memory/index.js';
import { aMill, gate, until } from '../../support/mills.js';

const progressOf = async (mill: Tidemill, id: string): Promise<unknown> =>
  (await mill.jobs.get(id))?.progress;

/** Runs one job of each name; resolves when the progress of "plain" can be read while all of them run. */
async function whileRunning(mill: Tidemill, names: readonly string[]): Promise<unknown[]> {
  await mill.start();
  const jobs = await mill.enqueueMany([...names, 'plain'].map((name) => ({ name })));
  const ids = jobs.map(({ id }) => id);
  await until('progress is written', async () => (await progressOf(mill, ids.at(-1)!)) === 'half');
  return Promise.all(ids.slice(0, -1).map((id) => progressOf(mill, id)));
}

it('writes progress of a running job even if its handler contains the word "complete"', async () => {
  const mill = aMill(memory());
  const end = gate();
  // The word complete, in a comment and in a text.
  mill.job('wordy', async (job) => {
    job.progress(`half ${'complete'.slice(0, 0)}`.trim());
    await end.promise;
  });
  mill.job('plain', async (job) => {
    job.progress('half');
    await end.promise;
  });
  expect(await whileRunning(mill, ['wordy'])).toEqual(['half']);
  end.open();
});

it('writes progress of a transactional job only with its outcome', async () => {
  const mill = aMill(memory());
  const end = gate();
  const handler = async (job: JobContext): Promise<void> => {
    job.progress('half');
    await end.promise;
  };
  mill.job('in-transaction', { transactional: true }, handler);
  mill.job('plain', handler);
  expect(await whileRunning(mill, ['in-transaction'])).toEqual([undefined]);
  end.open();
  await until('it is written with the outcome', async () => {
    const { items } = await mill.jobs.find({ name: 'in-transaction', status: 'completed' });
    return items[0]?.progress === 'half';
  });
});

it('treats a name as transactional after the first call of complete()', async () => {
  const mill = aMill(memory());
  const end = gate();
  mill.job('learned', async (job) => {
    job.progress('half');
    if (job.data === 'first')
      await mill.withTransaction((transaction) => job.complete({ transaction: transaction }));
    else await end.promise;
  });
  mill.job('plain', async (job) => {
    job.progress('half');
    await end.promise;
  });
  await mill.start();
  await mill.jobs.result((await mill.enqueue('learned', 'first')).id);
  expect(await whileRunning(mill, ['learned'])).toEqual([undefined]);
  end.open();
});

it('rejects a transactional option that is not a boolean', () => {
  const mill = aMill(memory());
  const options = { transactional: 'yes' as unknown as boolean };
  expect(() => mill.job('x', options, () => undefined)).toThrow(/transactional must be true or false/u);
});
