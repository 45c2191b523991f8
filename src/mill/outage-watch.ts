import { within } from '../core/clock.js';
import { StoreError } from '../core/errors.js';
import type { Store } from '../store/port.js';

/** The mill whose store is watched. */
export interface OutageHost {
  /** Undefined while the store was never open. */
  store(): Store | undefined;
  isStarted(): boolean;
  /** True if the store has answered nothing for most of a lease. */
  isSilent(): boolean;
  /** Reports one error. */
  report(error: Error, where: string): void;
  lost(error: Error): void;
  back(forMs: number): void;
}

interface Doubt {
  readonly error: Error;
  /** Monotonic. */
  readonly since: number;
  lost: boolean;
}

/** An error that lasts is reported once in this time from each place. */
const QUIET_MS = 10_000;
const ASK_EVERY_MS = 1_000;
const ANSWER_MS = 5_000;

/**
 * Tells an outage of the database from single errors. Duties: drop errors that repeat from the same place; ask the
 * database after the first one whether it is there; and say once that it is lost, and once that it is back.
 * States: no doubt → in doubt, at an error that may pass → lost, if no answer comes. An answer ends both.
 */
export class OutageWatch {
  readonly #host: OutageHost;
  readonly #reportedAt = new Map<string, number>();
  #doubt: Doubt | undefined;

  constructor(host: OutageHost) {
    this.#host = host;
  }

  /** The outage in words, for `health().troubles`. */
  get troubles(): readonly string[] {
    const store = this.#host.store();
    const doubt = this.#doubt;
    if (store === undefined || doubt?.lost !== true) return [];
    const seconds = Math.round((store.clock.monotonic() - doubt.since) / 1_000);
    return [`the database has not answered for ${String(seconds)} s: ${doubt.error.message}`];
  }

  /** Takes an error that no caller sees. */
  fault(error: Error, where: string): void {
    const host = this.#host;
    const store = host.store();
    if (store === undefined || !host.isStarted() || !mayPass(error)) {
      host.report(error, where);
      return;
    }
    const now = store.clock.monotonic();
    if (now - (this.#reportedAt.get(where) ?? -Infinity) >= QUIET_MS) {
      this.#reportedAt.set(where, now);
      host.report(error, where);
    }
    if (this.#doubt !== undefined) return;
    const doubt = (this.#doubt = { error, since: now, lost: false });
    this.#ask(store, doubt);
  }

  #ask(store: Store, doubt: Doubt): void {
    const asking = this.#isBack(store, doubt).then((isBack) => {
      if (isBack || !this.#host.isStarted()) this.#end(store, doubt, isBack);
      else {
        const again = (): void => {
          if (this.#host.isStarted()) this.#ask(store, doubt);
          else this.#end(store, doubt, false);
        };
        store.clock.timer(ASK_EVERY_MS, again, { housekeeping: true }).unref?.();
      }
    });
    store.clock.track?.(asking);
  }

  async #isBack(store: Store, doubt: Doubt): Promise<boolean> {
    const asked = this.#question(store).then(
      () => true,
      // A server that refuses the question is there.
      (error: unknown) => !mayPass(error),
    );
    if (!(await within(store.clock, ANSWER_MS, asked))) this.#lose(store, doubt);
    const isBack = await asked;
    if (!isBack) this.#lose(store, doubt);
    return isBack;
  }

  /** A store that was closed meanwhile throws at once. */
  async #question(store: Store): Promise<unknown> {
    return store.jobs.isPaused('');
  }

  #lose(store: Store, doubt: Doubt): void {
    const host = this.#host;
    // Questions that wait for a connection which the caller's transactions hold say nothing about the database.
    const waits = store.shortage?.() !== undefined && !host.isSilent();
    if (doubt.lost || waits || !host.isStarted()) return;
    doubt.lost = true;
    host.lost(doubt.error);
  }

  #end(store: Store, doubt: Doubt, isBack: boolean): void {
    this.#doubt = undefined;
    if (!doubt.lost) return;
    this.#reportedAt.clear();
    if (isBack) this.#host.back(store.clock.monotonic() - doubt.since);
  }
}

/** The database may accept the same statement later. */
const mayPass = (error: unknown): boolean => error instanceof StoreError && error.transient;
