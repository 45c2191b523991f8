import { randomBytes } from 'node:crypto';
import type { DocumentJobStore } from '../../src/store/documents.js';
import type { SqlStore } from '../../src/sql/store.js';
import { watched, type DocumentFixture, type Watched } from './shared/document-fixtures.js';

export const signal: AbortSignal = new AbortController().signal;

/** A table name that no other test uses. */
export const aName = (): string => `t_${randomBytes(6).toString('hex')}`;

/** A schedule on a table, by a mill that is stopped after the test. */
export const onTable = (
  store: SqlStore,
  collection: string,
  options: Parameters<typeof watched>[1] = {},
): Watched => watched({ store, collection } as unknown as DocumentFixture, options);

/** The rows of a table as a scheduler sees them, for the duration of the test. */
export async function rowsOf(
  store: SqlStore,
  place: Parameters<SqlStore['documents']>[0],
): Promise<
  Required<Pick<DocumentJobStore, 'lockMany' | 'settle' | 'look' | 'indexFaults'>> & DocumentJobStore
> {
  const rows = store.documents(place);
  await rows.open?.({ counts: false });
  return rows as never;
}
