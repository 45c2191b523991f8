import { pause, systemClock, type Clock } from '../core/clock.js';
import { safeLogger, type Logger } from '../core/logger.js';
import { checkKeys } from '../core/options.js';
import type { DocumentJob, DocumentJobStore } from '../store/documents.js';
import { toMs, type Duration } from '../time/duration.js';
import type {
  DocumentsCountOptions,
  DocumentsFilter,
  DocumentsPage,
  DocumentsPageOptions,
} from './finding.js';
import { Hooks, type Fallback } from './run/hooks.js';
import { noMeasures, type Measures } from './run/measures.js';
import { checkScheduler, type PollMs, type SchedulerOptions, type ScheduleSettings } from './options.js';
import type { Opened } from './opened.js';
import { loadFinding, loadOpened, loadRun } from './parts.js';
import type { ScheduleGate } from './run/schedule-gate.js';
import type { SchedulerRun } from './run/scheduler-run.js';

export interface StopOptions {
  /**
   * How long to wait for handlers. After that their signals abort, and their documents become due again. Default: no
   * limit.
   */
  readonly timeout?: Duration;
  /** Ends that wait early. Default: none. */
  readonly signal?: AbortSignal;
}

/** Set by the mill that owns the scheduler. */
export interface SchedulerExtras {
  /** Names the scheduler in messages. */
  readonly where?: string;
  readonly fallback?: Fallback;
  readonly measures?: Measures;
  /** True while nothing may start. Asked before each lock call. */
  readonly isPaused?: () => Promise<boolean>;
  /** The limits of the schedule; undefined while its mill does not run. */
  readonly gate?: () => ScheduleGate | undefined;
  /** Throws if the schedule must not start now. */
  readonly check?: () => void;
}

const WHERE = 'new Scheduler';
const never = (): Promise<boolean> => Promise.resolve(false);
const noGate = (): undefined => undefined;

function checkStop(options: StopOptions): {
  readonly timeoutMs: number;
  readonly signal: AbortSignal | undefined;
} {
  checkKeys('stop', options, ['timeout', 'signal']);
  const { timeout, signal } = options;
  return { timeoutMs: timeout === undefined ? Infinity : toMs('stop', 'timeout', timeout), signal };
}

/**
 * Runs documents when the schedule stored in them is due, on any store.
 *
 * States: `stopped`, `starting`, `running`, `stopping`. `start` moves stopped -> starting -> running, or back to
 * stopped if the store cannot be opened or `onStart` throws. `stop`, or the signal passed to `start`, moves running ->
 * stopping -> stopped.
 */
export class Scheduler<Doc = Record<string, unknown>> implements AsyncDisposable {
  readonly #options: SchedulerOptions<Doc>;
  readonly #settings: ScheduleSettings;
  readonly #pollMs: PollMs;
  readonly #where: string;
  readonly #log: Logger;
  readonly #hooks: Hooks<Doc>;
  readonly #measures: Measures;
  readonly #extras: SchedulerExtras;
  #isRunning = false;
  #opening: Promise<Opened<Doc>> | undefined;
  #starting: Promise<void> | undefined;
  #stopping: Promise<void> | undefined;
  #stop = new AbortController();
  /** Aborts when a stop no longer waits for handlers. */
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
    this.#extras = extras;
    const logged: Fallback = (error, where) =>
      this.#log.error({ error, where }, `${where}: ${error.message}`);
    this.#hooks = new Hooks(options, extras.fallback ?? logged);
  }

  /** True from `start` until `stop` is called. */
  isRunning(): boolean {
    return this.#isRunning;
  }

  /** True while a document runs or its outcome is being recorded. */
  isProcessing(): boolean {
    return this.#run?.isBusy === true;
  }

  /** True after a poll found nothing to do, until a document is found. */
  isIdle(): boolean {
    return this.#hooks.isIdle;
  }

  /** Milliseconds since the store began to fail; 0 while it answers. */
  get failingMs(): number {
    return this.#run?.failingMs ?? 0;
  }

  /**
   * Returns how many documents are due, up to `limit`, and how long the first has been due. Returns undefined if the
   * scheduler is not running or the store cannot tell.
   */
  async depth(limit: number): Promise<{ readonly due: number; readonly lagMs: number } | undefined> {
    return this.#run?.depth(limit);
  }

  /** Resolves when `onStart` has resolved. Calling it again has no effect. The scheduler stops when `signal` aborts. */
  async start(
    options: {
      /** Stops the scheduler when it aborts. Default: none. */
      readonly signal?: AbortSignal;
    } = {},
  ): Promise<void> {
    checkKeys('start', options, ['signal']);
    this.#extras.check?.();
    options.signal?.throwIfAborted();
    if (this.#stopping !== undefined) await this.#stopping;
    this.#starting ??= this.#begin(options.signal);
    await this.#starting;
  }

  /** Resolves when no document runs any more and `onStop` has been called. Further calls wait for the same stop. */
  async stop(options: StopOptions = {}): Promise<void> {
    const { timeoutMs, signal } = checkStop(options);
    this.#isRunning = false;
    this.#stop.abort();
    this.#stopping ??= this.#end().finally(() => {
      this.#stopping = undefined;
      this.#hurry = new AbortController();
    });
    const stopping = this.#stopping;
    // The shortest timeout wins: this call may also end the wait of an earlier one.
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
   * Plans the next run of a document as if it had just run. If no run is left, `sleepUntil` becomes null, or the
   * document is deleted if it has `autoRemove`. Returns false if `sleepUntil` or the schedule in the store differs from
   * what `document` says. Throws if the schedule cannot be parsed.
   */
  async reschedule(document: Doc | DocumentJob<Doc>): Promise<boolean> {
    const [opened, { reschedule }] = await Promise.all([this.#open(), loadOpened()]);
    return reschedule(opened, this.#settings, document, this.#stop.signal);
  }

  /** Returns one page of documents, soonest first by default. Throws if the store cannot list documents. */
  async find(filter: DocumentsFilter = {}, options: DocumentsPageOptions = {}): Promise<DocumentsPage<Doc>> {
    const [{ store, time }, { findPage }] = await Promise.all([this.#open(), loadFinding()]);
    return findPage(store, time.clock.now(), filter, options);
  }

  /**
   * Counts matching documents, up to `limit`. Throws if the store cannot count documents. Default: those with a due
   * time, up to 1,000.
   */
  async count(filter: DocumentsFilter = {}, options: DocumentsCountOptions = {}): Promise<number> {
    const [{ store }, { countMatching }] = await Promise.all([this.#open(), loadFinding()]);
    return countMatching(store, filter, options);
  }

  /**
   * Makes a document due now, by the `id` that `find` returned. A waiting document runs earlier; a document that had
   * ended runs again. Returns `changed` if another writer changed it meanwhile, and `running` if it runs at present.
   * Without a retry policy a running document cannot be told from one that waits for the end of its lock: it runs a
   * second time, concurrently with the first.
   */
  async runNow(id: string): Promise<'due' | 'running' | 'changed' | 'missing'> {
    const [{ store, time }, { makeDue }] = await Promise.all([this.#open(), loadFinding()]);
    await time.refresh();
    return makeDue(store, new Date(time.clock.now()), id);
  }

  /** Describes what the store lacks for polls to be cheap. Empty if nothing is missing or the store cannot tell. */
  async indexFaults(): Promise<readonly string[]> {
    const { store } = await this.#open();
    return (await store.indexFaults?.()) ?? [];
  }

  /** Opens the store on first use; a stop closes it. */
  #open(): Promise<Opened<Doc>> {
    const opening = (this.#opening ??= this.#connect());
    opening.catch(() => {
      if (this.#opening === opening) this.#opening = undefined;
    });
    return opening;
  }

  async #connect(): Promise<Opened<Doc>> {
    const { opened } = await loadOpened();
    return opened(this.#where, this.#options, this.#settings);
  }

  async #begin(signal: AbortSignal | undefined): Promise<void> {
    this.#isRunning = true;
    this.#stop = new AbortController();
    const onAbort = (): void => void this.stop();
    signal?.addEventListener('abort', onAbort, { once: true });
    this.#stop.signal.addEventListener('abort', () => signal?.removeEventListener('abort', onAbort));
    try {
      const [{ store, time }, { SchedulerRun }] = await Promise.all([this.#open(), loadRun()]);
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
        isPaused: this.#extras.isPaused ?? never,
        gate: this.#extras.gate ?? noGate,
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

  /** Not awaited: a missing index makes polls expensive, not wrong. */
  #advise(store: DocumentJobStore<Doc>): void {
    void store
      .indexFaults?.()
      .then((faults) => {
        if (faults.length > 0) this.#log.warn({ faults }, faults.join('; '));
      })
      .catch(() => undefined);
  }
}
