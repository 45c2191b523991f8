import { systemClock, type Clock } from '../core/clock.js';
import type { PayloadRules } from '../core/payload.js';
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
import { MemoryAudit } from './cluster/audit.js';
import { MemoryCollection, type MemoryDocument } from './collection.js';
import { memoryDocuments } from './documents/store.js';
import { Admission } from './admission.js';
import { MemoryInstances } from './cluster/instances.js';
import { memoryJobs } from './jobs/store.js';
import { MemoryLocks } from './cluster/locks.js';
import { MemoryMetrics } from './cluster/metrics.js';
import { ChangeLog } from './reactive/log.js';
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
  readonly locks: LockStore;
  readonly metrics: MetricsStore;
  readonly audit: AuditStore;
  readonly reactive: MemoryReactive;
  /** For `tidemill/testing`: decides what may be claimed. */
  readonly admission: Admission = new Admission(() => this.#tell((listener) => listener.wake('jobs')));
  readonly #listeners = new Set<WatchHandlers>();
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
    this.metrics = new MemoryMetrics(this.clock);
    this.audit = new MemoryAudit(this.clock);
    this.jobs = memoryJobs({
      clock: this.clock,
      paused,
      admission: this.admission,
      cluster: () => instances.cluster(),
      wake: () => this.#tell((listener) => listener.wake('jobs')),
      cancel: () => this.#tell((listener) => listener.cancel()),
    });
    this.reactive = new MemoryReactive({
      now: () => new Date(this.clock.now()),
      log: this.#log,
      collection: (name) => this.collection(name),
      cluster: () => instances.cluster(),
      admits: (key) => this.admission.admits(key),
      wake: () => this.#tell((listener) => listener.wake('tasks')),
      news: () => this.#tell((listener) => listener.news()),
    });
  }

  /** Returns a collection of documents, for document schedules and reactive tasks; creates it on the first call. */
  collection<Doc extends object = MemoryDocument>(name: string): MemoryCollection<Doc> {
    const known = this.#collections.get(name);
    const collection = known ?? new MemoryCollection({ name, log: this.#log, now: () => this.clock.now() });
    this.#collections.set(name, collection);
    return collection as MemoryCollection<Doc>;
  }

  documents(place: DocumentPlace): DocumentJobStore<MemoryDocument> {
    return memoryDocuments(this.collection(place.collection), this.clock, place);
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
