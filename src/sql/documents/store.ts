/** The document store: rows of the user's own tables, for a scheduler. */
import { OptionError } from '../../core/errors.js';
import { chosen, deferred, type Lazy } from '../../core/lazily.js';
import { show } from '../../core/options.js';
import { checkFields } from '../../store/helpers/document-fields.js';
import type { DocumentJobStore, DocumentPlace } from '../../store/documents.js';
import { DOCUMENT_METHODS } from '../../store/parts.js';
import { checkFilter } from '../reactive/plan/filter.js';
import { parseName } from '../tables/table-name.js';
import type * as loaded from './table-jobs.js';

/** Checks the place. table-jobs.ts has the rest, which is loaded on the first call. */
export function sqlDocuments(
  home: loaded.Home,
  place: DocumentPlace,
  load: Lazy<typeof loaded>,
): DocumentJobStore {
  const where = `documents(${show(place.collection)})`;
  if (place.database !== undefined)
    throw new OptionError(
      `${where}: database is an option of the MongoDB store; put a schema into collection.`,
    );
  parseName(where, place.collection);
  checkFields(where, place.fields);
  checkFilter(`${where}: condition`, place.condition);
  const jobs = chosen(load, ({ tableJobs }) => tableJobs(home, place));
  return {
    ...deferred(jobs, [...DOCUMENT_METHODS, 'open', 'close', 'indexFaults']),
    clock: home.clock,
    read: (row) => {
      const { loaded } = jobs;
      if (loaded?.read !== undefined) return loaded.read(row);
      throw new OptionError(
        `${where}: the columns of the table are not known yet; start the schedule first.`,
      );
    },
    get marks() {
      return jobs.loaded?.marks === true;
    },
  };
}
