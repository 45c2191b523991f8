import { reasonOf } from '../errors.js';

/** An item that makes the statement fail, and why. */
export interface Choked<T> {
  readonly item: T;
  readonly reason: string;
  /** It timed out even alone: another transaction holds it. */
  readonly blocked: boolean;
}

/**
 * What an error says about the batch. `again`: nothing; retry the whole batch later. `blocked`: the batch is too large,
 * or one of its items is locked by another transaction. `choked`: one of its items causes the error.
 */
export type Blame = 'again' | 'blocked' | 'choked';

/**
 * Runs a statement over a batch. If it fails, splits the batch in halves until the items that cause the failure are
 * isolated, and returns them: one document on which a filter errors must not stop the rest. Rethrows an `again` error.
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
