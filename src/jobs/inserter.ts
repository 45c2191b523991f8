import { StoreError } from '../core/errors.js';
import type { Inserted, NewJob, Store } from '../store/port.js';

/** Two writes under way keep the database busy; what is asked for meanwhile goes together in the next one. */
const MOST_UNDER_WAY = 2;
const BATCH = 500;

interface Request {
  readonly job: NewJob;
  readonly resolve: (inserted: Inserted) => void;
  readonly reject: (error: unknown) => void;
}

/** Gathers jobs that are asked for one by one at the same time, so that a flood of calls is a few writes. */
export class Inserter<Tx> {
  #waiting: Request[] = [];
  #underWay = 0;

  insert(store: Store<Tx>, job: NewJob): Promise<Inserted> {
    return new Promise((resolve, reject) => {
      store.checkOutside?.();
      this.#waiting.push({ job, resolve, reject });
      // A microtask later, so that calls of the same moment share the first write as well.
      if (this.#underWay < MOST_UNDER_WAY) queueMicrotask(() => void this.#next(store));
    });
  }

  async #next(store: Store<Tx>): Promise<void> {
    if (this.#underWay >= MOST_UNDER_WAY || this.#waiting.length === 0) return;
    const batch = this.#waiting.splice(0, BATCH);
    this.#underWay += 1;
    await write(store, batch);
    this.#underWay -= 1;
    await this.#next(store);
  }
}

async function write<Tx>(store: Store<Tx>, batch: readonly Request[]): Promise<void> {
  try {
    const inserted = await store.jobs.insert(batch.map(({ job }) => job));
    for (const [index, { resolve }] of batch.entries()) resolve(inserted[index] as Inserted);
  } catch (error) {
    const shared = batch.length === 1 || (error instanceof StoreError && error.transient);
    if (shared) for (const { reject } of batch) reject(error);
    // One of them cannot be written: the others must not pay for it.
    else for (const request of batch) await write(store, [request]);
  }
}
