import { pause, type Clock } from '../core/clock.js';
import { StoreError } from '../core/errors.js';
import type { Finished } from '../core/outcome.js';
import type { Work } from '../core/work.js';
import { leaseOf, type SettleAnswer, type WorkStore } from '../store/port.js';
import type { Conclusion, Extra, Trigger } from './trigger.js';

const BATCH = 500;
/** While the store writes one batch, the next is made ready and sent, if it is full. */
const AT_ONCE = 2;
const MOST_REFUSALS = 2;
const FIRST_WAIT_MS = 50;
const LONGEST_WAIT_MS = 2_000;
/** How often what somebody's transaction holds is tried again. */
const ASIDE_MS = 500;

export interface Settling<W extends Work> {
  readonly work: W;
  readonly finished: Finished;
  /** How often the database has refused this outcome for good. */
  readonly refusals?: number;
  readonly extra?: Extra;
}

export interface SettlerOptions<W extends Work, S> {
  readonly store: Pick<WorkStore<W, S>, 'settle' | 'held' | 'insertFailedRun'>;
  readonly clock: Clock;
  readonly trigger: Pick<Trigger<W, S>, 'conclude' | 'recorded'>;
  /** A lease was taken over before the outcome could be recorded. */
  readonly lost: (work: W) => void;
  readonly error: (error: unknown) => void;
  /** Called after each batch, when there is room for more outcomes. */
  readonly drained: () => void;
}

/**
 * Records outcomes. Those of the same moment go in one command; a second one goes beside it only where a full batch
 * waits. Their order does not matter: work is claimed again only after its outcome is written. A database that does not
 * answer is asked again until it does: its own trouble never becomes a job's failure, and it alone says who holds what.
 */
export class Settler<W extends Work, S> {
  readonly #options: SettlerOptions<W, S>;
  #queue: Settling<W>[] = [];
  /** Batches under way, and when each was begun. */
  readonly #writing = new Map<readonly Settling<W>[], number>();
  readonly #flushes = new Set<Promise<void>>();
  #flushing = 0;
  /** What somebody's transaction holds is recorded when that has ended; nothing else waits for it. */
  readonly #aside: Settling<W>[] = [];
  #retrying = false;
  readonly #giveUp = new AbortController();

  constructor(options: SettlerOptions<W, S>) {
    this.#options = options;
  }

  /** Outcomes that are not recorded yet. */
  get backlog(): number {
    return this.#queue.length + this.#aside.length;
  }

  ids(): string[] {
    const all = [...this.#queue, ...[...this.#writing.keys()].flat(), ...this.#aside];
    return all.map(({ work }) => work.id);
  }

  push(settling: Settling<W>): void {
    if (this.#giveUp.signal.aborted) return;
    this.#queue.push(settling);
    if (this.#flushing < (this.#queue.length < BATCH ? 1 : AT_ONCE)) this.#start();
  }

  /** Resolves when everything is recorded, or given up after `limitMs`; answers how many were not. */
  async drain(limitMs: number): Promise<number> {
    const timer = this.#options.clock.timer(limitMs, () => this.#giveUp.abort());
    const { signal } = this.#giveUp;
    // A database that never answers must not hold up the end.
    const givenUp = new Promise<void>((resolve) => {
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
    while (this.#flushes.size > 0 && !signal.aborted)
      await Promise.race([Promise.all(this.#flushes), givenUp]);
    timer.cancel();
    // Whatever comes from now on finds no store any more.
    this.#giveUp.abort();
    return this.ids().length;
  }

  /** Milliseconds since the oldest batch that is being written was begun. */
  get writingMs(): number {
    const now = this.#options.clock.monotonic();
    return [...this.#writing.values()].reduce((most, begunAt) => Math.max(most, now - begunAt), 0);
  }

  #start(): void {
    this.#flushing += 1;
    const flushing = this.#flush();
    this.#awaited(flushing);
    this.#options.clock.track?.(flushing);
  }

  #awaited(flushing: Promise<void>): void {
    this.#flushes.add(flushing);
    void flushing.then(() => this.#flushes.delete(flushing));
  }

  async #flush(): Promise<void> {
    // One turn of the event loop gathers everything that ends in it.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#queue.length >= (this.#flushing > 1 ? BATCH : 1) && !this.#giveUp.signal.aborted) {
      const batch = this.#queue.slice(0, BATCH);
      this.#queue = this.#queue.slice(BATCH);
      await this.#write(batch, (left) => this.#queue.unshift(...left));
    }
    this.#flushing -= 1;
  }

  async #write(batch: readonly Settling<W>[], keep: (left: readonly Settling<W>[]) => void): Promise<void> {
    this.#writing.set(batch, this.#options.clock.monotonic());
    const left = await this.#persist(batch);
    this.#writing.delete(batch);
    keep(left);
    this.#options.drained();
  }

  #setAside(settling: Settling<W>): void {
    this.#aside.push(settling);
    if (this.#retrying) return;
    this.#retrying = true;
    this.#awaited(this.#retry());
  }

  async #retry(): Promise<void> {
    while (this.#aside.length > 0 && (await pause(this.#options.clock, ASIDE_MS, this.#giveUp.signal))) {
      const batch = this.#aside.splice(0, BATCH);
      // What is still held is set aside again.
      await this.#write(batch, (left) => this.#aside.push(...left));
    }
    this.#retrying = false;
  }

  /** Until the store has answered for each; what is left had to be given up. */
  async #persist(batch: readonly Settling<W>[]): Promise<readonly Settling<W>[]> {
    let open = batch;
    for (let waitMs = FIRST_WAIT_MS; open.length > 0; waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS)) {
      try {
        open = await this.#record(open);
        if (open.length === 0) return [];
      } catch (error) {
        this.#options.error(error);
        const passing = error instanceof StoreError && error.transient;
        if (!passing) open = open.length > 1 ? await this.#oneByOne(open) : this.#judged(open, error);
        await pause(this.#options.clock, passing ? waitMs : LONGEST_WAIT_MS, this.#giveUp.signal);
      }
      if (this.#giveUp.signal.aborted) return open;
    }
    return [];
  }

  /** One of them cannot be recorded as it is: the others must not wait for it. */
  async #oneByOne(batch: readonly Settling<W>[]): Promise<readonly Settling<W>[]> {
    const open: Settling<W>[] = [];
    for (const settling of batch) {
      try {
        open.push(...(await this.#record([settling])));
      } catch (error) {
        open.push(...this.#judged([settling], error));
      }
    }
    return open;
  }

  /** What the store itself reports is its own trouble, and is asked again; anything else is the outcome's fault. */
  #judged(settlings: readonly Settling<W>[], error: unknown): readonly Settling<W>[] {
    return error instanceof StoreError
      ? settlings
      : settlings.flatMap((settling) => this.#refused(settling, error));
  }

  /** First it fails with a short reason, then with nothing but its state; if even that is refused it is given up. */
  #refused(settling: Settling<W>, error: unknown): Settling<W>[] {
    const refusals = (settling.refusals ?? 0) + 1;
    if (refusals <= MOST_REFUSALS) return [unrecordable(settling, refusals)];
    this.#options.error(error);
    this.#options.lost(settling.work);
    return [];
  }

  /** One round: decides, writes, and answers what has to be decided again. */
  async #record(batch: readonly Settling<W>[]): Promise<readonly Settling<W>[]> {
    const { store, trigger, lost } = this.#options;
    const conclusions = batch.map(({ work, finished, extra, refusals = 0 }) =>
      trigger.conclude(work, finished, { refusals, ...(extra === undefined ? {} : { extra }) }),
    );
    for (const [index, { failedRun }] of conclusions.entries()) {
      if (failedRun !== undefined)
        await store.insertFailedRun?.((batch[index] as Settling<W>).work, failedRun);
    }
    const answers = await store.settle(conclusions.map((conclusion) => conclusion.settlement));
    const again: Settling<W>[] = [];
    for (const [index, settling] of batch.entries()) {
      const answer = answers[index] as SettleAnswer;
      if (answer === 'settled')
        trigger.recorded(settling.work, settling.finished, conclusions[index] as Conclusion<S>);
      else if (answer === 'lost') lost(settling.work);
      else if (answer === 'blocked') this.#setAside(settling);
      else if (answer === 'refused')
        again.push(...this.#refused(settling, new Error('refused by the database')));
      else again.push(settling);
    }
    return this.#reread(again);
  }

  /** Work that changed while it ran is decided anew from what it is now. */
  async #reread(settlings: readonly Settling<W>[]): Promise<readonly Settling<W>[]> {
    if (settlings.length === 0) return [];
    const works = await this.#options.store.held(settlings.map(({ work }) => leaseOf(work)));
    return settlings.flatMap((settling, index) => {
      const work = works[index];
      if (work !== undefined) return [{ ...settling, work }];
      this.#options.lost(settling.work);
      return [];
    });
  }
}

/** The database will never take this outcome: it fails with a short reason instead, without what made it impossible. */
function unrecordable<W extends Work>({ work, finished }: Settling<W>, refusals: number): Settling<W> {
  const error = new Error(
    'The result, progress and log of this job together exceed what the database can hold.',
  );
  Reflect.deleteProperty(error, 'stack');
  return { work, refusals, finished: { ...finished, outcome: { kind: 'threw', error } } };
}
