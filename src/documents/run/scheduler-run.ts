import { within, type Clock } from '../../core/clock.js';
import type { Logger } from '../../core/logger.js';
import { Wake } from '../../engine/claim/wake.js';
import type { DocumentJobStore, DocumentWatch } from '../../store/documents.js';
import { OutageGrace } from './outage-grace.js';
import type { Hooks } from './hooks.js';
import { DocumentLocks } from './document-locks.js';
import { DueLoop } from './loop.js';
import type { Measures } from './measures.js';
import type { GatedRun, ScheduleGate } from './schedule-gate.js';
import type { PollMs, ScheduleSettings } from '../options.js';
import { DocumentRunner } from './runner.js';
import type { Opened } from './writes.js';

export interface SchedulerRunOptions<Doc> {
  readonly store: DocumentJobStore<Doc>;
  readonly clock: Clock;
  /** Reads the store's time again if the estimate is too old. */
  readonly refresh: () => Promise<void>;
  readonly settings: ScheduleSettings;
  readonly pollMs: PollMs;
  readonly hooks: Hooks<Doc>;
  readonly log: Logger;
  readonly measures: Measures;
  /** True while nothing may start. */
  readonly isPaused: () => Promise<boolean>;
  /** The limits of the schedule; undefined without a mill that runs. */
  readonly gate: () => ScheduleGate | undefined;
}

/** How long a stop waits for a lock call in progress. */
const LOCK_LIMIT_MS = 10_000;

/** One run of a scheduler, from `start` to `stop`. */
export class SchedulerRun<Doc> implements GatedRun {
  readonly #options: SchedulerRunOptions<Doc>;
  /** Ends the polling for documents. */
  readonly #stop = new AbortController();
  /** Aborts calls to the store. */
  readonly #abort = new AbortController();
  readonly #wake: Wake;
  readonly #loop: DueLoop<Doc>;
  readonly #runner: DocumentRunner<Doc>;
  #attached: ScheduleGate | undefined;
  #looping: Promise<void> = Promise.resolve();
  #watch: DocumentWatch | undefined;

  constructor(options: SchedulerRunOptions<Doc>) {
    this.#options = options;
    const { store, clock, settings, pollMs, hooks, log, measures, refresh, isPaused } = options;
    const gate = (): ScheduleGate | undefined => this.#gate();
    // Without a lock duration there is no lock end to mark.
    const marks = settings.retry !== undefined && settings.lockMs > 0 && store.marks === true;
    const opened: Opened<Doc> = { store, signal: this.#abort.signal, marks };
    const { signal: stop } = this.#stop;
    this.#wake = new Wake(clock);
    const grace = new OutageGrace(clock, settings.lockMs);
    const locks = new DocumentLocks({ opened, clock, lockMs: settings.lockMs, refresh, stop });
    this.#loop = new DueLoop({
      opened,
      clock,
      wake: this.#wake,
      grace,
      settings,
      pollMs,
      locks,
      hooks,
      isPaused,
      gate,
      isDirect: () => this.#watch?.direct === true,
    });
    this.#runner = new DocumentRunner({
      opened,
      clock,
      settings,
      hooks,
      log,
      measures,
      grace,
      locks,
      loop: this.#loop,
      gate,
      stop,
    });
  }

  /** The mill may start after the schedule. */
  #gate(): ScheduleGate | undefined {
    const gate = this.#options.gate();
    if (gate !== this.#attached) gate?.attach(this);
    this.#attached = gate;
    return gate;
  }

  get held(): number {
    return this.#runner.held;
  }

  wake(): void {
    this.#wake.notify();
  }

  leaseLost(reason: string): void {
    this.#runner.leaseLost(reason);
  }

  get isBusy(): boolean {
    return this.#runner.isBusy;
  }

  get failingMs(): number {
    return this.#loop.failingMs;
  }

  /**
   * Returns how many documents are due, up to `limit`, and how long the first has been due; undefined if the store
   * cannot tell.
   */
  async depth(limit: number): Promise<{ readonly due: number; readonly lagMs: number } | undefined> {
    const { store } = this.#options;
    const { signal } = this.#abort;
    if (store.look === undefined || store.count === undefined) return undefined;
    const [due, { dueInMs }] = await Promise.all([
      store.count({ states: ['due'], limit }, { signal }),
      store.look({ withinMs: 0, known: [], signal }),
    ]);
    return { due, lagMs: Math.max(0, -(dueInMs ?? 0)) };
  }

  begin(): void {
    this.#looping = this.#loop.run(this.#runner, this.#stop.signal);
    void this.#listen();
  }

  /** `hurry` aborts when the stop no longer waits for handlers. */
  async end(hurry: AbortSignal): Promise<void> {
    const { clock, hooks } = this.#options;
    this.#stop.abort();
    // What a lock call in progress still returns is given back. A store that does not answer must not delay the stop:
    // what it locked is due again when the lock ends.
    await within(clock, LOCK_LIMIT_MS, this.#looping);
    await this.#runner.end(hurry);
    this.#attached?.attach(undefined);
    this.#abort.abort();
    await this.#watch?.close().catch((error: unknown) => hooks.error(error, { where: 'watch' }));
  }

  /** Wake-ups shorten a wait. With `idleDelay` there are none, because the user wants the whole delay. */
  async #listen(): Promise<void> {
    const { store, settings, hooks } = this.#options;
    if (store.watch === undefined || settings.idleMs > 0) return;
    try {
      const watch = await store.watch(() => this.#wake.notify());
      if (this.#abort.signal.aborted) await watch.close();
      else this.#watch = watch;
    } catch (error) {
      await hooks.error(error, { where: 'watch' });
    }
  }
}
