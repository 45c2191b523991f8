import type {
  BSONSerializeOptions,
  Collection,
  CollectionOptions,
  Document,
  MongoClient,
  WriteConcernSettings,
} from 'mongodb';
import { OptionError } from '../core/errors.js';
import type { ServerClock } from '../core/server-clock.js';
import type { JobDocument } from './jobs/document.js';
import { classifyError } from './errors.js';

/** What every query file needs: the open collections and the facts about the server. */
export interface Mongo {
  readonly client: MongoClient;
  readonly jobs: Collection<JobDocument>;
  readonly globals: Collection<GlobalDocument>;
  readonly metrics: Collection<MetricsDocument>;
  readonly audit: Collection<AuditDocument>;
  /** What every collection is opened with. */
  readonly options: CollectionOptions;
  readonly clock: ServerClock;
  /** Behind mongos: jobs carry a `part`, and writes by id name it. */
  readonly sharded: boolean;
  /** The newest wire version that the server speaks: it tells which commands there are. */
  readonly wire: number;
  /** A replica set or a sharded cluster: only those have transactions. */
  readonly transactions: boolean;
}

/** Coordination documents: instances, paused names, locks, and what the planner of reactive tasks has to remember. */
export interface AuditDocument extends Document {
  _id: string;
}

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
    | 'bell'
    | 'lock';
}

/**
 * Measures: one document with the counts of the cluster and what each instance says of itself, so that whoever reads sees
 * one state of them; and one per instance and minute.
 */
export interface MetricsDocument extends Document {
  _id: string;
}

/**
 * How values are written and read, whatever the user's client does. Statements on a database do not inherit them. Bytes keep
 * their subtype, without which no id of them is found again, and a regular expression that JavaScript cannot read is no
 * reason to read nothing; `values.ts` makes of both what users see.
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
  fieldsAsRaw: {},
  raw: false,
  enableUtf8Validation: true,
};

/** Every statement names its own concerns and BSON options, so that a user's connection options change nothing. */
export const collectionOptions = (writeConcern: WriteConcernSettings): CollectionOptions => ({
  readPreference: 'primary',
  readConcern: { level: 'local' },
  writeConcern,
  ...BSON_OPTIONS,
});

/** Runs a statement outside any transaction and sorts what it throws. */
export async function run<T>(what: string, statement: () => Promise<T>, outcomeUnknown = false): Promise<T> {
  try {
    return await statement();
  } catch (error) {
    throw classifyError(what, error, outcomeUnknown);
  }
}

/** Any user's value inside a pipeline goes through here: `$` in it must mean nothing. */
export const literal = (value: unknown): Document => ({ $literal: value });

export function needTransactions(mongo: Mongo): void {
  if (mongo.transactions) return;
  throw new OptionError(
    'This MongoDB server is standalone, and transactions need a replica set; one node is enough.',
  );
}
