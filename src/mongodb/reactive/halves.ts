import { isTimeLimit, isTransient } from '../errors.js';

/** An item that a statement chokes on, and why. */
export interface Choked<T> {
  readonly item: T;
  readonly reason: string;
  /** It took too long by itself: somebody's open transaction holds it. */
  readonly blocked: boolean;
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
    // A batch that takes too long is too large, or holds one that waits; anything else that passes is tried again whole.
    const blocked = isTimeLimit(error);
    if (isTransient(error) && !blocked) throw error;
    const [item] = items as readonly [T];
    const reason = error instanceof Error ? error.message : String(error);
    if (items.length === 1) return [{ item, reason, blocked }];
    const half = Math.ceil(items.length / 2);
    return [
      ...(await inHalves(items.slice(0, half), statement)),
      ...(await inHalves(items.slice(half), statement)),
    ];
  }
}
