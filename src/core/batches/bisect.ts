import { reasonOf } from '../errors.js';

/** An item that a statement chokes on, and why. */
export interface Choked<T> {
  readonly item: T;
  readonly reason: string;
  /** It took too long by itself: somebody's open transaction holds it. */
  readonly blocked: boolean;
}

/**
 * What an error says about the batch. `again`: nothing, all of it is tried again later. `blocked`: it is too large, or
 * holds an item that waits for somebody. `choked`: one of its items is to blame.
 */
export type Blame = 'again' | 'blocked' | 'choked';

/**
 * Runs a statement over a batch. Where the server refuses it, the batch is halved until the items are found that it
 * chokes on: one document on which a filter errors must not stop the rest.
 */
export async function bisect<T>(
  items: readonly T[],
  statement: (items: readonly T[]) => Promise<void>,
  blame: (error: unknown) => Blame,
): Promise<readonly Choked<T>[]> {
  if (items.length === 0) return [];
  try {
    await statement(items);
    return [];
  } catch (error) {
    const fault = blame(error);
    if (fault === 'again') throw error;
    const [item] = items as readonly [T];
    const reason = reasonOf(error);
    if (items.length === 1) return [{ item, reason, blocked: fault === 'blocked' }];
    const half = Math.ceil(items.length / 2);
    return [
      ...(await bisect(items.slice(0, half), statement, blame)),
      ...(await bisect(items.slice(half), statement, blame)),
    ];
  }
}
