import { openMongoSource, type MongoSource, type SourceDocument } from '../../mill/tools.js';
import { CliError, Exit } from '../exit.js';
import { safeUrl } from '../secrets.js';
import { BATCH } from './reading.js';

/** One collection of another library. */
export class MongoCollection implements AsyncDisposable {
  readonly place: string;
  readonly #source: MongoSource;
  readonly #name: string;

  private constructor(source: MongoSource, name: string, url: string) {
    this.#source = source;
    this.#name = name;
    this.place = `${safeUrl(url)}, collection ${name}`;
  }

  static async open(url: string, name: string): Promise<MongoCollection> {
    if (!url.startsWith('mongodb'))
      throw new CliError(Exit.USAGE, '--from must be mongodb://host/database for this library.');
    const wait = 'serverSelectionTimeoutMS';
    const source = await openMongoSource(
      url.includes(wait) ? url : `${url}${url.includes('?') ? '&' : '?'}${wait}=3000`,
    );
    try {
      const known = await source.collections();
      if (!known.includes(name))
        throw new CliError(
          Exit.NOTHING_FOUND,
          `The database ${source.database} has no collection "${name}". Name another one with --from-collection; it has: ${[...known].sort().join(', ') || 'none'}.`,
        );
      return new MongoCollection(source, name, url);
    } catch (error) {
      await source[Symbol.asyncDispose]();
      throw error;
    }
  }

  count(filter: object): Promise<number> {
    return this.#source.collection(this.#name).countDocuments(filter);
  }

  /** Ascending by `_id`: a repeated run meets them in the same order. */
  all(filter: object): AsyncIterable<SourceDocument> {
    return this.#source.collection(this.#name).find(filter, { sort: { _id: 1 }, batchSize: BATCH });
  }

  indexes(): Promise<readonly { readonly key: object }[]> {
    return this.#source.collection(this.#name).listIndexes().toArray();
  }

  version(document: unknown): string {
    return this.#source.collection(this.#name).version(document as SourceDocument);
  }

  /** Deletes documents that are still exactly as they were read. */
  async remove(documents: readonly unknown[]): Promise<readonly boolean[]> {
    const collection = this.#source.collection(this.#name);
    return Promise.all(
      (documents as readonly SourceDocument[]).map((document) => collection.deleteUnchanged(document)),
    );
  }

  [Symbol.asyncDispose](): PromiseLike<void> {
    return this.#source[Symbol.asyncDispose]();
  }
}

export const dateOf = (value: unknown): Date | undefined => {
  const date = typeof value === 'string' || typeof value === 'number' ? new Date(value) : value;
  return date instanceof Date && !Number.isNaN(date.getTime()) ? date : undefined;
};

export const textOf = (value: unknown): string | undefined =>
  typeof value === 'string' && value !== '' ? value : undefined;

export const numberOf = (value: unknown): number | undefined =>
  typeof value === 'number' && Number.isFinite(value) ? value : undefined;
