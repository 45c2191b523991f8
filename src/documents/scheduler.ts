import { pause, systemClock, type Clock } from '../core/clock.js';
import { safeLogger, type Logger } from '../core/logger.js';
import { checkKeys } from '../core/options.js';
import type { DocumentJob, DocumentJobStore } from '../store/documents.js';
import { toMs, type Duration } from '../time/duration.js';
import { conclude } from './run/conclude.js';
import {
  countMatching,
  findPage,
  makeDue,
  type DocumentsFilter,
  type DocumentsPage,
  type DocumentsPageOptions,
} from './finding.js';
import { Hooks, type Fallback } from './run/hooks.js';
import { Intervals } from './times/interval.js';
import { noMeasures, type Measures } from './run/measures.js';
import {
  checkJobStore,
  checkScheduler,
  type PollMs,
  type SchedulerOptions,
  type ScheduleSettings,
} from './options.js';
import { timeOf, type Time } from './times/time.js';
import { SchedulerRun } from './run/scheduler-run.js';

export interface StopOptions {
  /** How long to wait for handlers; then their signals abort, and their documents are due again. Default: for ever. */
  readonly timeout?: Duration;
  /** Ends that wait. */
  readonly signal?: AbortSignal;
}

interface Open<Doc> {
  readonly store: DocumentJobStore<Doc>;
  readonly time: Time;
}

/** What only the mill says. */
export interface SchedulerExtras {
  /** Names the scheduler in messages. */
  readonly where?: string;
  readonly fallback?: Fallback;
  readonly measures?: Measures;
}

const WHERE = 'new Scheduler';

function checkStop(options: StopOptions): {
  readonly timeoutMs: number;
  readonly signal: AbortSignal | undefined;
} {
  checkKeys('stop', options, ['timeout', 'signal']);
  const { timeout, signal } = options;
  return { timeoutMs: timeout === undefined ? Infinity : toMs('stop', 'timeout', timeout), signal };
}

/**
 * Runs documents when their own schedule says so, wherever they are kept.
 *
 * States: `stopped`, `starting`, `running`, `stopping`. stopped -> starting -> running: `start`; back to stopped where
 * `onStart` throws. running -> stopping -> stopped: `stop`, or the signal that `start` was given.
 */
export class Scheduler<Doc = Record<string, unknown>> implements AsyncDisposable {
  readonly #options: SchedulerOptions<Doc>;
  readonly #settings: ScheduleSettings;
  readonly #pollMs: PollMs;
  readonly #where: string;
  readonly #log: Logger;
  readonly #hooks: Hooks<Doc>;
  readonly #measures: Measures;
  #isRunning = false;
  #opening: Promise<Open<Doc>> | undefined;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;
  #stop = new AbortController();
  /** Aborts when a stop is not to wait for handlers any longer. */
  #hurry = new AbortController();
  #clock: Clock;
  #run: SchedulerRun<Doc> | undefined;

  constructor(options: SchedulerOptions<Doc>, extras: SchedulerExtras = {}) {
    this.#where = extras.where ?? WHERE;
    const { settings, pollMs } = checkScheduler(this.#where, options);
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#settings = settings;
    this.#pollMs = pollMs;
    this.#log = safeLogger(options.logger);
    this.#measures = extras.measures ?? noMeasures;
    const logged: Fallback = (error, where) =>
      this.#log.error({ error, where }, `${where}: ${error.message}`);
    this.#hooks = new Hooks(options, extras.fallback ?? logged);
  }

  /** True from `start` until `stop` is called. */
  isRunning(): boolean {
    return this.#isRunning;
  }

  /** True while a document runs, or its end is being recorded. */
  isProcessing(): boolean {
    return this.#run?.isBusy === true;
  }

  /** True when the last look found nothing to do, until something is found. */
  isIdle(): boolean {
    return this.#hooks.isIdle;
  }

  /** Milliseconds since the store first failed to answer; 0 where it does answer. */
  get failingMs(): number {
    return this.#run?.failingMs ?? 0;
  }

  /** How much is due, up to a limit, and for how long the first; undefined where it does not run, or nobody can tell. */
  async depth(limit: number): Promise<{ readonly due: number; readonly lagMs: number } | undefined> {
    return this.#run?.depth(limit);
  }

  /** Resolves when `onStart` has; called again, it does nothing. `signal` stops the scheduler when it aborts. */
  async start(options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    checkKeys('start', options, ['signal']);
    options.signal?.throwIfAborted();
    if (this.#stopping !== undefined) await this.#stopping;
    this.#starting ??= this.#begin(options.signal);
    await this.#starting;
  }

  /** Resolves when no document runs any more and `onStop` has been called. Called again, it answers the same. */
  async stop(options: StopOptions = {}): Promise<void> {
    const { timeoutMs, signal } = checkStop(options);
    this.#isRunning = false;
    this.#stop.abort();
    this.#stopping ??= this.#end().finally(() => {
      this.#stopping = undefined;
      this.#hurry = new AbortController();
    });
    const stopping = this.#stopping;
    // Also where an earlier call would wait for longer.
    const hurry = this.#hurry;
    const end = new AbortController();
    const limit = signal === undefined ? end.signal : AbortSignal.any([signal, end.signal]);
    const late = pause(this.#clock, timeoutMs, limit).then((elapsed) => {
      if (elapsed || signal?.aborted === true) hurry.abort();
    });
    await stopping.finally(() => end.abort());
    await late;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /**
   * Plans the next run of a document as if it had just run, or removes it where none is left. False where its
   * `sleepUntil` or its schedule is not, or is not any more, what the document says.
   */
  async reschedule(document: Doc | DocumentJob<Doc>): Promise<boolean> {
    const { store, time } = await this.#open();
    const job = store.read?.(document as Doc) ?? (document as DocumentJob<Doc>);
    await time.refresh();
    const about = {
      settings: this.#settings,
      intervals: new Intervals(),
      now: new Date(time.clock.now()),
      marks: false,
    };
    const conclusion = conclude(job, { kind: 'returned', result: undefined }, about);
    if (conclusion?.problem !== undefined) throw conclusion.problem;
    const { revision } = job;
    const basis = revision === undefined ? {} : { ifRevision: revision };
    const fenced = { ifSleepUntil: job.sleepUntil ?? null, ...basis, signal: this.#stop.signal };
    const ending = conclusion?.ending;
    if (ending === undefined) return false;
    return 'remove' in ending ? store.remove(job.id, fenced) : store.update(job.id, ending.changes, fenced);
  }

  /** One page of the documents, the soonest first; where the store can list them. */
  async find(filter: DocumentsFilter = {}, options: DocumentsPageOptions = {}): Promise<DocumentsPage<Doc>> {
    const { store, time } = await this.#open();
    return findPage(store, time.clock.now(), filter, options);
  }

  /** How many documents match, up to `limit`; where the store can list them. Default: of those with a time, 1,000. */
  async count(filter: DocumentsFilter = {}, options: { readonly limit?: number } = {}): Promise<number> {
    return countMatching((await this.#open()).store, filter, options);
  }

  /**
   * Makes a document due now, by the `id` that `find` answers; one that waited for later is run earlier, one that had ended
   * is run again. `changed`: somebody else changed it meanwhile. A document that runs at this moment reads as waiting for
   * the end of its lock: it would be run a second time, beside the first.
   */
  async runNow(id: string): Promise<'due' | 'changed' | 'missing'> {
    const { store, time } = await this.#open();
    await time.refresh();
    return makeDue(store, new Date(time.clock.now()), id);
  }

  /** What is missing for polls to be cheap, as text; empty where all is well, or where the store cannot tell. */
  async indexFaults(): Promise<readonly string[]> {
    const { store } = await this.#open();
    return (await store.indexFaults?.()) ?? [];
  }

  /** Opened with the first call that needs it; a stop closes it. */
  #open(): Promise<Open<Doc>> {
    const opening = (this.#opening ??= this.#connect());
    opening.catch(() => {
      if (this.#opening === opening) this.#opening = undefined;
    });
    return opening;
  }

  async #connect(): Promise<Open<Doc>> {
    const { store: given, clock } = this.#options;
    const store = typeof given === 'function' ? await given() : given;
    checkJobStore(this.#where, store);
    await store.open?.({ counts: this.#settings.retry !== undefined });
    return { store, time: timeOf(store as DocumentJobStore<never>, clock) };
  }

  async #begin(signal: AbortSignal | undefined): Promise<void> {
    this.#isRunning = true;
    this.#stop = new AbortController();
    const onAbort = (): void => void this.stop();
    signal?.addEventListener('abort', onAbort, { once: true });
    this.#stop.signal.addEventListener('abort', () => signal?.removeEventListener('abort', onAbort));
    try {
      const { store, time } = await this.#open();
      this.#clock = time.clock;
      await time.refresh();
      await this.#hooks.start({ signal: this.#stop.signal });
      this.#run = new SchedulerRun({
        store,
        ...time,
        settings: this.#settings,
        pollMs: this.#pollMs,
        hooks: this.#hooks,
        log: this.#log,
        measures: this.#measures,
      });
      this.#run.begin();
      this.#advise(store);
    } catch (error) {
      this.#isRunning = false;
      this.#starting = undefined;
      this.#stop.abort();
      await this.#close();
      throw error;
    }
  }

  async #end(): Promise<void> {
    await this.#starting?.catch(() => undefined);
    if (this.#run !== undefined) {
      await this.#run.end(this.#hurry.signal);
      await this.#hooks.stop({ signal: this.#stop.signal });
    }
    this.#run = undefined;
    this.#starting = undefined;
    await this.#close();
  }

  async #close(): Promise<void> {
    const opened = await this.#opening?.catch(() => undefined);
    this.#opening = undefined;
    await opened?.store.close?.();
  }

  /** Nobody waits for it: a missing index makes polls dear, not wrong. */
  #advise(store: DocumentJobStore<Doc>): void {
    void store
      .indexFaults?.()
      .then((faults) => {
        if (faults.length > 0) this.#log.warn({ faults }, faults.join('; '));
      })
      .catch(() => undefined);
  }
}
