import type { LogLine } from '../core/records/job.js';
import type { Finished, Outcome } from '../core/records/outcome.js';
import type { Work } from '../core/records/work.js';
import type { FailedRun, Lease } from '../store/port.js';
import type { LaneOptions } from './claim/lanes.js';

/** What the engine asks of a source of work. Jobs are one, reactive tasks another; it knows no other word about them. */
export interface WorkRunner<W extends Work, S> {
  /** The names that have a handler here, with the most that may run of each at once. */
  workers(): ReadonlyMap<string, LaneOptions>;
  /** Runs the handler. It never rejects: whatever happens is an outcome. */
  perform(work: W, attempt: AttemptControl): Promise<Outcome>;
  /**
   * True where the handler completes its work inside a transaction, as its definition or an earlier call says: then
   * nothing else is written to it while it runs, because any write would make that transaction conflict.
   */
  mayComplete(work: W): boolean;
  /** Which attempt this is, from 1. */
  attempt(work: W): number;
  /** How often it may be started. The start of its last attempt is marked, so that a crash tells whether it began. */
  maxAttempts(work: W): number;
  /** How long the handler may run, or undefined for no limit. */
  timeoutMs(work: W): number | undefined;
  /** What the store is to record. Pure: asked again when the work changed meanwhile. */
  conclude(work: W, finished: Finished, about?: About): Conclusion<S>;
  /** The store has recorded it. */
  recorded(work: W, finished: Finished, conclusion: Conclusion<S>): void;
}

/** What else there is to say about the end of an attempt. */
export interface About {
  /** Progress and log lines that are not written yet. */
  readonly extra?: Extra;
  /** How often the database has refused this outcome for good. Each time there must be less of it. */
  readonly refusals?: number;
  /** The policies of whoever ran it, by name: somebody else has to judge its work. */
  readonly policies?: Readonly<Record<string, unknown>>;
}

export interface Extra {
  readonly progress?: { readonly value: unknown };
  readonly logs?: readonly LogLine[];
}

/** An outcome on its way to the store. */
export interface Settling<W extends Work> {
  readonly work: W;
  readonly finished: Finished;
  /** How often the database has found this outcome too large; each time there is less of it. */
  readonly refusals?: number;
  /** How often it has been set aside because the database refuses it. */
  readonly tries?: number;
  readonly extra?: Extra;
}

export interface AttemptControl {
  readonly lease: Lease;
  readonly signal: AbortSignal;
  /** Progress and log lines, on their way to the store. */
  note(note: { progress?: { value: unknown }; log?: { message: string; fields?: unknown } }): void;
  /** While this holds, best-effort writes leave the work alone: it may be part of a user's transaction. */
  inTransaction: boolean;
}

export interface Conclusion<S> {
  readonly settlement: S;
  /** Kept first, so that a crash in between loses nothing; a repeat is harmless. */
  readonly failedRun?: FailedRun;
  readonly retryAt?: Date;
}
