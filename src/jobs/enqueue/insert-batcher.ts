import { pause } from '../../core/clock.js';
import { StoreError } from '../../core/errors.js';
import type { Inserted, NewJob, Store } from '../../store/port.js';

const BATCH = 500;
/** How often, and for how long, a job is retried whose unique key or id an open transaction holds. */
const BLOCKED_MS = 200;
const PATIENCE_MS = 30_000;

interface Request {
  readonly job: NewJob;
  readonly since: number;
  readonly resolve: (inserted: Inserted) => void;
  readonly reject: (error: unknown) => void;
  /** Called if a job with a claim has to wait for an open transaction: it is then stored without the claim. */
  readonly unclaimed: () => void;
}

/**
 * Batches concurrent `enqueue` calls, so that a flood of calls becomes a few writes. A job that has to wait for an open
 * transaction waits apart from the others.
 */
export class InsertBatcher<Tx> {
  readonly #mostUnderWay: number;
  #waiting: Request[] = [];
  #underWay = 0;
  #blocked: Request[] = [];
  #retrying = false;

  /**
   * Two writes in flight keep the database busy; jobs that arrive meanwhile share the next one. Of calls that replace
   * each other the last must win, so theirs go one at a time.
   */
  constructor(mostUnderWay = 2) {
    this.#mostUnderWay = mostUnderWay;
  }

  insert(store: Store<Tx>, job: NewJob, unclaimed: () => void = () => undefined): Promise<Inserted> {
    return new Promise((resolve, reject) => {
      store.checkOutside?.();
      const request = { job, since: store.clock.monotonic(), resolve, reject, unclaimed };
      if (this.#blocked.some((one) => isTwin(one.job, job))) {
        this.#waitApart(store, request);
        return;
      }
      this.#waiting.push(request);
      // A microtask later, so that calls made in the same tick share the first write. Jest's fake timers hold back
      // `queueMicrotask`, but no promises.
      if (this.#underWay < this.#mostUnderWay) void Promise.resolve().then(() => this.#next(store));
    });
  }

  async #next(store: Store<Tx>): Promise<void> {
    if (this.#underWay >= this.#mostUnderWay || this.#waiting.length === 0) return;
    const batch = this.#waiting.splice(0, BATCH);
    this.#underWay += 1;
    await this.#write(store, batch);
    this.#underWay -= 1;
    await this.#next(store);
  }

  async #write(store: Store<Tx>, batch: readonly Request[]): Promise<void> {
    const jobs = batch.map(({ job }) => job);
    try {
      const inserted = await (store.jobs.insertFree?.(jobs) ?? store.jobs.insert(jobs));
      for (const [index, request] of batch.entries()) {
        const answer = inserted[index];
        if (answer === undefined) this.#waitApart(store, request);
        else request.resolve(answer);
      }
    } catch (error) {
      const shared = batch.length === 1 || (error instanceof StoreError && error.transient);
      if (shared) for (const { reject } of batch) reject(error);
      // At least one job cannot be written. Written one by one, the others succeed.
      else for (const request of batch) await this.#write(store, [request]);
    }
  }

  #waitApart(store: Store<Tx>, request: Request): void {
    const { claim, ...job } = request.job;
    if (claim !== undefined) request.unclaimed();
    this.#blocked.push({ ...request, job: claim === undefined ? job : { ...job, wake: 1 } });
    if (this.#retrying) return;
    this.#retrying = true;
    void this.#retry(store);
  }

  async #retry(store: Store<Tx>): Promise<void> {
    while (this.#blocked.length > 0) {
      await pause(store.clock, BLOCKED_MS);
      const now = store.clock.monotonic();
      // `#write` puts back what is still blocked.
      const batch = this.#blocked.splice(0, BATCH);
      const isLate = ({ since }: Request): boolean => now - since > PATIENCE_MS;
      for (const { job, reject } of batch.filter(isLate)) reject(heldUp(job));
      await this.#write(
        store,
        batch.filter((request) => !isLate(request)),
      );
    }
    this.#retrying = false;
  }
}

/** True if two jobs share an id or a unique key: whatever blocks one blocks the other. */
const isTwin = (one: NewJob, other: NewJob): boolean =>
  (one.uniqueKey !== undefined && one.uniqueKey === other.uniqueKey && one.name === other.name) ||
  (one.ownId === true && one.id === other.id);

const heldUp = ({ name, uniqueKey, id }: NewJob): StoreError => {
  const what = uniqueKey === undefined ? `the id "${String(id)}"` : `the unique key "${uniqueKey}"`;
  return new StoreError(
    `enqueue: an open transaction has held ${what} of "${name}" for ${String(PATIENCE_MS / 1_000)} s. Nothing was stored; ` +
      'end that transaction, or try again.',
    { transient: true },
  );
};
