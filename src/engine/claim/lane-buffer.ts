import type { Work } from '../../core/records/work.js';
import type { Batching } from '../../time/batching.js';
import { MOST_BYTES_AHEAD } from './prefetch.js';

interface Waiting<W> {
  readonly work: W;
  /** Monotonic time of the claim. */
  readonly since: number;
}

/**
 * Claimed work of one name that waits for a slot, in the order in which it was accepted. Work of batches by key waits in
 * one queue for each key, and the keys take turns; all other work waits in one queue.
 */
export class LaneBuffer<W extends Work> {
  /** The one whose turn comes first is first. None is empty. */
  readonly #queues = new Map<string, Waiting<W>[]>();
  #batch: Batching | undefined;
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** How the work is gathered; undefined if it starts one by one. */
  get batch(): Batching | undefined {
    return this.#batch;
  }

  set batch(batch: Batching | undefined) {
    const isRegrouped = batch?.byKey !== this.#batch?.byKey;
    this.#batch = batch;
    if (!isRegrouped || this.#length === 0) return;
    const all = this.#all();
    this.#queues.clear();
    for (const waiting of all) this.#queueOf(waiting.work).push(waiting);
  }

  /** How many calls its work takes by the number of jobs alone. */
  get calls(): number {
    const size = this.#batch?.size ?? 1;
    let sum = 0;
    for (const queue of this.#queues.values()) sum += Math.ceil(queue.length / size);
    return sum;
  }

  get works(): readonly W[] {
    return this.#all().map(({ work }) => work);
  }

  push(work: W, since: number): void {
    this.#queueOf(work).push({ work, since });
    this.#length += 1;
  }

  /** Removes and returns what one slot may start now; nothing while all that is not full waits for more. */
  next(now: number): readonly W[] {
    for (const [key, queue] of this.#queues) {
      const count = this.#startable(queue, now);
      if (count === 0) continue;
      const works = queue.splice(0, count).map(({ work }) => work);
      this.#length -= count;
      // The other keys have their turn before it.
      this.#queues.delete(key);
      if (queue.length > 0) this.#queues.set(key, queue);
      return works;
    }
    return [];
  }

  #startable(queue: readonly Waiting<W>[], now: number): number {
    const [first] = queue;
    const batch = this.#batch;
    if (first === undefined) return 0;
    if (batch === undefined) return 1;
    let count = 1;
    let bytes = first.work.bytes ?? 0;
    for (const { work } of queue.slice(1, batch.size)) {
      bytes += work.bytes ?? 0;
      if (bytes > MOST_BYTES_AHEAD) return count;
      count += 1;
    }
    return count === batch.size || now - first.since >= batch.waitMs ? count : 0;
  }

  /** Milliseconds until the first batch stops waiting for more work; undefined if none waits. */
  gatheringMs(now: number): number | undefined {
    if (this.#batch === undefined || this.#length === 0) return undefined;
    let first = Infinity;
    for (const [{ since }] of this.#queues.values() as Iterable<[Waiting<W>]>) first = Math.min(first, since);
    return Math.max(0, first + this.#batch.waitMs - now);
  }

  /** Removes and returns what is meant. `at` counts all of it, from 0. */
  remove(isMeant: (work: W, since: number, at: number) => boolean): readonly W[] {
    const meant = new Set(this.#all().filter(({ work, since }, at) => isMeant(work, since, at)));
    if (meant.size === 0) return [];
    for (const [key, queue] of this.#queues) {
      const left = queue.filter((waiting) => !meant.has(waiting));
      if (left.length === 0) this.#queues.delete(key);
      else if (left.length < queue.length) this.#queues.set(key, left);
    }
    this.#length -= meant.size;
    return [...meant].map(({ work }) => work);
  }

  #all(): readonly Waiting<W>[] {
    return [...this.#queues.values()].flat();
  }

  #queueOf({ limitKey = '' }: W): Waiting<W>[] {
    const key = this.#batch?.byKey === true ? limitKey : '';
    const queue = this.#queues.get(key) ?? [];
    if (queue.length === 0) this.#queues.set(key, queue);
    return queue;
  }
}
