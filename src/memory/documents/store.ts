import type { Clock } from '../../core/clock.js';
import { OptionError } from '../../core/errors.js';
import { chosen, deferred, type Lazy } from '../../core/lazily.js';
import { show } from '../../core/options.js';
import { idText, valueAt } from '../../core/text/paths.js';
import { isSqlFragment } from '../../core/text/sql-fragment.js';
import { checkFields, jobOf, scheduleOf } from '../../store/helpers/document-fields.js';
import type { DocumentJob, DocumentJobStore, DocumentPlace } from '../../store/documents.js';
import { DOCUMENT_METHODS } from '../../store/parts.js';
import type { MemoryCollection, MemoryDocument } from '../collection.js';
import type * as found from './found.js';

/** Compiles a condition: a function of a document, or paths with the value that each must have. */
function matcher(where: string, condition: unknown): found.Matches {
  if (condition === undefined) return () => true;
  if (typeof condition === 'function') return (document) => (condition as found.Matches)(document);
  if (typeof condition !== 'object' || condition === null || isSqlFragment(condition))
    throw new OptionError(
      `${where}: condition must be a function of a document, or values such as { kind: 'mail' }; got ${show(condition)}.`,
    );
  const wanted = Object.entries(condition);
  return (document) => wanted.every(([path, value]) => Object.is(valueAt(document, path), value));
}

/** Checks the place. found.ts has the rest, which is loaded on the first call. */
export function memoryDocuments(
  collection: MemoryCollection,
  clock: Clock,
  place: DocumentPlace,
  load: Lazy<typeof found>,
): DocumentJobStore<MemoryDocument> {
  const where = `documents(${show(place.collection)})`;
  const fields = checkFields(where, place.fields);
  const matches = matcher(where, place.condition);
  const revisionOf = (document: MemoryDocument): string => idText(scheduleOf(document, fields));
  const read = (document: MemoryDocument): DocumentJob<MemoryDocument> =>
    jobOf(document['_id'], document, fields, revisionOf(document));
  const at: found.MemoryPlace = { where, fields, matches, read, revisionOf };
  const jobs = chosen(load, ({ placedDocuments }) => placedDocuments(collection, clock, at));
  return {
    clock,
    read,
    marks: fields.failure !== null,
    ...deferred(jobs, [...DOCUMENT_METHODS, 'open', 'watch']),
  };
}
