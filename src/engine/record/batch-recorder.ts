import { Backoff } from '../../core/backoff.js';
import { tryInHalves, type Blame } from '../../core/batches/bisect.js';
import { inPieces, type Round, type Tried } from '../../core/batches/pieces.js';
import { pause, type Clock } from '../../core/clock.js';
import { OptionError, StoreError } from '../../core/errors.js';
import { RefusedOutcomes, type Entry, type RefusedOutcome } from './refused-outcomes.js';

const BATCH = 500;
/** Concurrent batches. A second batch is written beside the first only if it is full. */
const AT_ONCE = 2;
const RETRY_MS = { min: 50, max: 2_000 };
/** After this many transient errors, a batch is tried in ever smaller pieces: one of its outcomes may be the cause. */
const MOST_TOGETHER = 2;
/** After this many transient errors, an outcome that fails alone while the store takes others counts as refused. */
const MOST_TROUBLES = 3;
/** The interval between retries of outcomes whose row is locked by another transaction. */
const BLOCKED_MS = 500;

/**
 * What became of one outcome. `done`: it is recorded, or there is nothing left to record. `blocked`: another
 * transaction holds its row. `refused`: the database will not take it as it is. `again`: write this in its place.
 */
export type Written<T> = 'done' | 'blocked' | 'refused' | { readonly again: T };

/** Writes outcomes of one kind of work: jobs, reactive tasks or documents. */
export interface BatchWriter<T> {
  /**
   * Tries to write a batch once. Returns one answer per outcome, in order. Throws a transient `StoreError` if the store
   * may take the batch later, an `OptionError` if an outcome is too large, and anything else if it refuses one.
   */
  write(batch: readonly T[]): Promise<readonly Written<T>[]>;
  /** Returns a smaller form of an outcome that is too large; undefined if there is none. */
  smaller(outcome: T): T | undefined;
  /** Returns what messages and `health()` call an outcome. */
  nameOf(outcome: T): { readonly name: string; readonly id: string };
}

export interface BatchRecorderOptions<T> {
  readonly writer: BatchWriter<T>;
  readonly clock: Clock;
  readonly error: (error: unknown) => void;
  /** Called after each batch. */
  readonly drained?: () => void;
}

/** Outcomes being written. `open` shrinks as the store takes them. */
interface Batch<T> {
  open: readonly Entry<T>[];
  readonly begunAt: number;
}

/** A transient error concerns the whole batch; any other is caused by one of its outcomes. */
const blame = (error: unknown): Blame =>
  error instanceof StoreError && error.transient ? 'again' : 'choked';

/**
 * Records outcomes in batches, and keeps each of them until the store has taken it.
 * - Outcomes of the same turn of the event loop go into one command. A second command runs beside it only if a full
 *   batch waits. Order does not matter: work runs again only after its outcome is written.
 * - If the database does not answer, the command is retried until it does: a database error never becomes a job's
 *   failure, and only the store knows who holds the work.
 * - If the database refuses a batch, it is split in halves, so that only the faulty outcomes are kept back.
 * - A transient error may be caused by a single outcome, too: after two failures the batch is tried in pieces, together
 *   with outcomes that have arrived meanwhile.
 */
export class BatchRecorder<T> {
  readonly #writer: BatchWriter<T>;
  readonly #options: BatchRecorderOptions<T>;
  #queue: Entry<T>[] = [];
  readonly #writing = new Set<Batch<T>>();
  readonly #flushes = new Set<Promise<void>>();
  #flushing = 0;
  /** Outcomes whose row is locked by another transaction. They are retried apart, so that no other outcome waits. */
  readonly #blocked: Entry<T>[] = [];
  #retryingBlocked = false;
  readonly #refused: RefusedOutcomes<T>;
  #retryingRefused = false;
  readonly #giveUp = new AbortController();

  constructor(options: BatchRecorderOptions<T>) {
    this.#options = options;
    this.#writer = options.writer;
    this.#refused = new RefusedOutcomes(options.clock, (outcome) => this.#writer.nameOf(outcome));
  }

  /** The number of queued or blocked outcomes, without those that the database refuses. */
  get backlog(): number {
    return this.#queue.length + this.#blocked.length;
  }

  /** Outcomes that the database refuses. */
  get refused(): readonly RefusedOutcome[] {
    return this.#refused.list;
  }

  /** Milliseconds since the oldest batch in progress began. */
  get writingMs(): number {
    const now = this.#options.clock.monotonic();
    return [...this.#writing].reduce((most, { begunAt }) => Math.max(most, now - begunAt), 0);
  }

  /** Returns every outcome that is not recorded yet. */
  unrecorded(): T[] {
    const writing = [...this.#writing].flatMap(({ open }) => open);
    const all = new Set([...this.#queue, ...writing, ...this.#blocked, ...this.#refused.waiting]);
    return [...all].map(({ outcome }) => outcome);
  }

  push(outcome: T): void {
    if (this.#giveUp.signal.aborted) return;
    this.#queue.push({ outcome });
    if (this.#flushing < (this.#queue.length < BATCH ? 1 : AT_ONCE)) this.#start();
  }

  /** Waits until everything is recorded, but gives up after `limitMs`. Returns how many outcomes were not recorded. */
  async drain(limitMs: number): Promise<number> {
    const timer = this.#options.clock.timer(limitMs, () => this.#giveUp.abort());
    const { signal } = this.#giveUp;
    // A database that never answers must not delay the stop.
    const givenUp = new Promise<void>((resolve) => {
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
    const flushed = async (): Promise<void> => {
      while (this.#flushes.size > 0 && !signal.aborted)
        await Promise.race([Promise.all(this.#flushes), givenUp]);
    };
    await flushed();
    // Retry refused outcomes a last time; the stop does not wait for more.
    if (!signal.aborted) await Promise.race([this.#retryRefused(true), givenUp]);
    await flushed();
    timer.cancel();
    // The store closes next: drop outcomes that arrive from now on.
    this.#giveUp.abort();
    return this.unrecorded().length;
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
    // Collect everything that ends in this turn of the event loop.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.#queue.length >= (this.#flushing > 1 ? BATCH : 1) && !this.#giveUp.signal.aborted) {
      const left = await this.#write(this.#fromQueue(BATCH), (batch) => this.#persist(batch));
      this.#queue.unshift(...left);
    }
    this.#flushing -= 1;
  }

  #fromQueue(most: number): readonly Entry<T>[] {
    const first = this.#queue.slice(0, most);
    this.#queue = this.#queue.slice(most);
    return first;
  }

  /** Returns the outcomes that had to be given up. */
  async #write(
    open: readonly Entry<T>[],
    how: (batch: Batch<T>) => Promise<void>,
  ): Promise<readonly Entry<T>[]> {
    const batch: Batch<T> = { open, begunAt: this.#options.clock.monotonic() };
    this.#writing.add(batch);
    await how(batch);
    this.#writing.delete(batch);
    this.#options.drained?.();
    return batch.open;
  }

  #block(entry: Entry<T>): void {
    this.#blocked.push(entry);
    if (this.#retryingBlocked) return;
    this.#retryingBlocked = true;
    this.#awaited(this.#retryBlocked());
  }

  async #retryBlocked(): Promise<void> {
    while (this.#blocked.length > 0 && (await pause(this.#options.clock, BLOCKED_MS, this.#giveUp.signal))) {
      // `#writeOnce` puts back outcomes that are still blocked.
      const left = await this.#write(this.#blocked.splice(0, BATCH), (batch) => this.#persist(batch));
      this.#blocked.push(...left);
    }
    this.#retryingBlocked = false;
  }

  /** Retries until the store has recorded or refused every outcome. After a give-up, `batch.open` has the rest. */
  async #persist(batch: Batch<T>): Promise<void> {
    const troubles = new Map<Entry<T>, number>();
    const retry = new Backoff(RETRY_MS);
    for (let failures = 0; batch.open.length > 0 && !this.#giveUp.signal.aborted;) {
      const parts = 2 ** Math.max(0, failures + 1 - MOST_TOGETHER);
      const size = Math.max(1, Math.ceil(batch.open.length / parts));
      const round = await inPieces(batch.open, size, (piece) => this.#tryAll(piece));
      batch.open = round.left;
      if (round.trouble === undefined) continue;
      failures += 1;
      for (const entry of round.troubled) troubles.set(entry, (troubles.get(entry) ?? 0) + 1);
      const waitMs = retry.next();
      if (round.answered) batch.open = this.#withoutFaulty(round, troubles);
      else await pause(this.#options.clock, waitMs, this.#giveUp.signal);
      // Outcomes that arrived meanwhile show whether the store takes anything at all.
      if (failures >= MOST_TOGETHER)
        batch.open = [...this.#fromQueue(Math.max(0, BATCH - batch.open.length)), ...batch.open];
    }
  }

  /** The store took other outcomes in the same round, so those that keep failing alone are at fault themselves. */
  #withoutFaulty(
    { left, alone, trouble }: Round<Entry<T>>,
    troubles: ReadonlyMap<Entry<T>, number>,
  ): readonly Entry<T>[] {
    const faulty = new Set(alone.filter((entry) => (troubles.get(entry) ?? 0) >= MOST_TROUBLES));
    for (const entry of faulty) this.#keep(entry, trouble);
    return left.filter((entry) => !faulty.has(entry));
  }

  /** Tries each outcome once. Keeps those that the database refuses, and returns those to write again. */
  async #tryAll(batch: readonly Entry<T>[]): Promise<Tried<Entry<T>>> {
    const again: Entry<T>[] = [];
    const { choked, left, trouble } = await tryInHalves(
      batch,
      async (part) => void again.push(...(await this.#writeOnce(part))),
      blame,
    );
    if (trouble !== undefined) this.#options.error(trouble);
    for (const { item, error } of choked) if (this.#isShrunk(item, error)) again.push(item);
    return { left: [...again, ...left], trouble };
  }

  /** Returns the outcomes to write again. */
  async #writeOnce(batch: readonly Entry<T>[]): Promise<readonly Entry<T>[]> {
    const answers = await this.#writer.write(batch.map(({ outcome }) => outcome));
    return batch.filter((entry, index) => {
      const answer = answers[index] as Written<T>;
      if (answer === 'blocked') this.#block(entry);
      else if (answer === 'refused') this.#keep(entry, new Error('It is too large.'));
      else if (answer !== 'done') {
        entry.outcome = answer.again;
        return true;
      }
      return false;
    });
  }

  /** Replaces an outcome that is too large (`OptionError`) by a smaller one. Keeps any other as it is, to retry it. */
  #isShrunk(entry: Entry<T>, error: unknown): boolean {
    const smaller = error instanceof OptionError ? this.#writer.smaller(entry.outcome) : undefined;
    if (smaller === undefined) this.#keep(entry, error);
    else entry.outcome = smaller;
    return smaller !== undefined;
  }

  #keep(entry: Entry<T>, problem: unknown): void {
    this.#options.error(this.#refused.add(entry, problem));
    if (!this.#retryingRefused) void this.#keepTrying();
  }

  async #keepTrying(): Promise<void> {
    const { clock } = this.#options;
    this.#retryingRefused = true;
    while (
      this.#refused.waiting.length > 0 &&
      (await pause(clock, this.#refused.waitMs, this.#giveUp.signal))
    ) {
      const retry = this.#retryRefused();
      clock.track?.(retry);
      await retry;
    }
    this.#retryingRefused = false;
  }

  /** Tries refused outcomes once, beginning with a single one. Those with a transient error wait for the next retry. */
  #retryRefused(all = false): Promise<void> {
    let reason: unknown = new Error('The instance was stopped.');
    const once = async (batch: Batch<T>): Promise<void> => {
      const round = await inPieces(batch.open, 1, (piece) => this.#tryAll(piece));
      batch.open = round.left;
      reason = round.trouble ?? reason;
      // What is left was decided again or made smaller, so write it now.
      if (round.trouble === undefined) await this.#persist(batch);
    };
    return this.#refused.retry(async (batch) => {
      for (const entry of await this.#write(batch, once)) this.#refused.add(entry, reason);
    }, all);
  }
}
