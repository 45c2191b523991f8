import { pause } from '../../src/core/clock.js';
import { Tidemill, type ReactiveTaskDefinition } from '../../src/index.js';
import type { MemoryStore } from '../../src/memory/index.js';
import { textOf } from '../../src/memory/reactive/query/values.js';
import type { Judge } from './judge.js';
import { BREAKER, GATE, GATE_LIMITS, GUARDED, LIMITS } from './limits.js';
import type { SimulatedProcess } from './process.js';
import type { Random } from './random.js';
import type { RemoteStore } from './remote.js';

/** Which definitions a process has: deployments come and go. */
export interface Deployment {
  readonly tasks: readonly string[];
  /** The filter of the task `count`: another deployment may have another one. */
  readonly least: number;
  /** The version of the handler of `copy`: a raised one runs everything again. */
  readonly version: number;
  /** How many jobs `capped` may run at once: another deployment may have a lower limit. */
  readonly most: number;
  /** In how many partitions changes are planned, once all processes that live agree. */
  readonly partitions: number;
}

export const EVERYTHING: Deployment = {
  tasks: ['copy', 'count', 'mirror'],
  least: 0,
  version: 1,
  most: LIMITS['capped']?.concurrency ?? 1,
  partitions: 1,
};
/** More would hardly have a document each. */
export const MOST_PARTITIONS = 3;
/** The collections that tasks watch, and how many documents each has from the start. */
export const WATCHED: ReadonlyMap<string, number> = new Map([
  ['things', 3],
  ['others', 3],
]);

const RETRY = { type: 'fixed', interval: 400, maxAttempts: 1_000 } as const;
export const LEASE_MS = 3_000;
const LOCK_MS = 2_000;
/** So slow that a pass through a collection takes several pages, and longer than its progress may stay unsaved. */
const REACTIVE = { reconcileRate: 8, cleanupInterval: 3_000 } as const;

/** What handlers have done, as seen from outside. */
export class Workload {
  readonly #store: MemoryStore;
  readonly #judge: Judge;
  readonly #random: Random;
  /** Handlers fail now and then, and take long. */
  isRough = true;
  readonly completed = new Set<string>();
  /**
   * By task and document: the values that were handled. A process that resumes from a pause may still handle an older
   * one after the last.
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
      reactive: { ...REACTIVE, partitions: deployment.partitions },
      monitoring: { enabled: false },
      tracing: false,
      logger: false,
    });
    this.#defineJobs(mill, process);
    this.#defineLimited(mill, process, deployment);
    this.#defineTasks(mill, process, deployment);
    mill.documents({
      collection: 'reminders',
      lockDuration: LOCK_MS,
      retryPolicy: RETRY,
      onDocument: async ({ _id: id }, { signal }) => {
        await this.#run(`reminder/${String(id)}`, process, signal, { byTime: true });
        this.reminded.set(id, (this.reminded.get(id) ?? 0) + 1);
      },
    });
    return mill;
  }

  #defineJobs(mill: Tidemill<RemoteStore>, process: SimulatedProcess): void {
    for (const name of ['step', 'only'])
      mill.job(name, { retryPolicy: RETRY }, ({ id, signal }) =>
        this.#noting(id, process, async () => {
          await this.#run(id, process, signal);
          this.completed.add(id);
        }),
      );
    mill.job('single', { retryPolicy: { ...RETRY, maxAttempts: 1 } }, async ({ id, signal }) => {
      // A stop, or a lost lease that no instance took over, hands it back without using an attempt; its signal has
      // aborted then.
      if (this.#singles.get(id)?.aborted === false)
        this.#judge.violated(`single ${id} may start once, and starts again on ${process.name}`);
      this.#singles.set(id, signal);
      await this.#noting(id, process, () => this.#run(id, process, signal));
    });
    mill.job('transfer', { retryPolicy: RETRY }, ({ id, signal, complete }) =>
      this.#noting(id, process, async () => {
        await this.#run(id, process, signal);
        await mill.withTransaction(async (transaction) => {
          this.#store.collection('ledger').insert({ job: id }, { transaction });
          await complete({ transaction });
        });
        this.completed.add(id);
      }),
    );
  }

  #defineLimited(mill: Tidemill<RemoteStore>, process: SimulatedProcess, { most }: Deployment): void {
    mill.limit(GATE, GATE_LIMITS);
    for (const [name, limits] of Object.entries(LIMITS))
      mill.job<{ key: string }>(
        name,
        {
          retryPolicy: RETRY,
          limits: name === 'capped' ? { ...limits, concurrency: most } : limits,
          ...(name === GUARDED ? { breaker: BREAKER } : {}),
        },
        ({ id, signal }) =>
          this.#noting(id, process, () =>
            this.#run(id, process, signal, { fails: name === GUARDED ? 0.5 : 0.1 }),
          ),
      );
  }

  #defineTasks(mill: Tidemill<RemoteStore>, process: SimulatedProcess, deployment: Deployment): void {
    for (const task of deployment.tasks)
      void mill.reactiveTask<{ n: number }>({
        task,
        debounce: 50,
        retryPolicy: RETRY,
        ...definitionOf(task, deployment),
        handler: ({ docId, getDocument, signal }) => {
          const id = `${task}/${textOf(docId)}`;
          return this.#noting(id, process, async () => {
            await this.#run(id, process, signal);
            const { n } = await getDocument();
            this.handled.set(id, (this.handled.get(id) ?? new Set()).add(n));
          });
        },
      });
  }

  /** The judge knows every failure: an attempt may be charged only for one of them. */
  async #noting(id: string, process: SimulatedProcess, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      this.#judge.failed(id, process);
      throw error;
    }
  }

  /** Takes a while, may fail, and may or may not notice its signal. */
  async #run(
    id: string,
    process: SimulatedProcess,
    signal: AbortSignal,
    { byTime = false, fails = 0.1 }: { readonly byTime?: boolean; readonly fails?: number } = {},
  ): Promise<void> {
    const ended = this.#judge.began(id, process, signal, byTime);
    try {
      const isLong = this.isRough && this.#random.chance(0.1);
      const heeds = this.#random.chance(0.7);
      const ms = isLong ? this.#random.between(500, 9_000) : this.#random.between(1, 60);
      await pause(process.clock, ms, heeds ? signal : undefined);
      if (this.isRough && this.#random.chance(fails)) throw new Error('on purpose');
    } finally {
      ended();
    }
  }
}

type Definition = Pick<
  ReactiveTaskDefinition,
  'collection' | 'filter' | 'watchProjection' | 'cleanupPolicy' | 'evolution'
>;

/**
 * One task is run again by newer versions, one has a filter that deployments differ in, one is gone with its document.
 */
function definitionOf(task: string, { least, version }: Deployment): Definition {
  if (task === 'copy')
    return {
      collection: 'things',
      cleanupPolicy: { keepFor: 1_000 },
      evolution: { handlerVersion: version, onHandlerVersionChange: 'reprocess_all' },
    };
  if (task === 'count')
    return { collection: 'things', filter: { n: { $gte: least } }, watchProjection: { n: 1 } };
  return {
    collection: 'others',
    filter: { n: { $gte: 5 } },
    cleanupPolicy: { deleteWhen: 'sourceDocumentDeletedOrNoLongerMatching', keepFor: 0 },
  };
}
