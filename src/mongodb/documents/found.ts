/** The user's own documents once this is loaded, for a document scheduler. */
import type { Document } from 'mongodb';
import { show } from '../../core/options.js';
import type { ServerClock } from '../../core/server-clock.js';
import { checkCounts } from '../../store/helpers/document-fields.js';
import {
  fenceOf,
  type DocumentFields,
  type DocumentJob,
  type DocumentJobStore,
  type DocumentPlace,
} from '../../store/documents.js';
import type { Mongo } from '../context.js';
import type { Documents } from './context.js';
import { countDocuments, documentKey, findDocuments, readOne } from './find.js';
import { documentIndexFaults } from './due-index.js';
import { readDocument } from './read.js';
import { lockMany, lockNext, look } from './lock.js';
import { renew, settle } from './write.js';

/** The store that the documents are in; it stays open as long as it has a holder. */
export interface Home {
  readonly clock: ServerClock;
  readonly mongo: () => Mongo;
  readonly acquire: (holder: object) => Promise<void>;
  readonly release: (holder: object) => Promise<void>;
}

/** The documents of one place. Both have been checked: the paths of the parts, and the condition. */
export function placedDocuments(
  home: Home,
  { collection: name, database }: DocumentPlace,
  fields: DocumentFields,
  condition: Document | undefined,
): DocumentJobStore {
  const where = `documents(${show(name)})`;
  const holder = {};
  const rivals = { met: false };
  let known: Documents | undefined;
  /** Returns the same object as long as the store is open. */
  const at = (): Documents => {
    const mongo = home.mongo();
    if (known?.mongo === mongo) return known;
    const db = mongo.client.db(database ?? mongo.jobs.dbName);
    const collection = db.collection(name, mongo.options);
    known = { mongo, collection, fields, condition, rivals };
    return known;
  };
  const read = (document: Document): DocumentJob => readDocument(document, fields);
  return {
    open: async ({ counts }) => {
      checkCounts(where, fields, counts);
      await home.acquire(holder);
    },
    close: () => home.release(holder),
    lockNext: async (until, { marks = false, notAfter }) => {
      const document = await lockNext(at(), until, { marks, notAfter });
      return document === null ? null : read(document);
    },
    lockMany: async (until, { limit, marks = false, notAfter }) =>
      (await lockMany(at(), until, { limit, marks, notAfter })).map(read),
    current: async (id) => {
      const document = await readOne(at(), id);
      return document === null ? null : read(document);
    },
    update: async (id, changes, options) =>
      (await settle(at(), [{ id, changes, ...fenceOf(options) }]))[0] === true,
    remove: async (id, options) =>
      (await settle(at(), [{ id, remove: true, ...fenceOf(options) }]))[0] === true,
    settle: (writes) => settle(at(), writes),
    renew: (locks, until, { marks = false }) => renew(at(), locks, until, marks),
    look: ({ withinMs, known }) => look(at(), withinMs, known),
    count: (query) => countDocuments(at(), query),
    find: async (query) => {
      const { documents, more, partial } = await findDocuments(at(), query);
      const found = documents.map((document) => ({ key: documentKey(document), job: read(document) }));
      return { documents: found, more, partial };
    },
    indexFaults: () => documentIndexFaults(at()),
  };
}
