/** The shop on Agenda or Pulse, whose calls are the same. */
import type { Scheduler } from '../import/originals.js';
import { AT_ONCE, LATER, LATER_MS, type Shop } from './orders.js';

export function defineShop(agenda: Scheduler, shop: Shop): void {
  agenda.define('charge', async (job) => shop.charge(job.attrs.data));
  agenda.define('mail', async (job) => shop.mail(job.attrs.data));
  agenda.define('report', async (job) => shop.report(job.attrs.data));
}

/** Places all orders: some are charged at once, all others and the mails are for later. */
export async function placeOrders(agenda: Scheduler, laterMs = LATER_MS): Promise<void> {
  const later = new Date(Date.now() + laterMs);
  await agenda.every(
    '0 3 * * *',
    'report',
    { region: 'north' },
    { timezone: 'Europe/Berlin', skipImmediate: true },
  );
  for (const order of AT_ONCE) await agenda.now('charge', { order });
  for (const order of LATER) await agenda.schedule(later, 'charge', { order });
  for (const order of [...AT_ONCE, ...LATER]) await agenda.schedule(later, 'mail', { order });
}
