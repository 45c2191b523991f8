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
import { MemoryAudit } from './audit.js';
import { MemoryCollection, type MemoryDocument } from './collection.js';
import { memoryDocuments } from './documents.js';
import { Gate } from './gate.js';
import { MemoryInstances } from './instances.js';
import { memoryJobs } from './jobs.js';
import { MemoryLocks } from './locks.js';
import { MemoryMetrics } from './metrics.js';
import { MemoryTransaction } from './transaction.js';

export interface MemoryOptions {
  /** The clock that due times, leases and timers follow; `virtualClock()` of tidemill/testing fits. Default: real time. */
  readonly clock?: Clock;
  /** Largest payload, result or progress value, in bytes. Default: 15,500,000, as on MongoDB. */
  readonly maxPayloadBytes?: number;
}

const payload: PayloadRules = { maxDepth: 80 };

/** Jobs in this process's memory: for unit tests, and for work that may be lost with the process. */
export class MemoryStore implements Store<MemoryTransaction> {
  readonly kind = 'memory';
  readonly clock: Clock;
  readonly payload: PayloadRules = payload;
  readonly maxPayloadBytes: number;
  readonly jobs: JobStore<MemoryTransaction>;
  readonly instances: InstanceStore;
  readonly locks: LockStore;
  readonly metrics: MetricsStore;
  readonly audit: AuditStore;
  /** For `tidemill/testing`. */
  readonly gate: Gate = new Gate(() => this.#tell((listener) => listener.wake('jobs')));
  readonly #listeners = new Set<WatchHandlers>();
  readonly #collections = new Map<string, MemoryCollection>();

  constructor(options: MemoryOptions) {
    this.clock = options.clock ?? systemClock;
    this.maxPayloadBytes = options.maxPayloadBytes ?? 15_500_000;
    const paused = new Set<string>();
    const instances = new MemoryInstances(this.clock, paused);
    this.instances = instances;
    this.locks = new MemoryLocks(this.clock);
    this.metrics = new MemoryMetrics(this.clock);
    this.audit = new MemoryAudit(this.clock);
    this.jobs = memoryJobs({
      clock: this.clock,
      paused,
      gate: this.gate,
      cluster: () => instances.cluster(),
      wake: () => this.#tell((listener) => listener.wake('jobs')),
      cancel: () => this.#tell((listener) => listener.cancel()),
    });
  }

  /** Documents for `mill.documents`, by the name of their collection; made at the first call. */
  collection(name: string): MemoryCollection {
    const collection = this.#collections.get(name) ?? new MemoryCollection();
    this.#collections.set(name, collection);
    return collection;
  }

  documents(place: DocumentPlace): DocumentJobStore<MemoryDocument> {
    return memoryDocuments(this.collection(place.collection), this.clock, place);
  }

  // Nothing is opened, so nothing is to be closed; the jobs stay for as long as the store object does.
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
