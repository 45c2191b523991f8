import { OptionError } from '../core/errors.js';
import { checkKeys, show } from '../core/options.js';
import { withValueAt } from '../core/text/paths.js';
import type { ChangeKind, ChangeLog } from './reactive/log.js';
import { compileQuery } from './reactive/query/query.js';
import { textOf } from './reactive/query/values.js';
import { copyOf } from './jobs/records.js';
import { MemoryTransaction } from './transaction.js';

export type MemoryDocument = Readonly<Record<string, unknown>>;

/** A document as it is stored. */
export type Stored<Doc> = Doc & { readonly _id: unknown };

/** New values of fields; `undefined` removes one. Names may be dot paths. */
export type MemoryChanges<Doc> = MemoryDocument & { readonly [Field in keyof Doc]?: Doc[Field] | undefined };

export interface MemoryWriteOptions {
  /** The write takes effect when this transaction commits. A transaction does not see its own writes. Default: none. */
  readonly transaction?: MemoryTransaction;
}

export interface MemoryCollectionOptions {
  readonly name: string;
  readonly log: ChangeLog;
  readonly now: () => number;
}

/**
 * Documents in this process's memory, for document schedules and reactive tasks in tests. Arguments and results are
 * copied, and all methods are synchronous. Reactive tasks see every write.
 */
export class MemoryCollection<Doc extends object = MemoryDocument> {
  readonly #options: MemoryCollectionOptions;
  /** By the text of their ids, so that equal ids are one key. */
  readonly #documents = new Map<string, MemoryDocument>();
  readonly #listeners = new Set<() => void>();
  #serial = 0;

  constructor(options: MemoryCollectionOptions) {
    this.#options = options;
  }

  get name(): string {
    return this.#options.name;
  }

  /** The number of documents. */
  get size(): number {
    return this.#documents.size;
  }

  /** Stores a document under its `_id` or a new one, and returns it. Throws if the `_id` is taken. */
  insert<Given extends Doc>(document: Given, options?: MemoryWriteOptions): Stored<Given> {
    const _id: unknown = Reflect.get(document, '_id') ?? `document-${String((this.#serial += 1))}`;
    const key = textOf(_id);
    if (this.#documents.has(key))
      throw new OptionError(`insert: a document with the _id ${show(_id)} already exists.`);
    const kept = { ...document, _id };
    this.#write(
      options,
      () => !this.#documents.has(key),
      () => this.#put(kept, 'insert'),
    );
    return kept;
  }

  get(id: unknown): Stored<Doc> | undefined {
    return this.#out(this.#documents.get(textOf(id)));
  }

  /** Changes fields of a document, by name or dot path; `undefined` removes one. Returns false if there is none. */
  update(id: unknown, changes: MemoryChanges<Doc>, options?: MemoryWriteOptions): boolean {
    if (Object.hasOwn(changes, '_id') && textOf(changes['_id']) !== textOf(id))
      throw new OptionError(`update: _id cannot change (got ${show(changes['_id'])} for ${show(id)}).`);
    return this.#change(id, options, (document) => {
      let changed = document;
      for (const [path, value] of Object.entries(changes)) changed = withValueAt(changed, path, value);
      this.#put(changed, 'update');
    });
  }

  /** Replaces the document with this `_id`. Returns false if there is none. */
  replace(document: Doc & { readonly _id: unknown }, options?: MemoryWriteOptions): boolean {
    return this.#change(document._id, options, () => this.#put({ ...document }, 'update'));
  }

  /** Stores a document under its `_id`, replacing any that is there. */
  set(document: Doc & { readonly _id?: unknown }): void {
    this.#put({ ...document }, this.#documents.has(textOf(document._id)) ? 'update' : 'insert');
  }

  /** Deletes a document. Returns false if there is none. */
  delete(id: unknown, options?: MemoryWriteOptions): boolean {
    return this.#change(id, options, () => {
      this.#documents.delete(textOf(id));
      this.#changed(id, 'delete');
    });
  }

  /** Returns the documents that match a query, in the order of their insertion; without a query, all of them. */
  find(query: object = {}): Stored<Doc>[] {
    const matches = compileQuery(`collection(${show(this.name)}).find`, query);
    const now = new Date(this.#options.now());
    return [...this.#documents.values()]
      .filter((document) => matches({ document, now }))
      .map((document) => this.#copy(document));
  }

  all(): Stored<Doc>[] {
    return [...this.#documents.values()].map((document) => this.#copy(document));
  }

  /** Calls the listener after each change. Returns a function that removes it. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Writes if the document exists; in a transaction, only if it is unchanged when that commits. */
  #change(
    id: unknown,
    options: MemoryWriteOptions | undefined,
    write: (document: MemoryDocument) => void,
  ): boolean {
    const key = textOf(id);
    const known = this.#documents.get(key);
    if (known === undefined) return false;
    this.#write(
      options,
      () => this.#documents.get(key) === known,
      () => write(this.#documents.get(key) ?? known),
    );
    return true;
  }

  #write(options: MemoryWriteOptions = {}, check: () => boolean, apply: () => void): void {
    checkKeys(`collection(${show(this.name)})`, options, ['transaction']);
    const { transaction } = options;
    if (transaction === undefined) apply();
    else if (transaction instanceof MemoryTransaction) transaction.add(check, apply);
    else
      throw new OptionError(
        `collection(${show(this.name)}): transaction must be the handle that mill.withTransaction passes; got ${show(transaction)}.`,
      );
  }

  #put(document: MemoryDocument, kind: ChangeKind): void {
    this.#documents.set(textOf(document['_id']), copyOf(document));
    this.#changed(document['_id'], kind);
  }

  #changed(id: unknown, kind: ChangeKind): void {
    const { name, log, now } = this.#options;
    log.append({ collection: name, id: copyOf(id), kind, at: new Date(now()) });
    for (const listener of this.#listeners) listener();
  }

  #out(document: MemoryDocument | undefined): Stored<Doc> | undefined {
    return document === undefined ? undefined : this.#copy(document);
  }

  /** The type comes from the caller of `store.collection<Doc>()`, as with a driver; it is not checked. */
  #copy(document: MemoryDocument): Stored<Doc> {
    return copyOf(document) as Stored<Doc>;
  }
}
