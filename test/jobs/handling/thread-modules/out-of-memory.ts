/** A process with little memory. Runs a job whose thread takes all of it, then another, and reports both. */
import { Tidemill } from '../../../../src/index.js';
import { memory } from '../../../../src/memory/index.js';
import { until } from '../../../../src/testing/conformance/fixtures.js';

const mill = new Tidemill({ store: memory(), logger: false });
const thread = new URL('./hungry.mjs', import.meta.url);
mill.job<{ eat: boolean }>('eat', { thread, retryPolicy: { maxAttempts: 1 } });
await mill.start();
const ended = async (eat: boolean): Promise<string> => {
  const { id } = await mill.enqueue('eat', { eat });
  await until('it has ended', async () => (await mill.jobs.get(id))?.finishedAt !== undefined);
  return id;
};
const eaten = await mill.jobs.get(await ended(true));
const next = await mill.jobs.get(await ended(false));
process.send?.({ failReason: eaten?.failReason, next: next?.status });
