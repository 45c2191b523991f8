/** A small shop: the same handlers run on another library first, and then on Tidemill. */
import type { Tidemill } from '../../../src/index.js';

export interface Order {
  readonly order: string;
}

export class Shop {
  readonly charged: string[] = [];
  readonly mailed: string[] = [];
  readonly reports: string[] = [];
  readonly refused: string[] = [];
  /** Cards that are declined, until the customer pays in another way. */
  readonly declined = new Set(['order-3']);

  charge({ order }: Order): void {
    if (this.declined.has(order)) {
      this.refused.push(order);
      throw new Error(`the card for ${order} was declined`);
    }
    this.charged.push(order);
  }

  mail({ order }: Order): void {
    this.mailed.push(order);
  }

  report(of: { readonly region: string }): void {
    this.reports.push(of.region);
  }

  /** All that has come of the orders; in any order, since workers run side by side. */
  get outcome(): { readonly charged: readonly string[]; readonly mailed: readonly string[] } {
    return { charged: [...this.charged].sort(), mailed: [...this.mailed].sort() };
  }
}

export const ORDERS: readonly string[] = ['order-1', 'order-2', 'order-3', 'order-4', 'order-5'];
/** The first three are charged at once, on the library that the shop came from; the others when they are due. */
export const AT_ONCE: readonly string[] = ORDERS.slice(0, 3);
export const LATER: readonly string[] = ORDERS.slice(3);
/** What comes of the orders in the end, once the declined card is charged again: on every library. */
export const OUTCOME: Shop['outcome'] = { charged: ORDERS, mailed: ORDERS };
/** Long enough that the old workers have stopped by then; `bringForward` makes it now. */
export const LATER_MS = 600_000;

/** Makes all jobs due that wait for their time. */
export async function bringForward(mill: Tidemill): Promise<void> {
  const { items } = await mill.jobs.find({ status: 'pending', name: ['charge', 'mail'] });
  for (const { id } of items) await mill.jobs.reschedule(id, new Date());
}

/** The same shop on Tidemill. A declined card is final, as it was on the other library. */
export function onTidemill(mill: Tidemill, shop: Shop): void {
  const once = { type: 'fixed', interval: 0, maxAttempts: 1 } as const;
  mill.job<Order>('charge', { retryPolicy: once }, ({ data }) => shop.charge(data));
  mill.job<Order>('mail', ({ data }) => shop.mail(data));
  mill.job<{ region: string }>('report', ({ data }) => shop.report(data));
}
