import type { BSONSerializeOptions, Collection, Document } from 'mongodb';
import type { ClaimRequest, ClusterBrief } from '../../../store/port.js';
import type { KeyOwner } from './document.js';

/** A piece of work that a claim by keys has taken. */
export interface TakenWork<R> {
  /** Its `_id`, as it was read. */
  readonly id: unknown;
  readonly lockedAt: Date;
  readonly row: R;
}

/** What a claim's write must check beside what every claim checks. */
export interface TakeRules {
  /** An expression about the stored document. */
  readonly also: Document;
  readonly maxTimeMS: number;
}

/** What limits per key need to know of the work of one name: jobs, or a reactive task. */
export interface KeyedWork {
  readonly owner: KeyOwner;
  /** Where the work is; in the database of the globals, since keys are joined with it. */
  readonly collection: Collection;
  /** The field that says when it is due. */
  readonly due: 'nextRunAt' | 'scheduledAt';
  /** Matches the work of the name, of whatever version; then of ours. */
  readonly named: Document;
  readonly ours: Document;
  readonly running: Document;
  /** The field of the name in an expression, and its value. */
  readonly nameField: string;
  readonly name: string;
  /** Jobs have priorities and may have an order; a key gives tasks by their due time. */
  readonly isPrioritised: boolean;
  /** The newest work, by an index of the name and the status. */
  readonly newest: Readonly<Record<string, 1 | -1>>;
  /** Indexes: of the name and the status, and of the pending work of each key. */
  readonly hints: { readonly byName: string; readonly ofKey: string };
  /** How ids are read so that they are found again, and their text. */
  readonly reading: BSONSerializeOptions;
  readonly idText: (id: unknown) => string;
  /** What a claim reads of the cluster. */
  readonly brief: Document[];
  readonly readBrief: (rows: readonly Document[]) => ClusterBrief;
}

/** Work of a name that a claim can take. */
export interface ClaimableWork<R> extends KeyedWork {
  readonly take: (
    ids: readonly unknown[],
    request: ClaimRequest,
    rules: TakeRules,
  ) => Promise<readonly TakenWork<R>[]>;
}
