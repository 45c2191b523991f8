import type { Collection, Document } from 'mongodb';
import type { DocumentFields } from '../../store/documents.js';
import type { Mongo } from '../context.js';

/** What every statement on a user's documents needs. */
export interface Documents {
  readonly mongo: Mongo;
  readonly collection: Collection;
  readonly fields: DocumentFields;
  readonly condition: Document | undefined;
  /** Whether the last batch met another scheduler that wanted the same documents. */
  readonly rivals: { met: boolean };
}
