import { pause } from '../../src/core/clock.js';
import { Tidemill } from '../../src/index.js';
import type { MemoryStore } from '../../src/memory/index.js';
import type { Judge } from './judge.js';
import type { SimulatedProcess } from './process.js';
import type { Random } from './random.js';
import type { RemoteStore } from './remote.js';

/** Which definitions a process has: deployments come and go. */
export interface Deployment {
  readonly tasks: readonly string[];
  /** The filter of the task `count`: another deployment may have another one. */
  readonly least: number;
}

export const EVERYTHING: Deployment = { tasks: ['copy', 'count'], least: 0 };

const RETRY = { type: 'fixed', interval: 400, maxAttempts: 1_000 } as const;
export const LEASE_MS = 3_000;
const LOCK_MS = 2_000;

/** What handlers have done, as the world outside sees it. */
export class Workload {
  readonly #store: MemoryStore;
  readonly #judge: Judge;
  readonly #random: Random;
  /** Handlers fail now and then, and take long. */
  isRough = true;
  readonly completed = new Set<string>();
  /**
   * By task and document: the values that were handled. A process that comes back from a pause may still handle an older one
   * after the last.
   */
  readonly handled = new Map<string, Set<number>>();
  readonly reminded = new Map<unknown, number>();
  /** Jobs with a single attempt whose handler was called, with the signal of that call. */
  readonly #singles = new Map<string, AbortSignal>();

  constructor(store: MemoryStore, judge: Judge, random: Random) {
    this.#store = store;
    this.#judge = judge;
    this.#random = random;
  }

  /** A mill with all handlers of a deployment. */
  mill(process: SimulatedProcess, store: RemoteStore, deployment: Deployment): Tidemill<RemoteStore> {
    const mill = new Tidemill({
      store,
      instanceId: process.name,
      concurrency: 4,
      leaseDuration: LEASE_MS,
      pollInterval: { min: 100, max: 2_000 },
      shutdownTimeout: 1_000,
      monitoring: { enabled: false },
      tracing: false,
      logger: false,
    });
    this.#defineJobs(mill, process);
    this.#defineTasks(mill, process, deployment);
    mill.documents({
      collection: 'reminders',
      lockDuration: LOCK_MS,
      retryPolicy: RETRY,
      onDocument: async ({ _id: id }, { signal }) => {
        await this.#run(`reminder/${String(id)}`, process, signal, true);
        this.reminded.set(id, (this.reminded.get(id) ?? 0) + 1);
      },
    });
    return mill;
  }

  #defineJobs(mill: Tidemill<RemoteStore>, process: SimulatedProcess): void {
    for (const name of ['step', 'only'])
      mill.job(name, { retryPolicy: RETRY }, async ({ id, signal }) => {
        await this.#run(id, process, signal);
        this.completed.add(id);
      });
    mill.job('single', { retryPolicy: { ...RETRY, maxAttempts: 1 } }, async ({ id, signal }) => {
      // A stop, or a lost lease that nobody took, hands it back without an attempt; its signal has told it so.
      if (this.#singles.get(id)?.aborted === false)
        this.#judge.violated(`single ${id} may start once, and starts again on ${process.name}`);
      this.#singles.set(id, signal);
      await this.#run(id, process, signal);
    });
    mill.job('transfer', { retryPolicy: RETRY }, async ({ id, signal, complete }) => {
      await this.#run(id, process, signal);
      await mill.withTransaction(async (transaction) => {
        this.#store.collection('ledger').insert({ job: id }, { transaction });
        await complete({ transaction });
      });
      this.completed.add(id);
    });
  }

  #defineTasks(mill: Tidemill<RemoteStore>, process: SimulatedProcess, { tasks, least }: Deployment): void {
    for (const task of tasks)
      void mill.reactiveTask<{ n: number }>({
        task,
        collection: 'things',
        debounce: 50,
        retryPolicy: RETRY,
        ...(task === 'count' ? { filter: { n: { $gte: least } }, watchProjection: { n: 1 } } : {}),
        handler: async ({ docId, getDocument, signal }) => {
          await this.#run(`${task}/{"value":${JSON.stringify(docId)}}`, process, signal);
          const { n } = await getDocument();
          const key = `${task}/${String(docId)}`;
          this.handled.set(key, (this.handled.get(key) ?? new Set()).add(n));
        },
      });
  }

  /** Takes a while, may fail, and notices its signal or not. */
  async #run(id: string, process: SimulatedProcess, signal: AbortSignal, byTime = false): Promise<void> {
    const ended = this.#judge.began(id, process, signal, byTime);
    try {
      const isLong = this.isRough && this.#random.chance(0.1);
      const heeds = this.#random.chance(0.7);
      const ms = isLong ? this.#random.between(500, 9_000) : this.#random.between(1, 60);
      await pause(process.clock, ms, heeds ? signal : undefined);
      if (this.isRough && this.#random.chance(0.1)) throw new Error('on purpose');
    } finally {
      ended();
    }
  }
}
