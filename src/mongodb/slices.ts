/**
 * How the instances of a cluster share the head of a queue. Each reads the same head and takes its own slice of it, so
 * that they do not compete for the same documents. Slices go by id, not by position, because instances read the head at
 * slightly different moments.
 */
import type { NameLimit } from '../store/port.js';

/** With more slices than this, one claim would read too much of the queue's head; further instances share slices. */
const MOST_SLICES = 4;

/** A claim that lost more than this share of its candidates met others in its window. */
const TOO_MUCH_LOST = 1 / 4;
/** How much wider an instance looks after such a claim; it must find its place within a few. */
const GROWTH = 4;
/** How fast the windows become fewer again, so that the queue's head is soon taken in order. */
const SHRINKAGE = 1 / 16;

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

/** How much of the head of each name's queue to pass over. */
export type Skips = ReadonlyMap<string, number>;

/**
 * Where instances that share a slice look. Each begins at the head of the queue. One that loses candidates to others
 * chooses among four times as many windows, one behind the other, at random; after each claim without a loss, among fewer.
 * Passing over a window costs the server keys of an index, and losing a claim costs it writes.
 */
export class Windows {
  /** By name, if there is more than one. */
  readonly #counts = new Map<string, number>();

  /** Returns how much of the queue's head to pass over. */
  skip(name: string, limit: NameLimit): number {
    const count = Math.min(this.#counts.get(name) ?? 1, mostWindows(limit));
    return Math.floor(Math.random() * count) * windowOf(limit);
  }

  /** The same for each name. */
  choose(limits: ReadonlyMap<string, NameLimit>): Skips {
    return new Map([...limits].map(([name, limit]) => [name, this.skip(name, limit)]));
  }

  /**
   * Forgets the windows of names whose queue ended before them. Returns true if nothing was found of any name, and one of
   * them may have work at its head.
   */
  missed(skips: Skips, found: ReadonlySet<string>): boolean {
    const beyond = [...skips].filter(([name, skip]) => skip > 0 && !found.has(name));
    for (const [name] of beyond) this.reset(name);
    return beyond.length > 0 && found.size === 0;
  }

  learn(name: string, limit: NameLimit, asked: number, taken: number): void {
    const count = this.#counts.get(name) ?? 1;
    const isLossy = asked - taken > asked * TOO_MUCH_LOST;
    const next = Math.min(isLossy ? count * GROWTH : count * (1 - SHRINKAGE), mostWindows(limit));
    if (next > 1) this.#counts.set(name, next);
    else this.#counts.delete(name);
  }

  /** The queue ended before the window that was chosen. */
  reset(name: string): void {
    this.#counts.delete(name);
  }
}

/** As many as it takes for each instance to have a slice of its own. */
const mostWindows = (limit: NameLimit): number => Math.ceil(limit.of / slicesOf(limit));

function sample<Key>(keys: readonly Key[], count: number): Key[] {
  const left = [...keys];
  const taken: Key[] = [];
  while (taken.length < count && left.length > 0)
    taken.push(...left.splice(Math.floor(Math.random() * left.length), 1));
  return taken;
}
