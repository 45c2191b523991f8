import type { BSONSerializeOptions, Document } from 'mongodb';
import { jobOf, scheduleOf } from '../../store/helpers/document-fields.js';
import type { DocumentFields, DocumentJob } from '../../store/documents.js';
import { EXACT } from '../exact.js';
import { readable } from '../values.js';

/** How a user's documents are read. Longs become numbers: the type of a number makes no difference to an id. */
export const DOCUMENT: BSONSerializeOptions = { ...EXACT, promoteLongs: true };

/** Matches documents whose schedule is still this one. MongoDB, too, treats null and missing alike. */
export const unchanged = (revision: unknown): Document =>
  Object.fromEntries(
    (revision as ReturnType<typeof scheduleOf>).map(([path, value]) => [path, { $eq: value ?? null }]),
  );

/** Returns the document as its handler gets it, and beside it the id as MongoDB finds it. */
export function readDocument(document: Document, fields: DocumentFields): DocumentJob {
  const { _id: id } = document;
  const revision = scheduleOf(document, fields);
  return jobOf(id, readable(document, { references: 'kept' }) as Document, fields, revision);
}
