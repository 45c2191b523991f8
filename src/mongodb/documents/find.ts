import type { Document, Filter, FindOptions } from 'mongodb';
import { valueAt } from '../../core/text/paths.js';
import type { DocumentQuery, DocumentState } from '../../store/documents.js';
import { run } from '../context.js';
import type { Documents } from './context.js';
import { DOCUMENT } from './read.js';
import { refuseCount } from '../errors.js';
import { findExact } from '../exact.js';
import { containing, fieldsQuery, rangeQuery, readPartly, TIME_LIMIT_MS } from '../fields.js';
import { fromText, textOf } from '../reactive/document.js';

const NOTHING: Document = { _id: { $in: [] } };

function stateQuery({ fields, mongo }: Documents, states: readonly DocumentState[]): Document {
  const { sleepUntil, failure } = fields;
  const now = new Date(mongo.clock.now());
  const ended = failure === null ? undefined : `${failure}.ended`;
  const [due, waiting, failed, parked] = (['due', 'waiting', 'failed', 'parked'] as const).map((state) =>
    states.includes(state),
  );
  if (due === true || waiting === true)
    return {
      [sleepUntil]: {
        $type: 'date',
        ...(due === true ? {} : { $gt: now }),
        ...(waiting === true ? {} : { $lte: now }),
      },
    };
  // One index range serves both. Telling them apart reads all documents without a time: few, or rarely listed.
  const untimed = { [sleepUntil]: { $type: 'null' } };
  if (failed === parked) return failed === true ? untimed : NOTHING;
  if (ended === undefined) return failed === true ? NOTHING : untimed;
  return { ...untimed, [ended]: failed === true ? { $eq: true } : { $ne: true } };
}

/** Without a place for failures, no document has an error. */
const errorQuery = (failure: string | null, error: string): Document =>
  failure === null ? NOTHING : { [`${failure}.reason`]: containing(error) };

function keyed(keys: readonly string[]): Document {
  const ids = keys.flatMap((text) => {
    try {
      const id = fromText(text);
      return id instanceof RegExp || Reflect.get(Object(id), '_bsontype') === 'BSONRegExp' ? [] : [id];
    } catch {
      return [];
    }
  });
  return { _id: { $in: ids } };
}

/** Matches documents after the cursor: later in the sort, ties by id. */
function afterQuery({ fields }: Documents, { after, direction, states }: DocumentQuery): Document {
  if (after === undefined) return {};
  const [past, upTo] = direction === 1 ? ['$gt', '$gte'] : ['$lt', '$lte'];
  const beyond = { $expr: { [past]: ['$_id', { $literal: fromText(after.key) }] } };
  if (after.at === null || states === undefined) return beyond;
  const { sleepUntil } = fields;
  return { [sleepUntil]: { [upTo]: after.at }, $or: [{ [sleepUntil]: { [past]: after.at } }, beyond] };
}

const isTimed = ({ states }: DocumentQuery): boolean =>
  states?.some((state) => state === 'due' || state === 'waiting') === true;

function findDocumentsQuery(documents: Documents, query: DocumentQuery): Filter<Document> {
  const { fields, condition } = documents;
  const { states, keys, error, data, sleepUntil } = query;
  const parts = [
    ...(condition === undefined ? [] : [condition]),
    ...(states === undefined ? [] : [stateQuery(documents, states)]),
    ...(keys === undefined ? [] : [keyed(keys)]),
    ...(error === undefined ? [] : [errorQuery(fields.failure, error)]),
    ...(data === undefined ? [] : [fieldsQuery(data)]),
    ...(sleepUntil === undefined ? [] : [{ [fields.sleepUntil]: rangeQuery(sleepUntil) }]),
    afterQuery(documents, query),
  ].filter((part) => Object.keys(part).length > 0);
  return parts.length === 0 ? {} : { $and: parts };
}

export async function findDocuments(
  documents: Documents,
  query: DocumentQuery,
): Promise<{ documents: readonly Document[]; more: boolean; partial: boolean }> {
  const { collection, fields } = documents;
  const { direction, limit } = query;
  const options: FindOptions = {
    sort: { ...(isTimed(query) ? { [fields.sleepUntil]: direction } : {}), _id: direction },
    limit: limit + 1,
    batchSize: limit + 2,
    maxTimeMS: TIME_LIMIT_MS,
  };
  const cursor = findExact(collection, findDocumentsQuery(documents, query), options, DOCUMENT);
  const { rows, partial } = await run('find documents', () => readPartly(cursor));
  return { documents: rows.slice(0, limit), more: rows.length > limit, partial };
}

/** Reads a document by its id, whatever its state. */
export async function readOne({ collection }: Documents, id: unknown): Promise<Document | null> {
  const cursor = findExact(collection, { _id: id as never }, { limit: 1 }, DOCUMENT);
  return (await run('read a document', () => cursor.toArray()))[0] ?? null;
}

export async function countDocuments(
  documents: Documents,
  query: Omit<DocumentQuery, 'direction' | 'after'>,
): Promise<number> {
  const { limit } = query;
  const filter = findDocumentsQuery(documents, { ...query, direction: 1 });
  const what = 'count documents';
  return run(what, () =>
    documents.collection
      .countDocuments(filter, { limit, maxTimeMS: TIME_LIMIT_MS })
      .catch((error: unknown) => refuseCount(what, TIME_LIMIT_MS, error)),
  );
}

export const documentKey = (document: Document): string => textOf(valueAt(document, '_id'));
