import { OptionError } from '../core/errors.js';
import { checkBoolean, checkInteger, checkOneOf } from '../core/options.js';
import type { PayloadRules } from '../core/payload.js';
import type { ServerClock } from '../core/server-clock.js';
import type { AuditStore } from '../store/audit.js';
import type { DocumentJobStore, DocumentPlace } from '../store/documents.js';
import type { Finding } from '../store/inspect.js';
import type { ReactiveStore } from '../store/reactive.js';
import type {
  InstanceStore,
  JobStore,
  LockStore,
  MetricsStore,
  Shortage,
  Store,
  Watch,
  WatchHandlers,
} from '../store/port.js';
import { auditStore } from './cluster/audit.js';
import { Connection, type Opened, type Sql } from './connection/connection.js';
import { sqlDocuments } from './documents/store.js';
import { driftText, schemaDrift } from './schema/drift.js';
import type { SqlTransaction } from './connection/driver.js';
import { run } from './connection/errors.js';
import { inspect } from './schema/inspect.js';
import { instanceStore } from './cluster/instances.js';
import { jobStore } from './jobs/store.js';
import { lockStore } from './cluster/locks.js';
import { metricsStore } from './cluster/metrics.js';
import { migrationsFrom } from './schema/migrate.js';
import { dropTriggers, leftoverTables } from './reactive/feed/leftovers.js';
import { SqlSources } from './reactive/sources.js';
import { reactiveStore } from './reactive/store.js';
import { checkSchema, namesIn, quoted, type Names } from './schema/names.js';
import { refusesText } from './connection/values.js';
import { watch } from './cluster/watch.js';

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
   * How other instances learn of jobs that you enqueue in your own transaction. `later`: this process notifies them
   * every 100 ms for a second after the call. `commit`: your transaction notifies them itself, at a price: PostgreSQL
   * serializes the commits of transactions that notify. Default: 'later'.
   */
  readonly notify?: 'later' | 'commit';
  /** Largest payload, result or progress value, in bytes. Default: 15,500,000. */
  readonly maxPayloadBytes?: number;
  /**
   * Create the triggers that watched tables need. With false, a table without them is an error with the statements to
   * run. Default: true.
   */
  readonly createTriggers?: boolean;
}

export const SQL_OPTIONS = ['schema', 'migrate', 'notify', 'maxPayloadBytes', 'createTriggers'] as const;

const DEFAULT_BYTES = 15_500_000;
/** A jsonb value can hold somewhat more. */
const LARGEST_BYTES = 200_000_000;

const payload: PayloadRules = { maxDepth: 80, refusesText };

/** A store on PostgreSQL, over any driver. */
export class SqlStore implements Store<SqlTransaction> {
  readonly kind: string;
  readonly clock: ServerClock;
  readonly payload: PayloadRules = payload;
  readonly maxPayloadBytes: number;
  readonly jobs: JobStore<SqlTransaction>;
  readonly instances: InstanceStore;
  readonly locks: LockStore;
  readonly metrics: MetricsStore;
  readonly audit: AuditStore;
  readonly reactive: ReactiveStore<SqlTransaction>;
  readonly #names: Names;
  readonly #connection: Connection;
  readonly #sources: SqlSources;

  constructor(kind: string, options: SqlOptions, open: () => Promise<Opened>) {
    const {
      schema = 'tidemill',
      migrate = true,
      notify = 'later',
      maxPayloadBytes = DEFAULT_BYTES,
      createTriggers = true,
    } = options;
    const where = `${kind}()`;
    if (migrate !== 'visit' && migrate !== 'unchecked') checkBoolean(where, 'migrate', migrate);
    checkBoolean(where, 'createTriggers', createTriggers);
    checkOneOf(where, 'notify', notify, ['later', 'commit']);
    this.kind = kind;
    this.maxPayloadBytes = checkInteger(where, 'maxPayloadBytes', maxPayloadBytes, 1, LARGEST_BYTES);
    this.#names = namesIn(checkSchema(where, schema));
    this.#connection = new Connection({ names: this.#names, migrate, notify, open });
    this.clock = this.#connection.clock;
    const sql = (): Sql => this.#connection.sql;
    this.jobs = jobStore(sql);
    this.instances = instanceStore(sql);
    this.locks = lockStore(sql);
    this.metrics = metricsStore(sql);
    this.audit = auditStore(sql);
    this.#sources = new SqlSources(sql, createTriggers);
    this.reactive = reactiveStore(this.#sources);
  }

  acquire(holder: object): Promise<void> {
    return this.#connection.acquire(holder);
  }

  release(holder: object): Promise<void> {
    return this.#connection.release(holder);
  }

  documents(place: DocumentPlace): DocumentJobStore {
    const home = {
      clock: this.clock,
      sql: () => this.#connection.sql,
      acquire: (holder: object) => this.acquire(holder),
      release: (holder: object) => this.release(holder),
    };
    return sqlDocuments(home, place);
  }

  watch(handlers: WatchHandlers): Promise<Watch | { readonly unavailable: string }> {
    return watch(this.#connection.sql, handlers);
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
    return (await schemaDrift(this.#connection.sql)).map(driftText);
  }

  inspect(): Promise<readonly Finding[]> {
    const leftovers = (): Promise<readonly string[]> => this.leftoverTables();
    return inspect({ sql: this.#connection.sql, shared: this.kind === 'postgres', leftovers });
  }

  /** Drops the schema, with everything in it. */
  async erase(): Promise<void> {
    const { driver, names } = this.#connection.sql;
    await run('erase', () => driver.unhurried.query(`drop schema if exists ${quoted(names.schema)} cascade`));
  }

  /** Tables whose changes are recorded although no live instance runs a task on them. */
  leftoverTables(): Promise<readonly string[]> {
    return leftoverTables(this.#sources);
  }

  /** Drops the triggers of a table, and forgets the tasks on it. Returns false if it has none. */
  async dropTriggers(collection: string): Promise<boolean> {
    const dropped = await dropTriggers(this.#sources, collection);
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
