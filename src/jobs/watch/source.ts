import { JOB_STATUSES, type JobRecord } from '../../core/records/job.js';
import type { JobFilter, Page, Store } from '../../store/port.js';
import { ChangeChannel } from './channel.js';

/** A transaction that commits this much later than it wrote is still found by its time of change. */
const OVERLAP_MS = 5_000;
/** How many ids are kept for a slow consumer. Beyond that, it reads by time of change. */
const MOST_IDS = 1_000;
const PAGE = 100;

export interface SourceOptions {
  readonly store: Store;
  readonly filter: JobFilter;
  /** The store's time from which on changes count. */
  readonly since: number;
  readonly stop: AbortSignal;
  readonly open: Set<ChangeChannel>;
}

/**
 * Finds the jobs that may have changed. A channel of the store names them; a sweep by time of change finds what the
 * channel missed. It keeps ids, up to a limit, and reads a page of jobs only when the consumer asks for one: a slow
 * consumer gets the last state of each job, and nothing grows.
 */
export class ChangeSource {
  readonly #options: SourceOptions;
  readonly #channel: ChangeChannel;
  readonly #ids = new Set<string>();
  /** Where the next sweep begins, and the one in progress began: a time of change. */
  #from: number;
  #sweptAt = 0;
  /** The next page of the sweep; undefined if none is in progress. */
  #page: Page['after'] | 'first' = 'first';
  /** What happened before the channel was open is told first. */
  #isFirstSweep = true;

  constructor(options: SourceOptions) {
    const { store, filter, stop, since, open } = options;
    this.#options = options;
    this.#from = since - OVERLAP_MS;
    this.#channel = new ChangeChannel({ store, filter, stop, open, changed: (ids) => this.#changed(ids) });
  }

  /** Returns jobs that may have changed, at least one; undefined once it was stopped. */
  async next(): Promise<readonly JobRecord[] | undefined> {
    const { stop } = this.#options;
    while (!stop.aborted) {
      await this.#channel.open();
      const isNamed = this.#ids.size > 0 && !this.#isFirstSweep;
      const found = isNamed ? await this.#named() : await this.#swept();
      if (found.length > 0) return found;
      if (this.#ids.size > 0 || this.#page !== undefined) continue;
      if ((await this.#channel.wait()) === 'timer') this.#page ??= 'first';
    }
    return undefined;
  }

  /** A change was told: the next poll comes soon. */
  told(): void {
    this.#channel.found();
  }

  close(): Promise<void> {
    return this.#channel.close();
  }

  #changed(ids: readonly string[] | undefined): void {
    if (ids === undefined || this.#ids.size + ids.length > MOST_IDS) {
      this.#ids.clear();
      this.#page ??= 'first';
    } else for (const id of ids) this.#ids.add(id);
  }

  async #named(): Promise<readonly JobRecord[]> {
    const { store, filter } = this.#options;
    const ids = [...this.#ids].slice(0, PAGE);
    for (const id of ids) this.#ids.delete(id);
    const wanted = filter.ids === undefined ? ids : ids.filter((id) => filter.ids?.includes(id));
    if (wanted.length === 0) return [];
    const page: Page = { field: 'updatedAt', direction: 1, limit: PAGE };
    return (await store.jobs.find({ ...filter, ids: wanted }, page)).jobs;
  }

  /** Returns one page of what has changed since the last sweep. */
  async #swept(): Promise<readonly JobRecord[]> {
    const { store, filter } = this.#options;
    const { clock, jobs } = store;
    const page = this.#page;
    if (page === undefined) return [];
    if (page === 'first') this.#sweptAt = clock.now();
    const after = page === 'first' ? {} : { after: page };
    const changed = {
      ...filter,
      status: filter.status ?? JOB_STATUSES,
      updatedAt: later(filter, this.#from),
    };
    const found = await jobs.find(changed, { field: 'updatedAt', direction: 1, limit: PAGE, ...after });
    const last = found.jobs.at(-1);
    const isOver = last === undefined || !found.more;
    this.#page = isOver ? undefined : { at: last.updatedAt, key: jobs.cursorKey(last) };
    if (isOver) this.#isFirstSweep = false;
    if (isOver && !found.partial) this.#from = this.#sweptAt - OVERLAP_MS;
    return found.jobs;
  }
}

function later({ updatedAt }: JobFilter, from: number): NonNullable<JobFilter['updatedAt']> {
  return { ...updatedAt, from: new Date(Math.max(from, updatedAt?.from?.getTime() ?? -Infinity)) };
}
