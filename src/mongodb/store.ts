import { BSON, type ClientSession, type MongoClient } from 'mongodb';
import { OptionError, StoreError } from '../core/errors.js';
import { deferred, deferredPort, lazily, type Lazy } from '../core/lazily.js';
import { checkKeys, show } from '../core/options.js';
import type { PayloadRules } from '../core/payload.js';
import { ServerClock } from '../core/server-clock.js';
import type {
  InstanceStore,
  JobStore,
  LimitStore,
  LockStore,
  MetricsStore,
  Store,
  Watch,
  WatchHandlers,
} from '../store/port.js';
import type { AuditStore } from '../store/audit.js';
import type { DocumentJobStore, DocumentPlace } from '../store/documents.js';
import { StoreConnection } from '../store/helpers/store-connection.js';
import type { Finding } from '../store/inspect.js';
import {
  AUDIT_METHODS,
  INSTANCE_METHODS,
  LIMIT_METHODS,
  LOCK_METHODS,
  METRICS_METHODS,
  Parts,
} from '../store/parts.js';
import type { Partitioned } from '../store/reactive/partitions.js';
import type { ReactiveStore } from '../store/reactive/reactive.js';
import { hasMessages, wakesOf } from './cluster/messages.js';
import { SilentWriters } from './cluster/silent-writers.js';
import { ownClient } from './client.js';
import {
  collectionOptions,
  needTransactions,
  run,
  type AuditDocument,
  type GlobalDocument,
  type MetricsDocument,
  type Mongo,
  type WakeDocument,
} from './context.js';
import type { JobDocument } from './jobs/document.js';
import { mongodbDocuments } from './documents/store.js';
import {
  auditIndexes,
  createIndexes,
  globalsIndexes,
  indexFaults,
  indexScript,
  jobIndexes,
  metricsIndexes,
  missingIndexError,
  taskIndexes,
} from './indexes.js';
import { jobStore } from './jobs/store.js';
import { checked, databaseOf, LARGEST_PAYLOAD, type MongodbOptions } from './options.js';
import { ownCollections } from './own-collections.js';
import type { OpenReactive } from './reactive/opened.js';
import { reactiveStore } from './reactive/store.js';
import type { ClusterPorts } from './cluster/ports.js';

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

const loadInspect = lazily(() => import('./cluster/inspect.js'));

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
  readonly limits: LimitStore;
  readonly locks: LockStore;
  readonly metrics: MetricsStore;
  readonly audit: AuditStore;
  readonly reactive: ReactiveStore<ClientSession> & Partitioned;
  readonly #options: MongodbOptions;
  readonly #connection = new StoreConnection(() => this.#connect());
  readonly #tasksOf: (collection: string) => string;
  readonly #parts = new Parts();
  readonly #cluster: Lazy<ClusterPorts>;
  readonly #reactive: Lazy<OpenReactive>;
  readonly #documents = this.#parts.add(() => import('./documents/found.js'));
  #globals = '_tidemill_globals';

  constructor(options: MongodbOptions) {
    this.#options = checked(options);
    this.maxPayloadBytes = options.maxPayloadBytes ?? LARGEST_PAYLOAD;
    const mongo = (): Mongo => this.#mongo();
    const parts = this.#parts;
    const cluster = parts.add(async () => (await import('./cluster/ports.js')).clusterPorts(mongo));
    const metrics = parts.add(async () => (await import('./cluster/metrics.js')).metricsStore(mongo));
    this.jobs = jobStore(mongo, parts);
    this.instances = deferredPort(cluster, 'instances', [...INSTANCE_METHODS, 'leases']);
    this.locks = deferredPort(cluster, 'locks', LOCK_METHODS);
    this.audit = deferredPort(cluster, 'audit', AUDIT_METHODS);
    this.#tasksOf = options.collections?.tasks ?? ((collection) => `${collection}_tasks`);
    const limits = parts.add(async () =>
      (await import('./limits/store.js')).limitStore(mongo, this.#tasksOf),
    );
    this.limits = deferred(limits, [...LIMIT_METHODS, 'repairKeys']);
    this.metrics = deferred(metrics, METRICS_METHODS);
    this.#cluster = cluster;
    this.#reactive = parts.add(async () => {
      const { openReactive } = await import('./reactive/opened.js');
      return openReactive(mongo, this.#tasksOf, options.createIndexes ?? true);
    });
    this.reactive = reactiveStore(this.#reactive, (collection) => this.#useGlobals(collection));
  }

  loadParts(): Promise<void> {
    return this.#parts.load();
  }

  async acquire(holder: object): Promise<void> {
    const connection = await this.#connection.acquire(holder);
    if (this.clock.age > CLOCK_AGE_MS) await this.#readClock(connection);
  }

  async release(holder: object): Promise<void> {
    const connection = await this.#connection.release(holder);
    if (this.#options.client === undefined) await connection?.client.close();
  }

  watch(handlers: WatchHandlers): Promise<Watch | { unavailable: string }> {
    const mongo = this.#mongo();
    return this.#cluster().then(({ watch }) => watch(mongo, handlers));
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
    return mongodbDocuments(home, place, this.#documents);
  }

  async inspect(): Promise<readonly Finding[]> {
    const [{ inspect }, { sources }] = await Promise.all([loadInspect(), this.#reactive()]);
    const plans = () => this.reactive.planner.plans();
    return inspect({ mongo: this.#mongo(), sources, plans });
  }

  /** Drops the store's own collections. Task collections stay beside their sources. */
  async erase(): Promise<void> {
    const { wakes } = this.#mongo();
    const own = ownCollections(this.#mongo()).map(([collection]) => collection.drop());
    await run('erase', () => Promise.all([...own, wakes?.drop()]));
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
    if (this.#connection.hasBegun || this.#options.collections?.globals !== undefined) {
      throw new OptionError(
        `reactive.globalsCollection is ${show(collection)}, but the store uses ${show(globals)}; ` +
          'set it in one place: mongodb({ collections: { globals } }).',
      );
    }
    this.#globals = collection;
  }

  #names(): { jobs: string; globals: string; metrics: string; audit: string; wakes: string } {
    const {
      jobs = 'tidemill_jobs',
      globals = this.#globals,
      metrics = 'tidemill_metrics',
      audit = 'tidemill_audit',
    } = this.#options.collections ?? {};
    return { jobs, globals, metrics, audit, wakes: wakesOf(jobs) };
  }

  #mongo(): Mongo {
    const { current } = this.#connection;
    if (current !== undefined) return current.mongo;
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
    const { jobs, globals, metrics, audit, wakes } = this.#names();
    const transactions = hello['msg'] === 'isdbgrid' || typeof hello['setName'] === 'string';
    const { createIndexes: create = true } = this.#options;
    const sends = transactions && (await hasMessages(db, wakes, create === true));
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
      transactions,
      ...(sends ? { wakes: db.collection<WakeDocument>(wakes, options) } : {}),
      silent: new SilentWriters(),
      watching: new Set(),
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
