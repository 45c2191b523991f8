import { within, type Clock } from '../../core/clock.js';
import type { Logger } from '../../core/logger.js';
import { Wake } from '../../engine/claim/wake.js';
import type { DocumentJobStore, DocumentWatch } from '../../store/documents.js';
import { OutageGrace } from './outage-grace.js';
import type { Hooks } from './hooks.js';
import { DocumentLocks } from './document-locks.js';
import { DueScan } from './due-scan.js';
import { DueLoop } from './loop.js';
import type { Measures } from './measures.js';
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
}

/** How long a stop waits for a lock call in progress. */
const LOCK_LIMIT_MS = 10_000;

/** One run of a scheduler, from `start` to `stop`. */
export class SchedulerRun<Doc> {
  readonly #options: SchedulerRunOptions<Doc>;
  /** Ends the polling for documents. */
  readonly #stop = new AbortController();
  /** Aborts calls to the store. */
  readonly #abort = new AbortController();
  readonly #wake: Wake;
  readonly #loop: DueLoop;
  readonly #runner: DocumentRunner<Doc>;
  #looping: Promise<void> = Promise.resolve();
  #watch: DocumentWatch | undefined;

  constructor(options: SchedulerRunOptions<Doc>) {
    this.#options = options;
    const { store, clock, settings, pollMs, hooks, log, measures, refresh } = options;
    // Without a lock duration there is no lock end to mark.
    const marks = settings.retry !== undefined && settings.lockMs > 0 && store.marks === true;
    const opened: Opened<Doc> = { store, signal: this.#abort.signal, marks };
    const { signal: stop } = this.#stop;
    this.#wake = new Wake(clock);
    const grace = new OutageGrace(clock, settings.lockMs);
    const locks = new DocumentLocks({ opened, clock, lockMs: settings.lockMs, refresh, stop });
    this.#runner = new DocumentRunner({
      opened,
      clock,
      settings,
      hooks,
      log,
      measures,
      grace,
      mint: () => locks.mint(),
      attention: () => ({
        delayMs: settings.nextMs + (settings.idleMs > 0 ? settings.idleMs : pollMs.max),
        since: this.#loop.since,
      }),
      freed: () => this.#loop.freed(),
      planned: (at) => this.#loop.planned(at),
    });
    this.#loop = new DueLoop({
      clock,
      wake: this.#wake,
      grace,
      settings,
      pollMs: () =>
        this.#watch?.direct === true && store.look !== undefined ? { ...pollMs, max: Infinity } : pollMs,
      room: () => this.#runner.room,
      lock: (limit) =>
        // Documents that are locked after a stop are given back.
        locks.lock(limit, (job, lock) => this.#runner[stop.aborted ? 'release' : 'start'](job, lock)),
      look: new DueScan(opened, hooks).look,
      busy: () => this.#runner.isBusy,
      idle: () => hooks.idle({ signal: stop }),
      error: (error) => hooks.error(error, { where: 'lock' }),
    });
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
    this.#looping = this.#loop.run(this.#stop.signal);
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
