/** The options of the MongoDB store, and their checks. */
import type { MongoClient, WriteConcernSettings } from 'mongodb';
import { OptionError } from '../core/errors.js';
import { checkBoolean, checkFunction, checkInteger, checkKeys, checkText, show } from '../core/options.js';

export interface MongodbOptions {
  /**
   * Connection string. It names the database, unless `database` does. Unless the string sets them, `socketTimeoutMS` is
   * 30 s, `maxIdleTimeMS` 20 s and `connectTimeoutMS` 10 s. Default: none; give this or `client`.
   */
  readonly uri?: string;
  /**
   * Your own client, which Tidemill never closes. Its uri names the database, unless `database` does. Set its
   * `socketTimeoutMS` to more than 10 s: the driver has none by default and waits forever on a frozen connection.
   * Default: none; give this or `uri`.
   */
  readonly client?: MongoClient;
  /** The database that holds the collections. If nothing names one, that is an error. Default: that of the uri. */
  readonly database?: string;
  /** Names of the collections. */
  readonly collections?: {
    /** Jobs. Default: 'tidemill_jobs'. */
    readonly jobs?: string;
    /** What instances agree on. Default: '_tidemill_globals'. */
    readonly globals?: string;
    /** Counts of the cluster. Default: 'tidemill_metrics'. */
    readonly metrics?: string;
    /** The audit log. Default: 'tidemill_audit'. */
    readonly audit?: string;
    /**
     * Names the task collection of a source; each source needs a different name. Default: the name of the source followed
     * by `_tasks`.
     */
    readonly tasks?: (collection: string) => string;
  };
  /**
   * Whether to create missing indexes on first use. With false, a missing index is an error that says how to create it.
   * `'unchecked'` neither creates nor checks indexes; it is for tools that only visit the store. Default: true.
   */
  readonly createIndexes?: boolean | 'unchecked';
  /**
   * How many servers confirm a write. Anything weaker than the default can lose accepted work in a failover. Default:
   * `{ w: 'majority' }`.
   */
  readonly writeConcern?: WriteConcernSettings;
  /**
   * Largest payload, result or progress value, in bytes. It cannot be raised, since a document holds 16 MB. Default:
   * 15,500,000.
   */
  readonly maxPayloadBytes?: number;
}

const WHERE = 'mongodb()';
export const LARGEST_PAYLOAD = 15_500_000;

/** Returns the database of the client's uri. Refuses `test`, which the driver reports if the uri names none. */
export function databaseOf(client: MongoClient): string {
  const { dbName } = client.options;
  if (dbName !== 'test') return dbName;
  throw new OptionError(
    `${WHERE}: no database. Put it into the uri ('mongodb://host/app') or pass \`database\`; the driver's default, 'test', is never used.`,
  );
}

export function checked(options: MongodbOptions): MongodbOptions {
  const known = [
    'uri',
    'client',
    'database',
    'collections',
    'createIndexes',
    'writeConcern',
    'maxPayloadBytes',
  ];
  checkKeys(WHERE, options, known);
  const { uri, client, database, collections, createIndexes: create, maxPayloadBytes } = options;
  if ((uri === undefined) === (client === undefined))
    throw new OptionError(`${WHERE}: pass either uri or client.`);
  if (uri !== undefined && !/^mongodb(?:\+srv)?:\/\//u.test(checkText(WHERE, 'uri', uri))) {
    throw new OptionError(`${WHERE}: uri must begin with mongodb:// or mongodb+srv://.`);
  }
  if (client !== undefined && typeof client.db !== 'function') {
    throw new OptionError(
      `${WHERE}: client must be a MongoClient of the mongodb package, got ${show(client)}.`,
    );
  }
  if (database !== undefined) checkText(WHERE, 'database', database);
  checkKeys(`${WHERE}: collections`, collections, ['jobs', 'globals', 'metrics', 'audit', 'tasks']);
  const { tasks, ...names } = collections ?? {};
  if (tasks !== undefined) checkFunction(WHERE, 'collections.tasks', tasks);
  for (const [key, name] of Object.entries(names)) checkText(WHERE, `collections.${key}`, name);
  if (create !== undefined && create !== 'unchecked') checkBoolean(WHERE, 'createIndexes', create);
  if (maxPayloadBytes !== undefined)
    checkInteger(WHERE, 'maxPayloadBytes', maxPayloadBytes, 1, LARGEST_PAYLOAD);
  return options;
}
