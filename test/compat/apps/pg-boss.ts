/** The shop on pg-boss. */
import type { Boss } from '../import/originals.js';
import { AT_ONCE, LATER, LATER_MS, type Order, type Shop } from './orders.js';

export async function createQueues(boss: Boss): Promise<void> {
  await boss.createQueue('charge', { retryLimit: 0 });
  await boss.createQueue('mail');
  await boss.createQueue('report');
}

export async function placeOrders(boss: Boss, laterMs = LATER_MS): Promise<void> {
  const startAfter = new Date(Date.now() + laterMs);
  await boss.schedule('report', '0 3 * * *', { region: 'north' }, { tz: 'Europe/Berlin' });
  for (const order of AT_ONCE) await boss.send('charge', { order });
  for (const order of LATER) await boss.send('charge', { order }, { startAfter });
  for (const order of [...AT_ONCE, ...LATER]) await boss.send('mail', { order }, { startAfter });
}

export async function workOn(boss: Boss, shop: Shop): Promise<void> {
  const options = { pollingIntervalSeconds: 0.5, batchSize: 1 };
  await boss.work('charge', options, async ([job]) => shop.charge(job!.data as Order));
  await boss.work('mail', options, async ([job]) => shop.mail(job!.data as Order));
}
