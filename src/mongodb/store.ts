import { BSON, type ClientSession, type MongoClient, type WriteConcernSettings } from 'mongodb';
import { OptionError, StoreError } from '../core/errors.js';
import { checkBoolean, checkFunction, checkInteger, checkKeys, checkText, show } from '../core/options.js';
import type { PayloadRules } from '../core/payload.js';
import { ServerClock } from '../core/server-clock.js';
import type {
  InstanceStore,
  JobStore,
  LockStore,
  MetricsStore,
  Store,
  Watch,
  WatchHandlers,
} from '../store/port.js';
import type { AuditStore } from '../store/audit.js';
import type { DocumentJobStore, DocumentPlace } from '../store/documents.js';
import type { Finding } from '../store/inspect.js';
import type { ReactiveStore } from '../store/reactive.js';
import { auditIndexes, auditStore } from './cluster/audit.js';
import { ownClient } from './client.js';
import {
  collectionOptions,
  needTransactions,
  run,
  type AuditDocument,
  type GlobalDocument,
  type MetricsDocument,
  type Mongo,
} from './context.js';
import type { JobDocument } from './jobs/document.js';
import { mongodbDocuments } from './documents/store.js';
import {
  createIndexes,
  globalsIndexes,
  indexFaults,
  indexScript,
  jobIndexes,
  missingIndexError,
} from './indexes.js';
import { inspect } from './cluster/inspect.js';
import { instanceStore } from './cluster/instances.js';
import { jobStore } from './jobs/store.js';
import { lockStore } from './cluster/locks.js';
import { metricsIndexes, metricsStore } from './cluster/metrics.js';
import { ownCollections } from './own-collections.js';
import { MongodbSources, taskIndexes } from './reactive/sources.js';
import { reactiveStore } from './reactive/store.js';
import { watch } from './cluster/watch.js';

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
const LARGEST = 15_500_000;
/**
 * `acquire` reads the server's time again if the last reading is older than this. It keeps the clock of a long-running
 * producer accurate.
 */
const CLOCK_AGE_MS = 60_000;

/**
 * BSON values are stored as they are. On reading, Int32 and Double become numbers, and so does a Long that a number can
 * hold. A symbol becomes a string, and binary data of the default subtype a Buffer; other types stay what they are.
 * BSON has no place for flags of a regular expression other than `g`, `i` and `m`.
 */
const bsonSize = (value: object): number | null => {
  if (value instanceof RegExp)
    return /^g?i?m?$/u.test(value.flags) && value.source.isWellFormed() ? value.source.length : null;
  if (value instanceof Uint8Array) return value.byteLength;
  const type = (value as { _bsontype?: unknown })._bsontype;
  if (typeof type !== 'string' || !hasWholeTexts(value)) return null;
  return BSON.calculateObjectSize({ value });
};

/**
 * Reports whether all strings inside a BSON value are well-formed: those of code and its scope, a reference, a pattern.
 */
function hasWholeTexts(value: unknown): boolean {
  if (typeof value === 'string') return value.isWellFormed();
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return true;
  return Object.entries(value).every(([key, item]) => key.isWellFormed() && hasWholeTexts(item));
}

const payload: PayloadRules = {
  keeps: bsonSize,
  measure: (value) => BSON.calculateObjectSize({ value }),
  maxDepth: 80,
};

interface Connection {
  readonly client: MongoClient;
  readonly mongo: Mongo;
}

export class MongodbStore implements Store<ClientSession> {
  readonly kind = 'mongodb';
  readonly clock: ServerClock = new ServerClock();
  readonly payload: PayloadRules = payload;
  readonly maxPayloadBytes: number;
  readonly jobs: JobStore<ClientSession>;
  readonly instances: InstanceStore;
  readonly locks: LockStore;
  readonly metrics: MetricsStore;
  readonly audit: AuditStore;
  readonly reactive: ReactiveStore<ClientSession>;
  readonly #options: MongodbOptions;
  readonly #holders = new Set<object>();
  readonly #tasksOf: (collection: string) => string;
  readonly #sources: MongodbSources;
  #globals = '_tidemill_globals';
  #opening: Promise<Connection> | undefined;
  #open: Connection | undefined;

  constructor(options: MongodbOptions) {
    this.#options = checked(options);
    this.maxPayloadBytes = options.maxPayloadBytes ?? LARGEST;
    this.jobs = jobStore(() => this.#mongo());
    this.instances = instanceStore(() => this.#mongo());
    this.locks = lockStore(() => this.#mongo());
    this.metrics = metricsStore(() => this.#mongo());
    this.audit = auditStore(() => this.#mongo().audit);
    this.#tasksOf = options.collections?.tasks ?? ((collection) => `${collection}_tasks`);
    this.#sources = new MongodbSources(() => this.#mongo(), this.#tasksOf, options.createIndexes ?? true);
    this.reactive = reactiveStore(
      () => this.#mongo(),
      this.#sources,
      (collection) => this.#useGlobals(collection),
    );
  }

  async acquire(holder: object): Promise<void> {
    this.#holders.add(holder);
    this.#opening ??= this.#connect();
    try {
      this.#open = await this.#opening;
    } catch (error) {
      this.#opening = undefined;
      throw error;
    }
    if (this.clock.age > CLOCK_AGE_MS) await this.#readClock(this.#open);
  }

  async release(holder: object): Promise<void> {
    this.#holders.delete(holder);
    if (this.#holders.size > 0 || this.#opening === undefined) return;
    const opening = this.#opening;
    this.#opening = undefined;
    this.#open = undefined;
    const connection = await opening.catch(() => undefined);
    if (this.#options.client === undefined) await connection?.client.close();
  }

  watch(handlers: WatchHandlers): Promise<Watch | { unavailable: string }> {
    return watch(this.#mongo(), handlers);
  }

  async transaction<T>(work: (transaction: ClientSession) => Promise<T>): Promise<T> {
    needTransactions(this.#mongo());
    return this.#mongo().client.withSession((session) =>
      session.withTransaction(() => work(session), {
        writeConcern: { w: 'majority' },
        readPreference: 'primary',
      }),
    );
  }

  isTransaction(value: unknown): value is ClientSession {
    return (
      typeof value === 'object' && value !== null && 'inTransaction' in value && 'withTransaction' in value
    );
  }

  documents(place: DocumentPlace): DocumentJobStore {
    const home = {
      clock: this.clock,
      mongo: () => this.#mongo(),
      acquire: (holder: object) => this.acquire(holder),
      release: (holder: object) => this.release(holder),
    };
    return mongodbDocuments(home, place);
  }

  inspect(): Promise<readonly Finding[]> {
    const plans = () => this.reactive.planner.plans();
    return inspect({ mongo: this.#mongo(), sources: this.#sources, plans });
  }

  /** Drops the store's own collections. Task collections stay beside their sources. */
  async erase(): Promise<void> {
    const own = ownCollections(this.#mongo());
    await run('erase', () => Promise.all(own.map(([collection]) => collection.drop())));
  }

  /**
   * Returns the indexes that are missing or different, as text. Pass `sources` to include the task collections of those
   * sources.
   */
  async indexFaults(
    options: {
      /** Sources whose task collections are checked as well. Default: none. */
      readonly sources?: readonly string[];
    } = {},
  ): Promise<readonly string[]> {
    checkKeys('indexFaults', options, ['sources']);
    const mongo = this.#mongo();
    const db = mongo.client.db(mongo.jobs.dbName);
    return run('check indexes', async () => {
      const faults = [...(await ownFaults(mongo))];
      for (const source of options.sources ?? [])
        faults.push(...(await indexFaults(db.collection(this.#tasksOf(source), mongo.options), taskIndexes)));
      return faults;
    });
  }

  /**
   * Returns the shell commands that create the indexes. Pass `sources` to include the task collections of those
   * sources.
   */
  indexScript(options: { readonly sharded?: boolean; readonly sources?: readonly string[] } = {}): string {
    const { jobs, globals, metrics, audit } = this.#names();
    const { sharded = false, sources = [] } = options;
    return [
      indexScript(jobs, jobIndexes(sharded)),
      indexScript(globals, globalsIndexes),
      indexScript(metrics, metricsIndexes),
      indexScript(audit, auditIndexes),
      ...sources.map((source) => indexScript(this.#tasksOf(source), taskIndexes)),
    ].join('\n');
  }

  /** `reactive.globalsCollection` of a mill and `collections.globals` of its store are the same setting. */
  #useGlobals(collection: string): void {
    const { globals } = this.#names();
    if (globals === collection) return;
    if (this.#opening !== undefined || this.#options.collections?.globals !== undefined) {
      throw new OptionError(
        `reactive.globalsCollection is ${show(collection)}, but the store uses ${show(globals)}; ` +
          'set it in one place: mongodb({ collections: { globals } }).',
      );
    }
    this.#globals = collection;
  }

  #names(): { jobs: string; globals: string; metrics: string; audit: string } {
    const {
      jobs = 'tidemill_jobs',
      globals = this.#globals,
      metrics = 'tidemill_metrics',
      audit = 'tidemill_audit',
    } = this.#options.collections ?? {};
    return { jobs, globals, metrics, audit };
  }

  #mongo(): Mongo {
    if (this.#open !== undefined) return this.#open.mongo;
    throw new StoreError('The MongoDB store is closed; the next call on a mill opens it again.', {
      transient: true,
    });
  }

  async #connect(): Promise<Connection> {
    const client = this.#options.client ?? ownClient(this.#options.uri ?? '');
    try {
      return await run('connect to MongoDB', async () => {
        await client.connect();
        const connection = { client, mongo: await this.#describe(client) };
        await this.#readClock(connection);
        await this.#ensureIndexes(connection.mongo);
        return connection;
      });
    } catch (error) {
      if (this.#options.client === undefined) await client.close().catch(() => undefined);
      throw error;
    }
  }

  async #describe(client: MongoClient): Promise<Mongo> {
    const { database, writeConcern = { w: 'majority' } } = this.#options;
    const db = client.db(database ?? databaseOf(client));
    const hello = await db.admin().command({ hello: 1 }, { readPreference: 'primary' });
    const options = collectionOptions(writeConcern);
    const { jobs, globals, metrics, audit } = this.#names();
    return {
      client,
      options,
      clock: this.clock,
      jobs: db.collection<JobDocument>(jobs, options),
      globals: db.collection<GlobalDocument>(globals, options),
      metrics: db.collection<MetricsDocument>(metrics, options),
      audit: db.collection<AuditDocument>(audit, options),
      sharded: hello['msg'] === 'isdbgrid',
      wire: Number(hello['maxWireVersion']),
      transactions: hello['msg'] === 'isdbgrid' || typeof hello['setName'] === 'string',
    };
  }

  async #readClock({ client }: Connection): Promise<void> {
    for (let reading = 0; reading < 3; reading += 1) {
      const sentAt = performance.now();
      const hello = await run('read the clock', () =>
        client.db('admin').command({ hello: 1 }, { readPreference: 'primary' }),
      );
      if (hello['localTime'] instanceof Date) this.clock.learn(hello['localTime'], sentAt, performance.now());
    }
  }

  async #ensureIndexes(mongo: Mongo): Promise<void> {
    const { createIndexes: create = true } = this.#options;
    if (create === 'unchecked') return;
    if (create) {
      await Promise.all(
        ownCollections(mongo).map(([collection, indexes]) => createIndexes(collection, indexes)),
      );
      return;
    }
    const faults = await ownFaults(mongo);
    if (faults.length > 0) throw missingIndexError(faults);
  }
}

const ownFaults = async (mongo: Mongo): Promise<readonly string[]> => {
  const faults = ownCollections(mongo).map(([collection, indexes]) => indexFaults(collection, indexes));
  return (await Promise.all(faults)).flat();
};

/** Returns the database of the client's uri. Refuses `test`, which the driver reports if the uri names none. */
function databaseOf(client: MongoClient): string {
  const { dbName } = client.options;
  if (dbName !== 'test') return dbName;
  throw new OptionError(
    `${WHERE}: no database. Put it into the uri ('mongodb://host/app') or pass \`database\`; the driver's default, 'test', is never used.`,
  );
}

function checked(options: MongodbOptions): MongodbOptions {
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
  if (maxPayloadBytes !== undefined) checkInteger(WHERE, 'maxPayloadBytes', maxPayloadBytes, 1, LARGEST);
  return options;
}
