/** The user's own documents, for a document scheduler. */
import type { Document } from 'mongodb';
import { OptionError } from '../../core/errors.js';
import { chosen, deferred, type Lazy } from '../../core/lazily.js';
import { checkText, show } from '../../core/options.js';
import { isSqlFragment } from '../../core/text/sql-fragment.js';
import { checkFields, jobOf, scheduleOf } from '../../store/helpers/document-fields.js';
import type { DocumentJobStore, DocumentPlace } from '../../store/documents.js';
import { DOCUMENT_METHODS } from '../../store/parts.js';
import type * as found from './found.js';

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

/** Checks the place. found.ts has the rest, which is loaded on the first call. */
export function mongodbDocuments(
  home: found.Home,
  place: DocumentPlace,
  load: Lazy<typeof found>,
): DocumentJobStore {
  const where = `documents(${show(place.collection)})`;
  if (place.database !== undefined) checkText(where, 'database', place.database);
  const fields = checkFields(where, place.fields);
  const condition = checkCondition(where, place.condition);
  const jobs = chosen(load, ({ placedDocuments }) => placedDocuments(home, place, fields, condition));
  return {
    clock: home.clock,
    marks: fields.failure !== null,
    // The user's own object, as their client read it.
    read: (document) => jobOf(document['_id'], document, fields, scheduleOf(document, fields)),
    ...deferred(jobs, [...DOCUMENT_METHODS, 'open', 'close', 'indexFaults']),
  };
}
