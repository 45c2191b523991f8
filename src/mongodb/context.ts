import type {
  BSONSerializeOptions,
  ClientSession,
  Collection,
  CollectionOptions,
  Document,
  MongoClient,
  Timestamp,
  WriteConcernSettings,
} from 'mongodb';
import { OptionError } from '../core/errors.js';
import type { ServerClock } from '../core/server-clock.js';
import type { SilentWriters } from './cluster/silent-writers.js';
import type { JobDocument } from './jobs/document.js';
import { classifyError } from './errors.js';

/** Shared by all query files: the open collections and facts about the server. */
export interface Mongo {
  readonly client: MongoClient;
  readonly jobs: Collection<JobDocument>;
  readonly globals: Collection<GlobalDocument>;
  readonly metrics: Collection<MetricsDocument>;
  readonly audit: Collection<AuditDocument>;
  /** Messages to idle instances; absent if the server has no such collection (cluster/messages.ts). */
  readonly wakes?: Collection<WakeDocument>;
  readonly silent: SilentWriters;
  /** The change streams that watchers of jobs in this process have open. */
  readonly watching: Set<object>;
  /** The options that every collection is opened with. */
  readonly options: CollectionOptions;
  readonly clock: ServerClock;
  /** True behind mongos: jobs carry a `part`, and writes by id include it. */
  readonly sharded: boolean;
  /** The newest wire version that the server supports; it tells which commands exist. */
  readonly wire: number;
  /** True for a replica set or a sharded cluster; a standalone server has no transactions. */
  readonly transactions: boolean;
}

/** A message to idle instances (cluster/messages.ts). */
export interface WakeDocument extends Document {
  /** The server replaces an empty timestamp by its own, which grows with each message. */
  t: Timestamp;
}

/** An entry of the audit log. */
export interface AuditDocument extends Document {
  _id: string;
}

/**
 * A coordination document: an instance, a paused name, a lock, or what the planner of reactive tasks has to remember.
 */
export interface GlobalDocument extends Document {
  _id: string;
  kind:
    | 'instance'
    | 'pause'
    | 'pause-task'
    | 'planner'
    | 'definition'
    | 'task'
    | 'checkpoint'
    | 'aside'
    // Of the partitions from 1 on.
    | 'planner-part'
    | 'task-part'
    | 'checkpoint-part'
    | 'aside-part'
    | 'bell'
    | 'lock'
    // A scope with limits; a key of a name; the rule by which the keys of a name stand in their index.
    | 'limit'
    | 'key'
    | 'key-rule';
}

/**
 * Metrics. One document holds the counts of the cluster and the latest report of each instance, so that a reader sees
 * one consistent state. Each minute has further documents: one per instance, and one for the backlog.
 */
export interface MetricsDocument extends Document {
  _id: string;
}

/** The lists that are read as bytes, and no others. */
export const rawFields = (...names: readonly string[]): Record<string, boolean> =>
  Object.assign(
    Object.create(null) as Record<string, boolean>,
    Object.fromEntries(names.map((name) => [name, true])),
  );

/**
 * How values are written and read, whatever the user's client is set to. Commands on a database do not inherit the
 * options of a collection, so they pass these explicitly. Binary data keeps its subtype; without it, a binary id would
 * not be found again. Regular expressions are read as BSON types: JavaScript cannot parse all of them, and an error
 * would make the whole document unreadable. `values.ts` converts both to what users see. The driver looks up each name of a
 * user's list in `fieldsAsRaw`: an object with a prototype would have it return lists called `constructor` as bytes.
 */
export const BSON_OPTIONS: BSONSerializeOptions = {
  ignoreUndefined: true,
  serializeFunctions: false,
  checkKeys: false,
  promoteValues: true,
  promoteLongs: true,
  promoteBuffers: false,
  useBigInt64: false,
  bsonRegExp: true,
  fieldsAsRaw: rawFields(),
  raw: false,
  enableUtf8Validation: true,
};

/** Sets read preference, concerns and BSON options, so that those of the user's connection have no effect. */
export const collectionOptions = (writeConcern: WriteConcernSettings): CollectionOptions => ({
  readPreference: 'primary',
  readConcern: { level: 'local' },
  writeConcern,
  ...BSON_OPTIONS,
});

/**
 * Runs a statement and classifies its error. Not for statements in a caller's transaction, whose errors must keep the
 * driver's labels.
 */
export async function run<T>(what: string, statement: () => Promise<T>, outcomeUnknown = false): Promise<T> {
  try {
    return await statement();
  } catch (error) {
    throw classifyError(what, error, outcomeUnknown);
  }
}

/** Wraps a user's value for a pipeline, so that a `$` in it is not interpreted. */
export const literal = (value: unknown): Document => ({ $literal: value });

/**
 * The values of a batch, one per document, inside its pipeline. A value that all documents share is a constant;
 * otherwise, each document looks up its own by its position, `_at`.
 */
export function perDocument(values: readonly unknown[]): Document {
  const [first] = values;
  const same = values.every(
    (value) => value === first || (value instanceof Date && first instanceof Date && +value === +first),
  );
  return same ? literal(first) : { $arrayElemAt: [literal(values), '$_at'] };
}

/** Matches the tokens of one life: a token begins with the life that minted it. */
export const tokensOf = (life: string): RegExp => new RegExp(`^${life}\\.`, 'u');

export function needTransactions(mongo: Mongo): void {
  if (mongo.transactions) return;
  throw new OptionError(
    'This MongoDB server is standalone, and transactions need a replica set; one node is enough.',
  );
}

/** Outside a transaction, a write would be committed at once, whatever becomes of the caller's other writes. */
export function needOpenTransaction(session: ClientSession): void {
  if (session.inTransaction()) return;
  throw new OptionError(
    'transaction: this session has no open transaction, so its writes would be committed at once. Call ' +
      'startTransaction() on it first, or use `mill.withTransaction`.',
  );
}
