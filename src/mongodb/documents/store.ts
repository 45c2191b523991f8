/** The user's own documents, for a document scheduler. */
import type { Document } from 'mongodb';
import { OptionError } from '../../core/errors.js';
import { checkText, show } from '../../core/options.js';
import { isSqlFragment } from '../../core/text/sql-fragment.js';
import type { ServerClock } from '../../core/server-clock.js';
import { checkCounts, checkFields, jobOf, scheduleOf } from '../../store/document-fields.js';
import {
  fenceOf,
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

function checkCondition(where: string, condition: unknown): Document | undefined {
  if (condition === undefined) return undefined;
  const isQuery =
    typeof condition === 'object' &&
    condition !== null &&
    !Array.isArray(condition) &&
    !isSqlFragment(condition);
  if (isQuery && Object.keys(condition).length > 0) return condition;
  throw new OptionError(
    `${where}: condition must be a query such as { kind: 'mail' }, got ${show(condition)}.`,
  );
}

export function mongodbDocuments(home: Home, place: DocumentPlace): DocumentJobStore {
  const where = `documents(${show(place.collection)})`;
  const { database } = place;
  if (database !== undefined) checkText(where, 'database', database);
  const fields = checkFields(where, place.fields);
  const condition = checkCondition(where, place.condition);
  const holder = {};
  const rivals = { met: false };
  let known: Documents | undefined;
  /** Returns the same object as long as the store is open. */
  const at = (): Documents => {
    const mongo = home.mongo();
    if (known?.mongo === mongo) return known;
    const db = mongo.client.db(database ?? mongo.jobs.dbName);
    const collection = db.collection(place.collection, mongo.options);
    known = { mongo, collection, fields, condition, rivals };
    return known;
  };
  const read = (document: Document): DocumentJob => readDocument(document, fields);
  return {
    clock: home.clock,
    // The user's own object, as their client read it.
    read: (document) => jobOf(document['_id'], document, fields, scheduleOf(document, fields)),
    open: async ({ counts }) => {
      checkCounts(where, fields, counts);
      await home.acquire(holder);
    },
    close: () => home.release(holder),
    marks: fields.failure !== null,
    lockNext: async (until, { marks = false }) => {
      const document = await lockNext(at(), until, marks);
      return document === null ? null : read(document);
    },
    lockMany: async (until, { limit, marks = false }) =>
      (await lockMany(at(), until, { limit, marks })).map(read),
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
