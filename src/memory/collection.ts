import { OptionError } from '../core/errors.js';
import { show } from '../core/options.js';
import { copyOf } from './records.js';

export type MemoryDocument = Readonly<Record<string, unknown>>;

/** Documents in this process's memory, for schedules of documents in tests. What goes in and out is a copy. */
export class MemoryCollection {
  readonly #documents = new Map<unknown, MemoryDocument>();
  readonly #listeners = new Set<() => void>();
  #serial = 0;

  /** Keeps a document, under its `_id` or a new one; answers it as it is kept. */
  insert<Doc extends MemoryDocument>(document: Doc): Doc & { readonly _id: unknown } {
    const _id = document['_id'] ?? `document-${String((this.#serial += 1))}`;
    if (this.#documents.has(_id))
      throw new OptionError(`insert: there is a document with the _id ${show(_id)} already.`);
    const kept = { ...document, _id };
    this.set(kept);
    return kept;
  }

  get(id: unknown): MemoryDocument | undefined {
    return copyOf(this.#documents.get(id));
  }

  /** Keeps a document in the place of the one with its `_id`. */
  set(document: MemoryDocument): void {
    this.#documents.set(document['_id'], copyOf(document));
    for (const listener of this.#listeners) listener();
  }

  delete(id: unknown): boolean {
    return this.#documents.delete(id);
  }

  all(): MemoryDocument[] {
    return [...this.#documents.values()].map(copyOf);
  }

  /** Calls back after each change; answers what ends that. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }
}
