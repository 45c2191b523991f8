import { pause } from '../core/clock.js';
import type { Finished } from '../core/records/outcome.js';
import type { Work } from '../core/records/work.js';
import type { WorkKind } from '../store/port.js';
import { Attempt, runAttempt } from './attempt.js';
import { Batch } from './batch.js';
import type { EngineOptions } from './options.js';
import { tracedEnd } from './record/ending.js';
import type { Notebook } from './record/notebook.js';

/** The engine, as the handlers that run see it. */
export interface RunsHost<W extends Work> {
  /** A handler is about to start. */
  began(): void;
  /** An attempt has its outcome. */
  finish(attempt: Attempt<W>, finished: Finished): Promise<void>;
  /** Another instance has the work, so its handler did not run. */
  lost(work: W): void;
  /** The run of one piece of work is over, whatever became of it. Those of a batch may end long before their slot is free. */
  over(work: W): void;
  /** A slot is free after a run. */
  ended(name: string, durationMs: number): void;
  /** Hands back work without using an attempt. */
  release(works: readonly W[]): void;
}

export interface RunsOptions<W extends Work, S> extends Pick<
  EngineOptions<W, S>,
  'kind' | 'store' | 'clock' | 'runner' | 'tracer'
> {
  readonly host: RunsHost<W>;
  readonly notebook: Notebook;
  /** False if the lease of the instance has ended, by the clock. */
  readonly isHeld: () => boolean;
  readonly isBatched: (name: string) => boolean;
  /** Called when a handler runs past its timeout. `handler` resolves when it ends at last. */
  readonly abandoned: (attempt: Attempt<W>, handler: Promise<unknown>) => void;
  readonly error: (where: string) => (problem: unknown) => void;
}

export const measured = (kind: WorkKind): 'job' | 'task' => (kind === 'jobs' ? 'job' : 'task');

/** What runs on one engine: an attempt for each piece of work, and the batches that some of them belong to. */
export class Runs<W extends Work, S> {
  /** Work whose handler runs and that has no outcome yet, by id. */
  readonly attempts: Map<string, Attempt<W>> = new Map<string, Attempt<W>>();
  readonly #options: RunsOptions<W, S>;
  /** Batches whose handler runs, also if all of their work has its outcome. */
  readonly #batches = new Set<Batch<W>>();
  #idleWaiters: (() => void)[] = [];

  constructor(options: RunsOptions<W, S>) {
    this.#options = options;
  }

  /** The attempts of now, as a list that later starts and ends do not change. */
  get all(): readonly Attempt<W>[] {
    return [...this.attempts.values()];
  }

  get isBusy(): boolean {
    return this.attempts.size + this.#batches.size > 0;
  }

  /** Resolves when no handler runs, or after `limitMs`. */
  async idle(limitMs: number): Promise<void> {
    if (!this.isBusy) return;
    const done = new AbortController();
    this.#idleWaiters.push(() => done.abort());
    await pause(this.#options.clock, limitMs, done.signal);
  }

  /** Reaches handlers of batches whose work all has its outcome. */
  abortBatches(reason: Error): void {
    for (const batch of this.#batches) batch.abort(reason);
  }

  /** Runs work that has a slot: one piece, or a batch. */
  launch(works: readonly W[]): void {
    const [only] = works as readonly [W];
    const { clock, isBatched } = this.#options;
    const running = isBatched(only.name) ? this.#runBatch(works) : this.#run(only);
    clock.track?.(running);
  }

  #begin(work: W): Attempt<W> {
    const { clock, runner, notebook, isHeld, host } = this.#options;
    const attempt = new Attempt<W>(work, clock.now(), (self) => ({
      isHeld,
      note: (note) => {
        if (this.attempts.get(work.id) === self) notebook.add(self.lease, note, () => self.inTransaction);
      },
      unwritten: () => notebook.unwritten(self.lease),
    }));
    attempt.inTransaction = runner.mayComplete(work);
    this.attempts.set(work.id, attempt);
    host.began();
    return attempt;
  }

  async #run(work: W): Promise<void> {
    const { clock } = this.#options;
    const began = clock.monotonic();
    const attempt = this.#begin(work);
    if (await this.#mayStart(attempt)) await this.#record(attempt, () => runAttempt(attempt, this.#options));
    this.#forget(attempt);
    this.#ended(work.name, clock.monotonic() - began);
  }

  async #runBatch(works: readonly W[]): Promise<void> {
    const { clock } = this.#options;
    const began = clock.monotonic();
    const attempts = works.map((work) => this.#begin(work));
    const may = await Promise.all(attempts.map((attempt) => this.#mayStart(attempt)));
    const started = attempts.filter((_, index) => may[index]);
    if (started.length > 0) {
      const batch = new Batch(started, this.#options);
      this.#batches.add(batch);
      await batch.run(async (attempt, run) => {
        await this.#record(attempt, run);
        this.#forget(attempt);
      });
      this.#batches.delete(batch);
    }
    for (const attempt of attempts) this.#forget(attempt);
    const [{ name }] = works as readonly [W];
    this.#ended(name, clock.monotonic() - began);
  }

  /** Marks the start if it must be. Only the store can fail here; then the work is handed back without an attempt. */
  async #mayStart(attempt: Attempt<W>): Promise<boolean> {
    const { store, host, error } = this.#options;
    try {
      if (!this.#isMarked(attempt.work) || (await store.begin(attempt.lease)) !== 'lost') return true;
      host.lost(attempt.work);
      return false;
    } catch (problem) {
      error('begin')(problem);
      host.release([attempt.work]);
      return false;
    }
  }

  /** Whether to mark the start of the attempt, so that a reclaimer can tell whether it began (see docs/adr/0008). */
  #isMarked(work: W): boolean {
    const { runner } = this.#options;
    return work.failKind === 'crashed' || runner.attempt(work) >= runner.maxAttempts(work);
  }

  /** Runs an attempt and passes its outcome on, unless the work was handed back meanwhile. */
  async #record(attempt: Attempt<W>, run: () => Promise<Finished>): Promise<void> {
    const { host, error } = this.#options;
    try {
      const finished = await this.#traced(attempt, run);
      if (this.attempts.get(attempt.work.id) === attempt) await host.finish(attempt, finished);
    } catch (problem) {
      error('begin')(problem);
      host.release([attempt.work]);
    }
  }

  #traced(attempt: Attempt<W>, run: () => Promise<Finished>): Promise<Finished> {
    const { runner, kind, tracer } = this.#options;
    const spans = tracer();
    if (spans === undefined) return run();
    const { id, name, trace } = attempt.work;
    const about = { kind: measured(kind), id, name, attempt: runner.attempt(attempt.work) };
    return spans.run(trace === undefined ? about : { ...about, trace }, run, ({ outcome }) =>
      tracedEnd(outcome),
    );
  }

  #forget(attempt: Attempt<W>): void {
    if (this.attempts.get(attempt.work.id) === attempt) this.attempts.delete(attempt.work.id);
    this.#options.host.over(attempt.work);
  }

  #ended(name: string, durationMs: number): void {
    this.#options.host.ended(name, durationMs);
    if (this.isBusy) return;
    for (const waiter of this.#idleWaiters.splice(0)) waiter();
  }
}
