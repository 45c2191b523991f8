import { HistoryLostError } from '../../store/reactive/reactive.js';

export type ChangeKind = 'insert' | 'update' | 'delete';

export interface LoggedChange {
  readonly collection: string;
  readonly id: unknown;
  readonly kind: ChangeKind;
  readonly at: Date;
}

/** How many changes are kept for feeds to read. Older ones are dropped, as a database drops its history. */
const KEPT = 100_000;

/** The changes of all collections, in order. A position is the number of changes before it. */
export class ChangeLog {
  #changes: LoggedChange[] = [];
  #forgotten = 0;
  readonly #listeners = new Set<() => void>();

  /** The position of the oldest change that is kept. */
  get start(): number {
    return this.#forgotten;
  }

  /** The position after the newest change. */
  get end(): number {
    return this.#forgotten + this.#changes.length;
  }

  /** The time of the oldest change that is kept. */
  get since(): Date | undefined {
    return this.#changes[0]?.at;
  }

  append(change: LoggedChange): void {
    this.#changes.push(change);
    // In large steps: copying the rest on every change would cost more than the change.
    if (this.#changes.length > 2 * KEPT) this.forget(this.end - KEPT);
    for (const listener of this.#listeners) listener();
  }

  /** Drops the changes before a position. A feed that has not read them has lost its history. */
  forget(before: number): void {
    const count = Math.min(Math.max(0, before - this.#forgotten), this.#changes.length);
    this.#changes = this.#changes.slice(count);
    this.#forgotten += count;
  }

  /** True if every change after a position is kept. */
  has(position: number): boolean {
    return position >= this.#forgotten;
  }

  /** Returns the change at a position; undefined at the end. Throws if it is no longer kept. */
  at(position: number): LoggedChange | undefined {
    if (position < this.#forgotten)
      throw new HistoryLostError('The history of changes does not reach back to where planning stopped.');
    return this.#changes[position - this.#forgotten];
  }

  /** Returns the changes after a position that are kept. */
  from(position: number): readonly LoggedChange[] {
    return this.#changes.slice(Math.max(0, position - this.#forgotten));
  }

  onAppend(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}
