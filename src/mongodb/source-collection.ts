import { createHash } from 'node:crypto';
import type { Collection, Document, ListIndexesCursor } from 'mongodb';
import { exactId, RAW, readExact } from './exact.js';

type Found = Document & { readonly _id: unknown };

/** The bytes of documents that were read. A JavaScript object cannot hold each document in the order of its keys. */
const stored = new WeakMap<object, Uint8Array>();

interface ExactCollection {
  find(filter: object, options?: object): AsyncIterable<Found>;
  countDocuments(filter: object): Promise<number>;
  deleteUnchanged(document: Found): Promise<boolean>;
  version(document: Found): string;
  listIndexes(): ListIndexesCursor;
}

/** A collection of another library. Its documents are deleted only if they are still exactly as they were read. */
export function sourceCollection(collection: Collection): ExactCollection {
  return {
    find: (filter: object, options: object = {}): AsyncIterable<Found> =>
      collection.find(filter, { ...options, ...RAW }).map((row) => {
        const bytes = row as unknown as Uint8Array;
        const document = readExact(bytes, {}, []) as Found;
        stored.set(document, bytes);
        return document;
      }),
    countDocuments: (filter: object): Promise<number> => collection.countDocuments(filter),
    deleteUnchanged: async (document: Found): Promise<boolean> => {
      const exact = exactId(stored.get(document));
      const id: unknown = exact instanceof Map ? exact.get('_id') : (exact as Found)._id;
      const unchanged = { $expr: { $eq: ['$$ROOT', { $literal: exact }] } };
      return (await collection.deleteOne({ _id: { $eq: id }, ...unchanged } as object)).deletedCount === 1;
    },
    version: (document) =>
      createHash('sha1')
        .update(stored.get(document) ?? '')
        .digest('base64'),
    listIndexes: () => collection.listIndexes(),
  };
}
