import { systemClock, type Clock } from '../core/clock.js';
import { deferred } from '../core/lazily.js';
import type { PayloadRules } from '../core/payload.js';
import {
  EVERYTHING,
  type InstanceStore,
  type JobStore,
  type LimitStore,
  type LockStore,
  type MetricsStore,
  type ScopeRef,
  type Store,
  type Watch,
  type WatchHandlers,
} from '../store/port.js';
import { AUDIT_METHODS, LIMIT_METHODS, METRICS_METHODS, Parts } from '../store/parts.js';
import type { AuditStore } from '../store/audit.js';
import type { DocumentJobStore, DocumentPlace } from '../store/documents.js';
import { MemoryCollection, type MemoryDocument } from './collection.js';
import { memoryDocuments } from './documents/store.js';
import { Admission } from './admission.js';
import { MemoryInstances } from './cluster/instances.js';
import { memoryJobs } from './jobs/store.js';
import { Table, type MemoryContext } from './jobs/table.js';
import { MemoryLocks } from './cluster/locks.js';
import { ChangeLog } from './reactive/log.js';
import type { MemoryReactiveOptions } from './reactive/opened.js';
import { MemoryReactive } from './reactive/store.js';
import { MemoryTransaction } from './transaction.js';

export interface MemoryOptions {
  /** The clock for due times, leases and timers, such as tidemill/testing's `virtualClock()`. Default: real time. */
  readonly clock?: Clock;
  /** Largest payload, result or progress value, in bytes; as on MongoDB. Default: 15,500,000. */
  readonly maxPayloadBytes?: number;
}

const payload: PayloadRules = { maxDepth: 80 };

/**
 * Jobs, tasks and documents in this process's memory: for unit tests, and for work that may be lost with the process.
 */
export class MemoryStore implements Store<MemoryTransaction> {
  readonly kind = 'memory';
  readonly wakeUp = 'direct';
  readonly clock: Clock;
  readonly payload: PayloadRules = payload;
  readonly maxPayloadBytes: number;
  readonly jobs: JobStore<MemoryTransaction>;
  readonly instances: InstanceStore;
  readonly limits: LimitStore;
  readonly locks: LockStore;
  readonly metrics: MetricsStore;
  readonly audit: AuditStore;
  readonly reactive: MemoryReactive;
  /** For `tidemill/testing`: decides what may be claimed. */
  readonly admission: Admission = new Admission(() => this.#tell((listener) => listener.wake('jobs')));
  readonly #listeners = new Set<WatchHandlers>();
  readonly #parts = new Parts();
  readonly #documents = this.#parts.add(() => import('./documents/found.js'));
  readonly #collections = new Map<string, MemoryCollection>();
  /** Changes of documents, for reactive tasks. */
  readonly #log = new ChangeLog();

  constructor(options: MemoryOptions) {
    this.clock = options.clock ?? systemClock;
    this.maxPayloadBytes = options.maxPayloadBytes ?? 15_500_000;
    const paused = new Set<string>();
    const instances = new MemoryInstances(this.clock, paused, () => this.reactive.leader);
    this.instances = instances;
    this.locks = new MemoryLocks(this.clock);
    const parts = this.#parts;
    const metrics = parts.add(async () => {
      const { MemoryMetrics } = await import('./cluster/metrics.js');
      return new MemoryMetrics(this.clock);
    });
    this.metrics = deferred(metrics, METRICS_METHODS);
    const audit = parts.add(async () => {
      const { MemoryAudit } = await import('./cluster/audit.js');
      return new MemoryAudit(this.clock);
    });
    this.audit = deferred(audit, AUDIT_METHODS);
    const context: MemoryContext = {
      clock: this.clock,
      paused,
      admission: this.admission,
      wake: (name) =>
        this.#tell((listener) =>
          listener.wake('jobs', undefined, name === undefined ? undefined : new Map([[name, 1]])),
        ),
      pausesChanged: () =>
        this.#tell((listener) => {
          listener.wake('jobs');
          listener.wake('tasks');
        }),
      cancel: () => this.#tell((listener) => listener.cancel()),
    };
    const table = new Table(context);
    this.jobs = memoryJobs(table, parts);
    const limits = parts.add(async () => {
      const { memoryLimits } = await import('./limits/store.js');
      const freed = (scopes: readonly ScopeRef[]): void => this.#tell((listener) => listener.freed(scopes));
      const taskKeys: MemoryReactive['keyUses'] = (...asked) => this.reactive.keyUses(...asked);
      return memoryLimits({ clock: this.clock, table, taskKeys, freed });
    });
    this.limits = deferred(limits, LIMIT_METHODS);
    const reactive: MemoryReactiveOptions = {
      now: () => new Date(this.clock.now()),
      log: this.#log,
      collection: (name) => this.collection(name),
      cluster: () => instances.cluster(),
      isEverythingPaused: () => paused.has(EVERYTHING),
      admits: (key) => this.admission.admits(key),
      wake: () => this.#tell((listener) => listener.wake('tasks')),
      news: () => this.#tell((listener) => listener.news()),
    };
    this.reactive = new MemoryReactive(reactive, parts);
  }

  /** Returns a collection of documents, for document schedules and reactive tasks; creates it on the first call. */
  collection<Doc extends object = MemoryDocument>(name: string): MemoryCollection<Doc> {
    const known = this.#collections.get(name);
    const collection = known ?? new MemoryCollection({ name, log: this.#log, now: () => this.clock.now() });
    this.#collections.set(name, collection);
    return collection as MemoryCollection<Doc>;
  }

  documents(place: DocumentPlace): DocumentJobStore<MemoryDocument> {
    return memoryDocuments(this.collection(place.collection), this.clock, place, this.#documents);
  }

  loadParts(): Promise<void> {
    return this.#parts.load();
  }

  // Nothing is opened or closed: the jobs live as long as the store object.
  acquire(): Promise<void> {
    return Promise.resolve();
  }

  release(): Promise<void> {
    return Promise.resolve();
  }

  watch(handlers: WatchHandlers): Promise<Watch> {
    this.#listeners.add(handlers);
    const close = (): Promise<void> => {
      this.#listeners.delete(handlers);
      return Promise.resolve();
    };
    return Promise.resolve({ close });
  }

  async transaction<T>(work: (transaction: MemoryTransaction) => Promise<T>): Promise<T> {
    const transaction = new MemoryTransaction();
    const answer = await work(transaction);
    transaction.commit();
    return answer;
  }

  isTransaction(value: unknown): value is MemoryTransaction {
    return value instanceof MemoryTransaction;
  }

  #tell(what: (listener: WatchHandlers) => void): void {
    for (const listener of this.#listeners) what(listener);
  }
}
