/** The data of the application that the demo plays: orders that get paid and shipped, and digests with their own schedules. */

export interface Shop {
  /** What reactive tasks watch. */
  readonly orders: string;
  /** Documents that say themselves when they are due. */
  readonly digests: string;
  prepare(): Promise<void>;
  place(count: number): Promise<void>;
  /** The oldest orders that are not paid yet. Nobody tells the workers: they see the change. */
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
