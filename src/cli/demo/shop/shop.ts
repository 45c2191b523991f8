/** The data of the demo's application: orders that are paid and shipped, and digests with schedules of their own. */

export interface Shop {
  /** What the reactive task watches. */
  readonly orders: string;
  /** Documents with schedules of their own. */
  readonly digests: string;
  prepare(): Promise<void>;
  place(count: number): Promise<void>;
  /** Pays the oldest unpaid orders. The workers are not told; they see the change. */
  pay(count: number): Promise<void>;
  ship(id: unknown): Promise<void>;
  send(id: unknown): Promise<void>;
  counts(): Promise<ShopCounts>;
  drop(): Promise<void>;
}

export interface ShopCounts {
  readonly placed: number;
  readonly paid: number;
  readonly shipped: number;
  readonly sent: number;
}

/** Who gets a digest, and how often. */
export const DIGESTS: readonly (readonly [customer: string, interval: string])[] = [
  ['ada', '@every 3s'],
  ['grace', '@every 5s'],
  ['edsger', '@every 7s'],
  ['barbara', '*/10 * * * * *'],
];
