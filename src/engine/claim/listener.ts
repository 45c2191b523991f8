import { Backoff } from '../../core/backoff.js';
import type { Clock, Timer } from '../../core/clock.js';
import type { DueNames, Hint, ScopeRef, Store, WakeUp, Watch, WorkKind } from '../../store/port.js';

export interface ListenerOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly error: (error: unknown) => void;
  /** Definitions, leadership or requests have changed. */
  readonly news: () => void;
  /** Permits of these scopes were given back, or their limits have changed. */
  readonly freed: (scopes: readonly ScopeRef[]) => void;
  /** Reports once that no wake-ups are available, and why: only polling finds work. */
  readonly unavailable: (reason: string) => void;
}

/** Receives the wake-ups of one kind of work. */
export interface WakeSubscriber {
  readonly kind: WorkKind;
  readonly wake: (hint?: Hint, due?: DueNames) => void;
  readonly cancel: () => void;
}

/** A subscriber reports its load through this, so that the listener can close the channel while all are busy. */
export interface WakeSubscription {
  busy(): Promise<void>;
  /** Resolves once wake-ups are received, or once it is known that there will be none. */
  idle(): Promise<void>;
}

/** Close the channel once all subscribers have been busy this long: it costs the database something per write. */
const BUSY_MS = 1_000;
/** With jitter, so that not all instances come back at once after a restart of the database. */
const REOPEN_MS = { min: 1_000, max: 30_000, jitter: true };
/** Backoff if notifications are unavailable: for good, or because the server was too busy to deliver one in time. */
const UNHEARD_MS = { min: 5_000, max: 300_000, jitter: true };

/** Receives wake-ups for all engines of this instance, and closes the channel while all of them are busy. */
export class Listener {
  readonly #options: ListenerOptions;
  readonly #waiting: WakeSubscriber[] = [];
  readonly #busySince = new Map<WakeSubscriber, number>();
  #watch: Watch | undefined;
  #opening: Promise<void> | undefined;
  /** Set after a failure; no channel is opened until it fires. */
  #reopening: Timer | undefined;
  readonly #reopenAfter = new Backoff(REOPEN_MS);
  readonly #unheardFor = new Backoff(UNHEARD_MS);
  #unavailable = false;
  #retrying: Promise<void> | undefined;
  #closed = false;

  constructor(options: ListenerOptions) {
    this.#options = options;
  }

  get wakeUp(): WakeUp {
    return this.#unavailable ? 'poll' : (this.#options.store.wakeUp ?? 'stream');
  }

  join(waiting: WakeSubscriber): WakeSubscription {
    this.#waiting.push(waiting);
    return { busy: () => this.#busy(waiting), idle: () => this.#idle(waiting) };
  }

  async close(): Promise<void> {
    this.#closed = true;
    this.#reopening?.cancel();
    await this.#opening;
    await this.#retrying;
    await this.#shut();
  }

  async #busy(waiting: WakeSubscriber): Promise<void> {
    const now = this.#options.clock.monotonic();
    if (!this.#busySince.has(waiting)) this.#busySince.set(waiting, now);
    const allBusy = this.#waiting.every((one) => now - (this.#busySince.get(one) ?? now) > BUSY_MS);
    if (allBusy) await this.#shut();
  }

  #idle(waiting: WakeSubscriber): Promise<void> {
    this.#busySince.delete(waiting);
    // Concurrent calls wait for the same attempt to open.
    this.#opening ??= this.#open().finally(() => (this.#opening = undefined));
    return this.#opening;
  }

  async #open(): Promise<void> {
    if (this.#watch !== undefined || this.#closed || this.#reopening !== undefined) return;
    await this.#tryToOpen();
  }

  async #tryToOpen(): Promise<void> {
    const broken = new AbortController();
    try {
      const watch = await this.#options.store.watch({
        wake: (kind, hint, due) => this.#tell(kind, (one) => one.wake(hint, due)),
        cancel: () => this.#tell('jobs', (one) => one.cancel()),
        news: () => this.#options.news(),
        freed: (scopes) => this.#options.freed(scopes),
        broken: (problem) => {
          if (broken.signal.aborted) return;
          broken.abort();
          this.#broken(problem);
        },
        fault: (problem) => this.#options.error(problem),
      });
      // The channel broke while it was being opened: this one is dead, and the next one is already scheduled.
      if (broken.signal.aborted) {
        if ('close' in watch) await watch.close();
      } else if ('unavailable' in watch) this.#unheard(watch.unavailable);
      else this.#opened(watch);
    } catch (problem) {
      if (!broken.signal.aborted) this.#failed(problem);
    }
  }

  #opened(watch: Watch): void {
    this.#watch = watch;
    this.#reopenAfter.reset();
    this.#unheardFor.reset();
    this.#unavailable = false;
  }

  #tell(kind: WorkKind, what: (waiting: WakeSubscriber) => void): void {
    for (const one of this.#waiting) if (one.kind === kind) what(one);
  }

  async #shut(): Promise<void> {
    const watch = this.#watch;
    this.#watch = undefined;
    await watch?.close();
  }

  #broken(problem: unknown): void {
    this.#watch = undefined;
    this.#failed(problem);
    // A peek finds what was missed while the channel was down.
    this.#wakeAll();
  }

  /** Retries in the background, since finding out that no notification arrives takes a while. */
  #unheard(reason: string): void {
    if (!this.#unavailable) this.#options.unavailable(reason);
    this.#unavailable = true;
    if (this.#closed) return;
    this.#reopening = this.#options.clock.timer(this.#unheardFor.next(), () => {
      this.#retrying = this.#tryToOpen().finally(() => {
        if (this.#watch === undefined) return;
        this.#reopening = undefined;
        this.#wakeAll();
      });
    });
  }

  /** The next peek opens the channel again. Polls may be an hour apart, so a timer wakes the subscribers for it. */
  #failed(problem: unknown): void {
    const { clock, error } = this.#options;
    error(problem);
    if (this.#closed) return;
    this.#reopening?.cancel();
    this.#reopening = clock.timer(this.#reopenAfter.next(), () => {
      this.#reopening = undefined;
      this.#wakeAll();
    });
  }

  #wakeAll(): void {
    for (const one of this.#waiting) one.wake();
  }
}
