/** The wake-up channel. */
import type { ScopeRef } from '../limits/limits.js';
import type { DueNames, Hint } from '../work.js';

/** What a wake-up is about. */
export type WorkKind = 'jobs' | 'tasks';

/** An open wake-up channel. It only shortens a wait: the poll finds everything. */
export interface Watch {
  /** Ends the channel; no handler is called afterwards. Repeat: no effect. */
  close(): Promise<void>;
}

/** Called by the store for what happens on any instance, also for writes of this process. */
export interface WatchHandlers {
  /**
   * Work of this kind may be due, or its pauses have changed; a hint names one job. With `due`, it concerns those names
   * only, so that other instances can ignore it.
   */
  readonly wake: (what: WorkKind, hint?: Hint, due?: DueNames) => void;
  /** A running job was asked to cancel: the engine calls `cancelRequests`. */
  readonly cancel: () => void;
  /** Definitions, leadership or reconciliation requests have changed; for the instances that may plan. */
  readonly news: () => void;
  /**
   * Permits of these scopes were given back while others wait for them, or their limits or breakers have changed. A
   * store may name more scopes than it has to.
   */
  readonly freed: (scopes: readonly ScopeRef[]) => void;
  /**
   * The channel broke, maybe before `watch` resolved; what it resolves to is dead then. The poll covers the gap until
   * the listener opens another one.
   */
  readonly broken: (error: unknown) => void;
  /** A connection broke while nothing used it. The store replaces it, and the listener reports the error. */
  readonly fault?: (error: unknown) => void;
}
