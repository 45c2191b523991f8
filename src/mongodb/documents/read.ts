import type { BSONSerializeOptions, Document } from 'mongodb';
import { jobOf, scheduleOf } from '../../store/document-fields.js';
import type { DocumentFields, DocumentJob } from '../../store/documents.js';
import { EXACT } from '../exact.js';
import { readable } from '../values.js';

/** How a user's documents are read. Numbers are numbers: to an id of theirs their type makes no difference. */
export const DOCUMENT: BSONSerializeOptions = { ...EXACT, promoteLongs: true };

/** In a query: what the schedule says is still this. To MongoDB, too, null and missing are the same. */
export const unchanged = (revision: unknown): Document =>
  Object.fromEntries(
    (revision as ReturnType<typeof scheduleOf>).map(([path, value]) => [path, { $eq: value ?? null }]),
  );

/** The document as its handler gets it, with its id beside it as MongoDB finds it. */
export function readDocument(document: Document, fields: DocumentFields): DocumentJob {
  const { _id: id } = document;
  const revision = scheduleOf(document, fields);
  return jobOf(id, readable(document, { references: 'kept' }) as Document, fields, revision);
}
