import { Trace } from './trace.js';

const realImmediate = setImmediate;

interface Entry {
  readonly at: number;
  readonly serial: number;
  readonly callback: () => void;
  isCancelled: boolean;
}

/**
 * Virtual time for a whole run. One event happens after the other, each once everything that follows from the previous
 * one has settled; so the order is decided here and nowhere else.
 */
export class Scheduler {
  readonly trace = new Trace();
  #now: number;
  #serial = 0;
  /** A heap by time, then by serial. */
  readonly #heap: Entry[] = [];
  #immediates: (() => void)[] = [];

  constructor(start: number) {
    this.#now = start;
  }

  get now(): number {
    return this.#now;
  }

  after(delayMs: number, callback: () => void): () => void {
    if (!Number.isFinite(delayMs)) return () => undefined;
    const at = Math.ceil(this.#now + Math.max(0, delayMs));
    const entry: Entry = { at, serial: (this.#serial += 1), callback, isCancelled: false };
    this.#push(entry);
    return () => (entry.isCancelled = true);
  }

  /** Replaces `setImmediate`. */
  immediate(callback: () => void): void {
    this.#immediates.push(callback);
  }

  /** Runs until a time, or until `isOver` returns true; it is called now and then. */
  async run(until: number, isOver: () => boolean = () => false): Promise<void> {
    await this.#settle();
    for (let step = 1; ; step += 1) {
      const next = this.#heap[0];
      if (next === undefined || next.at > until || (step % 64 === 0 && isOver())) break;
      this.#pop();
      if (next.isCancelled) continue;
      this.#now = Math.max(this.#now, next.at);
      next.callback();
      await this.#settle();
    }
    if (!isOver()) this.#now = Math.max(this.#now, until);
  }

  /** Until no promise has anything left to do. */
  async #settle(): Promise<void> {
    do {
      const immediates = this.#immediates;
      this.#immediates = [];
      for (const callback of immediates) callback();
      await new Promise<void>((resolve) => realImmediate(resolve));
    } while (this.#immediates.length > 0);
  }

  #push(entry: Entry): void {
    const heap = this.#heap;
    let at = heap.push(entry) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      const above = heap[parent] as Entry;
      if (!isBefore(entry, above)) break;
      heap[at] = above;
      at = parent;
    }
    heap[at] = entry;
  }

  #pop(): void {
    const heap = this.#heap;
    const last = heap.pop() as Entry;
    if (heap.length === 0) return;
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      if (left >= heap.length) break;
      const right = left + 1;
      const isRight = right < heap.length && isBefore(heap[right] as Entry, heap[left] as Entry);
      const child = isRight ? right : left;
      if (!isBefore(heap[child] as Entry, last)) break;
      heap[at] = heap[child] as Entry;
      at = child;
    }
    heap[at] = last;
  }
}

const isBefore = (a: Entry, b: Entry): boolean => a.at < b.at || (a.at === b.at && a.serial < b.serial);
