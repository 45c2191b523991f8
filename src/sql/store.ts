import { OptionError } from '../core/errors.js';
import { deferred, deferredPort, lazily, type Lazy } from '../core/lazily.js';
import { checkBoolean, checkInteger, checkOneOf } from '../core/options.js';
import type { PayloadRules } from '../core/payload.js';
import type { ServerClock } from '../core/server-clock.js';
import type { AuditStore } from '../store/audit.js';
import type { DocumentJobStore, DocumentPlace } from '../store/documents.js';
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
import type {
  InstanceStore,
  JobStore,
  LimitStore,
  LockStore,
  MetricsStore,
  Shortage,
  Store,
  Watch,
  WatchHandlers,
} from '../store/port.js';
import type { ClusterPorts } from './cluster/ports.js';
import { SqlConnection, type Opened, type Sql } from './connection/connection.js';
import { sqlDocuments } from './documents/store.js';
import type { SqlTransaction } from './connection/driver.js';
import { run } from './connection/errors.js';
import { jobStore } from './jobs/store.js';
import { migrationsFrom } from './schema/migrate.js';
import type { OpenReactive } from './reactive/opened.js';
import { reactiveStore } from './reactive/store.js';
import { checkSchema, namesIn, quoted, type Names } from './schema/names.js';
import { refusesText } from './connection/values.js';

/** The options that both SQL stores accept. */
export interface SqlOptions {
  /** The schema that holds all of Tidemill's tables; any name that PostgreSQL accepts. Default: 'tidemill'. */
  readonly schema?: string;
  /**
   * Migrate the schema at the first use. With false, an old schema is an error that says what to run. For tools:
   * `'visit'` checks the schema like false, and `'unchecked'` uses it as it is. Default: true.
   */
  readonly migrate?: boolean | 'visit' | 'unchecked';
  /**
   * How other instances learn of jobs that you enqueue in your own transaction. `commit`: your transaction notifies
   * them when it commits. PostgreSQL serializes the commits of transactions that notify, so only the first 20 of each
   * name do, and 50 per second. `later`: this process notifies all instances every 100 ms for a second after the call,
   * for transactions that cannot notify, such as those with PREPARE TRANSACTION. Default: 'commit'.
   */
  readonly notify?: 'later' | 'commit';
  /** Largest payload, result or progress value, in bytes. Default: 15,500,000. */
  readonly maxPayloadBytes?: number;
  /**
   * Create the triggers that watched tables need. With false, a table without them is an error with the statements to
   * run. Default: true.
   */
  readonly createTriggers?: boolean;
  /**
   * About how many changes of watched tables wait in the outbox at most, from 100 on. Beyond it, triggers stop recording
   * changes, and every row is reconciled once an instance plans again. All instances should have the same value.
   * Default: 10,000,000.
   */
  readonly outboxLimit?: number;
}

export const SQL_OPTIONS = [
  'schema',
  'migrate',
  'notify',
  'maxPayloadBytes',
  'createTriggers',
  'outboxLimit',
] as const;

const DEFAULT_OUTBOX = 10_000_000;
const DEFAULT_BYTES = 15_500_000;
/** A jsonb value can hold somewhat more. */
const LARGEST_BYTES = 200_000_000;

const payload: PayloadRules = { maxDepth: 80, refusesText };

const loadDrift = lazily(() => import('./schema/drift.js'));
const loadInspect = lazily(() => import('./schema/inspect.js'));

/** A store on PostgreSQL, over any driver. */
export class SqlStore implements Store<SqlTransaction> {
  readonly kind: string;
  readonly clock: ServerClock;
  readonly payload: PayloadRules = payload;
  readonly maxPayloadBytes: number;
  readonly jobs: JobStore<SqlTransaction>;
  readonly instances: InstanceStore;
  readonly locks: LockStore;
  readonly limits: LimitStore;
  readonly metrics: MetricsStore;
  readonly audit: AuditStore;
  readonly reactive: ReactiveStore<SqlTransaction> & Partitioned;
  readonly #names: Names;
  readonly #connection: SqlConnection;
  readonly #parts = new Parts();
  readonly #cluster: Lazy<ClusterPorts>;
  readonly #reactive: Lazy<OpenReactive>;
  readonly #documents = this.#parts.add(() => import('./documents/table-jobs.js'));

  constructor(kind: string, options: SqlOptions, open: () => Promise<Opened>) {
    const {
      schema = 'tidemill',
      migrate = true,
      notify = 'commit',
      maxPayloadBytes = DEFAULT_BYTES,
      createTriggers = true,
      outboxLimit = DEFAULT_OUTBOX,
    } = options;
    const where = `${kind}()`;
    if (migrate !== 'visit' && migrate !== 'unchecked') checkBoolean(where, 'migrate', migrate);
    checkBoolean(where, 'createTriggers', createTriggers);
    checkOneOf(where, 'notify', notify, ['later', 'commit']);
    this.kind = kind;
    this.maxPayloadBytes = checkInteger(where, 'maxPayloadBytes', maxPayloadBytes, 1, LARGEST_BYTES);
    this.#names = namesIn(checkSchema(where, schema));
    this.#connection = new SqlConnection({ names: this.#names, migrate, notify, open });
    this.clock = this.#connection.clock;
    const sql = (): Sql => this.#connection.sql;
    const outbox = checkInteger(where, 'outboxLimit', outboxLimit, 100, Number.MAX_SAFE_INTEGER);
    const parts = this.#parts;
    const cluster = parts.add(async () => (await import('./cluster/ports.js')).clusterPorts(sql));
    const metrics = parts.add(async () => (await import('./cluster/metrics.js')).metricsStore(sql));
    const limits = parts.add(async () => (await import('./limits/store.js')).limitStore(sql));
    this.jobs = jobStore(sql, parts);
    this.instances = deferredPort(cluster, 'instances', [...INSTANCE_METHODS, 'leases']);
    this.locks = deferredPort(cluster, 'locks', LOCK_METHODS);
    this.audit = deferredPort(cluster, 'audit', AUDIT_METHODS);
    this.metrics = deferred(metrics, METRICS_METHODS);
    this.limits = deferred(limits, [...LIMIT_METHODS, 'repairKeys']);
    this.#cluster = cluster;
    this.#reactive = parts.add(async () => {
      const { openReactive } = await import('./reactive/opened.js');
      return openReactive(sql, createTriggers, outbox);
    });
    this.reactive = reactiveStore(this.#reactive);
  }

  acquire(holder: object): Promise<void> {
    return this.#connection.acquire(holder);
  }

  release(holder: object): Promise<void> {
    return this.#connection.release(holder);
  }

  loadParts(): Promise<void> {
    return this.#parts.load();
  }

  documents(place: DocumentPlace): DocumentJobStore {
    const home = {
      clock: this.clock,
      sql: () => this.#connection.sql,
      acquire: (holder: object) => this.acquire(holder),
      release: (holder: object) => this.release(holder),
    };
    return sqlDocuments(home, place, this.#documents);
  }

  watch(handlers: WatchHandlers): Promise<Watch | { readonly unavailable: string }> {
    const { sql } = this.#connection;
    return this.#cluster().then(({ watch }) => watch(sql, handlers));
  }

  /** Runs at READ COMMITTED. Calls `work` again after a deadlock or a serialization failure. */
  async transaction<T>(work: (transaction: SqlTransaction) => Promise<T>): Promise<T> {
    const { driver, notifier, ownTransactions } = this.#connection.sql;
    let handle: SqlTransaction | undefined;
    const answer = await driver.lend(async (transaction) => {
      ownTransactions.add((handle = transaction));
      try {
        return await work(transaction);
      } finally {
        ownTransactions.delete(transaction);
      }
    });
    if (handle !== undefined) notifier.committed(handle);
    return answer;
  }

  shortage(): Shortage | undefined {
    return this.#connection.isOpen ? this.#connection.sql.driver.shortage?.() : undefined;
  }

  checkOutside(): void {
    this.#connection.sql.driver.checkOutside?.();
  }

  isTransaction(value: unknown): value is SqlTransaction {
    if (typeof value !== 'object' || value === null || !('query' in value)) return false;
    if (!('totalCount' in value) && !('transaction' in value)) return typeof value.query === 'function';
    throw new OptionError(
      'transaction: a pool or a database is not a transaction: each of its queries may use another connection. Pass the ' +
        'client on which you called BEGIN, or the argument of `mill.withTransaction`.',
    );
  }

  /**
   * What is missing or different in the schema, as texts; empty if nothing is. Needs the privilege to create a schema.
   */
  async schemaFaults(): Promise<readonly string[]> {
    const { driftText, schemaDrift } = await loadDrift();
    return (await schemaDrift(this.#connection.sql)).map(driftText);
  }

  async inspect(): Promise<readonly Finding[]> {
    const { inspect } = await loadInspect();
    const leftovers = (): Promise<readonly string[]> => this.leftoverTables();
    return inspect({ sql: this.#connection.sql, shared: this.kind === 'postgres', leftovers });
  }

  /** Drops the schema, with everything in it. */
  async erase(): Promise<void> {
    const { driver, names } = this.#connection.sql;
    await run('erase', () => driver.unhurried.query(`drop schema if exists ${quoted(names.schema)} cascade`));
  }

  /** Tables whose changes are recorded although no live instance runs a task on them. */
  async leftoverTables(): Promise<readonly string[]> {
    return (await this.#reactive()).leftoverTables();
  }

  /** Drops the triggers of a table, and forgets the tasks on it. Returns false if it has none. */
  async dropTriggers(collection: string): Promise<boolean> {
    const dropped = await (await this.#reactive()).dropTriggers(collection);
    await this.reactive.planner.notifyPeers(true);
    return dropped;
  }

  /** The SQL that migrates the schema from a version to the one that this version of Tidemill needs. */
  migrationScript(from = 0): string {
    const schema = from === 0 ? [`create schema if not exists ${quoted(this.#names.schema)}`] : [];
    return [...schema, ...migrationsFrom(from, this.#names)]
      .map((statement) => `${statement.trim()};`)
      .join('\n');
  }
}
