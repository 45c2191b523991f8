/**
 * A worker process that stops at one step of a transactional handler and reports it; the parent then kills it.
 * Arguments: address, the step, lease in milliseconds.
 */
import type { ClientSession } from 'mongodb';
import { Tidemill } from '../../src/index.js';
import { effect } from './shared/effects.js';
import { storeAt } from './shared/store-at.js';

const [address = '', step = '', leaseMs = '1000'] = process.argv.slice(2);
const mill = new Tidemill({ store: storeAt(address), leaseDuration: Number(leaseMs), logger: false });

/** Never resolves if this is the step at which the process is to die. */
const reach = async (name: string, transaction?: unknown): Promise<void> => {
  if (name !== step) return;
  const session = (transaction as ClientSession | undefined)?.id?.id.toString('hex');
  process.send?.({ step: name, session });
  await new Promise(() => setInterval(() => undefined, 1_000));
};

await mill.reactiveTask<{ _id: number }>({
  task: 'exact',
  collection: 'things',
  debounce: 0,
  retryPolicy: { type: 'fixed', interval: 10, maxAttempts: 3 },
  handler: async ({ getDocument, markCompleted }) => {
    await reach('before the transaction');
    await mill.withTransaction(async (transaction) => {
      const { _id } = await getDocument({ transaction });
      await effect(transaction, _id);
      await reach('before markCompleted', transaction);
      await markCompleted({ transaction });
      await reach('before the commit', transaction);
    });
    await reach('after the commit');
  },
});
await mill.start();
