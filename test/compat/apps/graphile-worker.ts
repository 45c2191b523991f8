/** The shop on graphile-worker. */
import type { Graphile } from '../import/originals.js';
import { AT_ONCE, LATER, LATER_MS, type Order, type Shop } from './orders.js';

interface Connection {
  readonly connectionString: string;
  readonly schema: string;
}

export async function placeOrders(
  { makeWorkerUtils, Logger }: Graphile,
  place: Connection,
  laterMs = LATER_MS,
): Promise<void> {
  const utils = await makeWorkerUtils({ ...place, logger: new Logger(() => () => undefined) });
  const runAt = new Date(Date.now() + laterMs);
  const once = { maxAttempts: 1 };
  for (const order of AT_ONCE) await utils.addJob('charge', { order }, once);
  for (const order of LATER) await utils.addJob('charge', { order }, { ...once, runAt });
  for (const order of [...AT_ONCE, ...LATER])
    await utils.addJob('mail', { order }, { runAt, jobKey: `mail ${order}` });
  await utils.release();
}

export const workOn = (
  { run, Logger }: Graphile,
  place: Connection,
  shop: Shop,
): ReturnType<Graphile['run']> =>
  run({
    ...place,
    concurrency: 2,
    noHandleSignals: true,
    pollInterval: 200,
    logger: new Logger(() => () => undefined),
    crontab: '0 3 * * * report {"region":"north"}',
    taskList: {
      charge: async (order: unknown) => shop.charge(order as Order),
      mail: async (order: unknown) => shop.mail(order as Order),
      report: async (of: unknown) => shop.report(of as { region: string }),
    },
  });
