import { pause, type Clock } from '../../core/clock.js';
import { OptionError, StoreError } from '../../core/errors.js';
import { inPieces, type Round, type Tried } from '../../core/batches/pieces.js';
import type { Work } from '../../core/records/work.js';
import { leaseOf, type SettleAnswer, type WorkStore } from '../../store/port.js';
import { RefusedOutcomes, type RefusedOutcome } from './refused-outcomes.js';
import type { Conclusion, Settling, WorkRunner } from '../work-runner.js';

const BATCH = 500;
/** While the store writes one batch, the next is made ready and sent, if it is full. */
const AT_ONCE = 2;
const MOST_REFUSALS = 2;
const FIRST_WAIT_MS = 50;
const LONGEST_WAIT_MS = 2_000;
/** A batch that has met trouble so often is tried in ever smaller pieces: one of its outcomes may be the cause. */
const MOST_TOGETHER = 2;
/** An outcome with which the store had trouble so often, and that it does not take while it takes others, is set aside. */
const MOST_TROUBLES = 3;
/** How often what somebody's transaction holds is tried again. */
const ASIDE_MS = 500;

/** Outcomes that are being written; what is left of them changes meanwhile. */
interface Batch<W extends Work> {
  open: readonly Settling<W>[];
  readonly begunAt: number;
}

export interface SettlerOptions<W extends Work, S> {
  readonly store: Pick<WorkStore<W, S>, 'settle' | 'held' | 'insertFailedRun'>;
  readonly clock: Clock;
  readonly runner: Pick<WorkRunner<W, S>, 'conclude' | 'recorded'>;
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
 * One that refuses a batch is asked in halves, so that only the outcome at fault is set aside. Trouble that seems to pass may be
 * an outcome's own, too: after two tries the batch goes in pieces, together with what has come meanwhile.
 */
export class Settler<W extends Work, S> {
  readonly #options: SettlerOptions<W, S>;
  #queue: Settling<W>[] = [];
  readonly #writing = new Set<Batch<W>>();
  readonly #flushes = new Set<Promise<void>>();
  #flushing = 0;
  /** What somebody's transaction holds is recorded when that has ended; nothing else waits for it. */
  readonly #aside: Settling<W>[] = [];
  #retrying = false;
  readonly #refused: RefusedOutcomes<W>;
  #retryingRefused = false;
  readonly #giveUp = new AbortController();

  constructor(options: SettlerOptions<W, S>) {
    this.#options = options;
    this.#refused = new RefusedOutcomes(options.clock);
  }

  /** Outcomes that wait for the database. Those that it refuses are not among them. */
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

  /** Resolves when everything is recorded, or given up after `limitMs`; answers how many were not. */
  async drain(limitMs: number): Promise<number> {
    const timer = this.#options.clock.timer(limitMs, () => this.#giveUp.abort());
    const { signal } = this.#giveUp;
    // A database that never answers must not hold up the end.
    const givenUp = new Promise<void>((resolve) => {
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
    const flushed = async (): Promise<void> => {
      while (this.#flushes.size > 0 && !signal.aborted)
        await Promise.race([Promise.all(this.#flushes), givenUp]);
    };
    await flushed();
    // A last try for what was refused: the end does not wait for another one.
    if (!signal.aborted) await Promise.race([this.#retryRefused(true), givenUp]);
    await flushed();
    timer.cancel();
    // Whatever comes from now on finds no store any more.
    this.#giveUp.abort();
    return this.ids().length;
  }

  /** Milliseconds since the oldest batch that is being written was begun. */
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
    // One turn of the event loop gathers everything that ends in it.
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

  /** Returns what had to be given up. */
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
      // What is still held is set aside again.
      const left = await this.#write(this.#aside.splice(0, BATCH), (batch) => this.#persist(batch));
      this.#aside.push(...left);
    }
    this.#retrying = false;
  }

  /** Until the store has answered for each, or refused it; what is left had to be given up. */
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
      // What has come meanwhile shows whether the store takes anything at all.
      if (failures >= MOST_TOGETHER)
        batch.open = [...this.#fromQueue(Math.max(0, BATCH - batch.open.length)), ...batch.open];
    }
  }

  /** The store took others in the same round: what it still has trouble with is at fault itself. */
  #withoutFaulty(
    { left, alone, trouble }: Round<Settling<W>>,
    troubles: ReadonlyMap<Settling<W>, number>,
  ): readonly Settling<W>[] {
    const faulty = new Set(alone.filter((settling) => (troubles.get(settling) ?? 0) >= MOST_TROUBLES));
    for (const settling of faulty) this.#keep(settling, trouble);
    return left.filter((settling) => !faulty.has(settling));
  }

  /** One try for each; a batch that is refused is halved until the outcomes at fault are found. */
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

  /** What is too much for the database is made smaller first; whatever else is wrong, the outcome is kept as it is. */
  #refuse(settling: Settling<W>, error: unknown): readonly Settling<W>[] {
    if (error instanceof OptionError) return this.#shrink(settling, error);
    this.#keep(settling, error);
    return [];
  }

  /** First it fails with a short reason, then with nothing but its state; if even that is refused it is kept. */
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

  /** Once, beginning with one alone; what the store has trouble with waits for its next turn. */
  #retryRefused(all = false): Promise<void> {
    let reason: unknown = new Error('The instance was stopped.');
    const once = async (batch: Batch<W>): Promise<void> => {
      const round = await inPieces(batch.open, 1, (piece) => this.#tryAll(piece));
      batch.open = round.left;
      reason = round.trouble ?? reason;
      // Decided again, or made smaller: there is something new to be written.
      if (round.trouble === undefined) await this.#persist(batch);
    };
    return this.#refused.retry(async (batch) => {
      for (const settling of await this.#write(batch, once)) this.#refused.add(settling, reason);
    }, all);
  }

  /** One round: decides, writes, and answers what has to be decided again. */
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
