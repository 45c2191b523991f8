import { isTimeLimit, isTransient } from '../errors.js';

/** An item that a statement chokes on, and why. */
export interface Choked<T> {
  readonly item: T;
  readonly reason: string;
}

/**
 * Runs a statement over a batch. Where the server refuses it, the batch is halved until the items are found that it
 * chokes on: one document on which a filter errors must not stop the rest.
 */
export async function inHalves<T>(
  items: readonly T[],
  statement: (items: readonly T[]) => Promise<void>,
): Promise<readonly Choked<T>[]> {
  if (items.length === 0) return [];
  try {
    await statement(items);
    return [];
  } catch (error) {
    // A batch that takes too long is too large; anything else that passes is tried again as a whole.
    if (isTransient(error) && !(isTimeLimit(error) && items.length > 1)) throw error;
    const [item] = items as readonly [T];
    if (items.length === 1) return [{ item, reason: error instanceof Error ? error.message : String(error) }];
    const half = Math.ceil(items.length / 2);
    return [
      ...(await inHalves(items.slice(0, half), statement)),
      ...(await inHalves(items.slice(half), statement)),
    ];
  }
}
