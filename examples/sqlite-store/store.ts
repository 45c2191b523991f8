/** A store for jobs in one SQLite file. docs/write-a-store.md explains it step by step. */
import {
  systemClock,
  type AuditStore,
  type InstanceStore,
  type JobStore,
  type LockStore,
  type MetricsStore,
  type PayloadRules,
  type Store,
  type Watch,
  type WatchHandlers,
} from 'tidemill/store';
import { SqliteFile, unsupported } from './database.js';
import { clusterOf, sqliteInstances, sqliteLocks } from './instances.js';
import { sqliteJobs } from './jobs.js';

export class SqliteStore implements Store<never> {
  readonly kind = 'sqlite';
  /** SQLite has no server: the machine's clock decides. */
  readonly clock = systemClock;
  readonly payload: PayloadRules = { maxDepth: 80 };
  readonly maxPayloadBytes = 1_000_000;
  readonly jobs: JobStore<never>;
  readonly instances: InstanceStore;
  readonly locks: LockStore;
  readonly metrics: MetricsStore = noMetrics;
  readonly audit: AuditStore = noAudit;
  readonly #file: SqliteFile;
  readonly #holders = new Set<object>();
  readonly #listeners = new Set<WatchHandlers>();

  constructor(path: string) {
    this.#file = new SqliteFile(path);
    this.instances = sqliteInstances(this.#file);
    this.locks = sqliteLocks(this.#file);
    this.jobs = sqliteJobs({
      file: this.#file,
      cluster: () => clusterOf(this.#file),
      wake: () => this.#listeners.forEach((listener) => listener.wake('jobs')),
      cancel: () => this.#listeners.forEach((listener) => listener.cancel()),
    });
  }

  async acquire(holder: object): Promise<void> {
    this.#file.open();
    this.#holders.add(holder);
  }

  async release(holder: object): Promise<void> {
    if (this.#holders.delete(holder) && this.#holders.size === 0) this.#file.close();
  }

  /** Reaches the mills of this process; other processes find the work when they poll. */
  async watch(handlers: WatchHandlers): Promise<Watch> {
    this.#listeners.add(handlers);
    return { close: async () => void this.#listeners.delete(handlers) };
  }

  transaction = unsupported('transactions');

  isTransaction(_value: unknown): _value is never {
    return false;
  }
}

/** Metrics are dropped: no job waits for them. */
const noMetrics: MetricsStore = {
  push: async () => undefined,
  read: async () => ({ counts: new Map(), shares: [] }),
  leave: async () => undefined,
  saveMinutes: async () => undefined,
  saveWaiting: async () => undefined,
  series: async () => [],
  forget: async () => undefined,
};

const noAudit: AuditStore = {
  append: unsupported('audit log'),
  amend: unsupported('audit log'),
  get: unsupported('audit log'),
  list: unsupported('audit log'),
};
