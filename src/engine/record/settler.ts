import { pause, type Clock } from '../../core/clock.js';
import { OptionError, StoreError } from '../../core/errors.js';
import { inPieces, type Round, type Tried } from '../../core/batches/pieces.js';
import type { Work } from '../../core/records/work.js';
import { leaseOf, type SettleAnswer, type WorkStore } from '../../store/port.js';
import { RefusedOutcomes, type RefusedOutcome } from './refused-outcomes.js';
import type { Conclusion, Settling, WorkRunner } from '../work-runner.js';

const BATCH = 500;
/** Concurrent batches. A second batch is written beside the first only if it is full. */
const AT_ONCE = 2;
const MOST_REFUSALS = 2;
const FIRST_WAIT_MS = 50;
const LONGEST_WAIT_MS = 2_000;
/** After this many transient errors, a batch is tried in ever smaller pieces: one of its outcomes may be the cause. */
const MOST_TOGETHER = 2;
/** After this many transient errors, an outcome that fails alone while the store takes others counts as refused. */
const MOST_TROUBLES = 3;
/** The interval between retries of outcomes whose row is locked by another transaction. */
const ASIDE_MS = 500;

/** Outcomes being written. `open` shrinks as the store takes them. */
interface Batch<W extends Work> {
  open: readonly Settling<W>[];
  readonly begunAt: number;
}

export interface SettlerOptions<W extends Work, S> {
  readonly store: Pick<WorkStore<W, S>, 'settle' | 'held' | 'insertFailedRun'>;
  readonly clock: Clock;
  readonly runner: Pick<WorkRunner<W, S>, 'conclude' | 'recorded'>;
  /** The work was taken over or removed before its outcome was recorded. */
  readonly lost: (work: W) => void;
  readonly error: (error: unknown) => void;
  /** Called after each batch. */
  readonly drained: () => void;
}

/**
 * Records outcomes.
 * - Outcomes of the same turn of the event loop go into one command. A second command runs beside it only if a full
 *   batch waits. Order does not matter: work is claimed again only after its outcome is written.
 * - If the database does not answer, the command is retried until it does: a database error never becomes a job's
 *   failure, and only the store knows who holds the work.
 * - If the database refuses a batch, it is split in halves, so that only the faulty outcomes are kept back.
 * - A transient error may be caused by a single outcome, too: after two failures the batch is tried in pieces, together
 *   with outcomes that have arrived meanwhile.
 */
export class Settler<W extends Work, S> {
  readonly #options: SettlerOptions<W, S>;
  #queue: Settling<W>[] = [];
  readonly #writing = new Set<Batch<W>>();
  readonly #flushes = new Set<Promise<void>>();
  #flushing = 0;
  /** Outcomes whose row is locked by another transaction. They are retried apart, so that no other outcome waits. */
  readonly #aside: Settling<W>[] = [];
  #retrying = false;
  readonly #refused: RefusedOutcomes<W>;
  #retryingRefused = false;
  readonly #giveUp = new AbortController();

  constructor(options: SettlerOptions<W, S>) {
    this.#options = options;
    this.#refused = new RefusedOutcomes(options.clock);
  }

  /** The number of queued or blocked outcomes, without those that the database refuses. */
  get backlog(): number {
    return this.#queue.length + this.#aside.length;
  }

  /** Outcomes that the database refuses. */
  get refused(): readonly RefusedOutcome[] {
    return this.#refused.list;
  }

  ids(): string[] {
    const writing = [...this.#writing].flatMap(({ open }) => open);
    const all = new Set([...this.#queue, ...writing, ...this.#aside, ...this.#refused.waiting]);
    return [...all].map(({ work }) => work.id);
  }

  push(settling: Settling<W>): void {
    if (this.#giveUp.signal.aborted) return;
    this.#queue.push(settling);
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
    return this.ids().length;
  }

  /** Milliseconds since the oldest batch in progress began. */
  get writingMs(): number {
    const now = this.#options.clock.monotonic();
    return [...this.#writing].reduce((most, { begunAt }) => Math.max(most, now - begunAt), 0);
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

  #fromQueue(most: number): readonly Settling<W>[] {
    const first = this.#queue.slice(0, most);
    this.#queue = this.#queue.slice(most);
    return first;
  }

  /** Returns the outcomes that had to be given up. */
  async #write(
    open: readonly Settling<W>[],
    how: (batch: Batch<W>) => Promise<void>,
  ): Promise<readonly Settling<W>[]> {
    const batch: Batch<W> = { open, begunAt: this.#options.clock.monotonic() };
    this.#writing.add(batch);
    await how(batch);
    this.#writing.delete(batch);
    this.#options.drained();
    return batch.open;
  }

  #setAside(settling: Settling<W>): void {
    this.#aside.push(settling);
    if (this.#retrying) return;
    this.#retrying = true;
    this.#awaited(this.#retry());
  }

  async #retry(): Promise<void> {
    while (this.#aside.length > 0 && (await pause(this.#options.clock, ASIDE_MS, this.#giveUp.signal))) {
      // `#record` puts back outcomes that are still blocked.
      const left = await this.#write(this.#aside.splice(0, BATCH), (batch) => this.#persist(batch));
      this.#aside.push(...left);
    }
    this.#retrying = false;
  }

  /** Retries until the store has recorded or refused every outcome. After a give-up, `batch.open` has the rest. */
  async #persist(batch: Batch<W>): Promise<void> {
    const troubles = new Map<Settling<W>, number>();
    let waitMs = FIRST_WAIT_MS;
    for (let failures = 0; batch.open.length > 0 && !this.#giveUp.signal.aborted;) {
      const parts = 2 ** Math.max(0, failures + 1 - MOST_TOGETHER);
      const size = Math.max(1, Math.ceil(batch.open.length / parts));
      const round = await inPieces(batch.open, size, (piece) => this.#tryAll(piece));
      batch.open = round.left;
      if (round.trouble === undefined) continue;
      failures += 1;
      for (const settling of round.troubled) troubles.set(settling, (troubles.get(settling) ?? 0) + 1);
      if (round.answered) batch.open = this.#withoutFaulty(round, troubles);
      else await pause(this.#options.clock, waitMs, this.#giveUp.signal);
      waitMs = Math.min(waitMs * 2, LONGEST_WAIT_MS);
      // Outcomes that arrived meanwhile show whether the store takes anything at all.
      if (failures >= MOST_TOGETHER)
        batch.open = [...this.#fromQueue(Math.max(0, BATCH - batch.open.length)), ...batch.open];
    }
  }

  /** The store took other outcomes in the same round, so those that keep failing alone are at fault themselves. */
  #withoutFaulty(
    { left, alone, trouble }: Round<Settling<W>>,
    troubles: ReadonlyMap<Settling<W>, number>,
  ): readonly Settling<W>[] {
    const faulty = new Set(alone.filter((settling) => (troubles.get(settling) ?? 0) >= MOST_TROUBLES));
    for (const settling of faulty) this.#keep(settling, trouble);
    return left.filter((settling) => !faulty.has(settling));
  }

  /** Tries each outcome once. A batch that is refused is split in halves until the faulty outcomes are found. */
  async #tryAll(batch: readonly Settling<W>[]): Promise<Tried<Settling<W>>> {
    try {
      return { left: await this.#record(batch) };
    } catch (error) {
      if (error instanceof StoreError && error.transient) {
        this.#options.error(error);
        return { left: batch, trouble: error };
      }
      const [only, ...others] = batch as readonly [Settling<W>, ...Settling<W>[]];
      if (others.length === 0) return { left: this.#refuse(only, error) };
      const half = Math.ceil(batch.length / 2);
      const first = await this.#tryAll(batch.slice(0, half));
      const second = await this.#tryAll(batch.slice(half));
      const trouble = first.trouble ?? second.trouble;
      return { left: [...first.left, ...second.left], ...(trouble === undefined ? {} : { trouble }) };
    }
  }

  /** Shrinks an outcome that is too large (`OptionError`). Keeps any other as it is, to retry it. */
  #refuse(settling: Settling<W>, error: unknown): readonly Settling<W>[] {
    if (error instanceof OptionError) return this.#shrink(settling, error);
    this.#keep(settling, error);
    return [];
  }

  /** First records a failure with a short reason, then only the state. If even that is refused, keeps the outcome. */
  #shrink(settling: Settling<W>, error: unknown): readonly Settling<W>[] {
    const refusals = (settling.refusals ?? 0) + 1;
    if (refusals <= MOST_REFUSALS) return [unrecordable(settling, refusals)];
    this.#keep(settling, error);
    return [];
  }

  #keep(settling: Settling<W>, problem: unknown): void {
    this.#options.error(this.#refused.add(settling, problem));
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
    const once = async (batch: Batch<W>): Promise<void> => {
      const round = await inPieces(batch.open, 1, (piece) => this.#tryAll(piece));
      batch.open = round.left;
      reason = round.trouble ?? reason;
      // What is left was decided again or made smaller, so write it now.
      if (round.trouble === undefined) await this.#persist(batch);
    };
    return this.#refused.retry(async (batch) => {
      for (const settling of await this.#write(batch, once)) this.#refused.add(settling, reason);
    }, all);
  }

  /** Concludes and writes a batch. Returns the outcomes to conclude again. */
  async #record(batch: readonly Settling<W>[]): Promise<readonly Settling<W>[]> {
    const { store, runner, lost } = this.#options;
    const conclusions = batch.map(({ work, finished, extra, refusals = 0 }) =>
      runner.conclude(work, finished, { refusals, ...(extra === undefined ? {} : { extra }) }),
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
        runner.recorded(settling.work, settling.finished, conclusions[index] as Conclusion<S>);
      else if (answer === 'lost') lost(settling.work);
      else if (answer === 'blocked') this.#setAside(settling);
      else if (answer === 'refused') again.push(...this.#shrink(settling, new Error('It is too large.')));
      else again.push(settling);
    }
    return this.#reread(again);
  }

  /** Reads work that changed while it ran, so that its outcome is concluded from its current state. */
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

/** Replaces an outcome that the database will never take by a failure with a short reason, without result and notes. */
function unrecordable<W extends Work>({ work, finished }: Settling<W>, refusals: number): Settling<W> {
  const error = new Error(
    'The result, progress and log of this job together exceed what the database can hold.',
  );
  Reflect.deleteProperty(error, 'stack');
  return { work, refusals, finished: { ...finished, outcome: { kind: 'threw', error } } };
}
