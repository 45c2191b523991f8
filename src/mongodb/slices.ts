/**
 * How the instances of a cluster share the head of a queue. Each reads the same head and takes its own slice of it, so
 * that they do not compete for the same documents. Slices go by id, not by position, because instances read the head at
 * slightly different moments.
 */
import type { NameLimit } from '../store/port.js';

/** With more slices than this, one claim would read too much of the queue's head; further instances share slices. */
const MOST_SLICES = 4;

const slicesOf = ({ of }: NameLimit): number => Math.min(of, MOST_SLICES);

/**
 * How much of the head to read: more than the slices together, so that a slice is likely to be full even if the ids are
 * spread unevenly.
 */
export const windowOf = (limit: NameLimit): number =>
  slicesOf(limit) === 1 ? limit.max : Math.ceil(limit.max * slicesOf(limit) * 1.25);

/**
 * Returns this instance's slice of the head, in order. `numberOf` must return the same number in every instance. An
 * instance takes from other slices, at random, only if it sees nothing of its own.
 */
export function sliceOf<Key>(
  head: readonly Key[],
  limit: NameLimit,
  numberOf: (key: Key) => number,
): readonly Key[] {
  const slices = slicesOf(limit);
  if (slices === 1) return head.slice(0, limit.max);
  const own = head.filter((key) => numberOf(key) % slices === limit.rank % slices).slice(0, limit.max);
  return own.length > 0 ? own : sample(head, limit.max);
}

function sample<Key>(keys: readonly Key[], count: number): Key[] {
  const left = [...keys];
  const taken: Key[] = [];
  while (taken.length < count && left.length > 0)
    taken.push(...left.splice(Math.floor(Math.random() * left.length), 1));
  return taken;
}
