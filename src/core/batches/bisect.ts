import { reasonOf } from '../errors.js';

/** An item that makes the statement fail, and why. */
export interface Choked<T> {
  readonly item: T;
  readonly error: unknown;
  readonly reason: string;
  /** It timed out even alone: another transaction holds it. */
  readonly blocked: boolean;
}

/**
 * What an error says about the batch. `again`: nothing; retry the whole batch later. `blocked`: the batch is too large,
 * or one of its items is locked by another transaction. `choked`: one of its items causes the error.
 */
export type Blame = 'again' | 'blocked' | 'choked';

export interface Bisected<T> {
  readonly choked: readonly Choked<T>[];
  /** Items that were not written because of `trouble`, an `again` error. */
  readonly left: readonly T[];
  readonly trouble?: unknown;
}

type Statement<T> = (items: readonly T[]) => Promise<void>;

/**
 * Runs a statement over a batch. If it fails, splits the batch in halves until the items that cause the failure are
 * isolated, and returns them: one document on which a filter errors must not stop the rest. Ends at an `again` error,
 * and returns what is left.
 */
export async function tryInHalves<T>(
  items: readonly T[],
  statement: Statement<T>,
  blame: (error: unknown) => Blame,
): Promise<Bisected<T>> {
  if (items.length === 0) return { choked: [], left: [] };
  try {
    await statement(items);
    return { choked: [], left: [] };
  } catch (error) {
    const fault = blame(error);
    if (fault === 'again') return { choked: [], left: items, trouble: error };
    const [item] = items as readonly [T];
    if (items.length === 1)
      return { choked: [{ item, error, reason: reasonOf(error), blocked: fault === 'blocked' }], left: [] };
    const half = Math.ceil(items.length / 2);
    const first = await tryInHalves(items.slice(0, half), statement, blame);
    if (first.left.length > 0) return { ...first, left: [...first.left, ...items.slice(half)] };
    const second = await tryInHalves(items.slice(half), statement, blame);
    return { ...second, choked: [...first.choked, ...second.choked] };
  }
}

/** As `tryInHalves`, but throws an `again` error. Returns the items that cause the failure. */
export async function bisect<T>(
  items: readonly T[],
  statement: Statement<T>,
  blame: (error: unknown) => Blame,
): Promise<readonly Choked<T>[]> {
  const { choked, left, trouble } = await tryInHalves(items, statement, blame);
  if (left.length > 0) throw trouble;
  return choked;
}
