import type { TraceContext } from '../tracer.js';

/** What kind of failure ended an attempt. */
export type FailureKind = 'error' | 'timeout' | 'crashed';

/** A piece of work as the engine sees it: a job or a reactive task. */
export interface Work {
  /** Identifies the document or row in the store. */
  readonly key: unknown;
  readonly id: string;
  readonly name: string;
  readonly lockedAt: Date | null;
  readonly claimedBy?: string;
  readonly leaseToken?: string;
  /** The token of the attempt that `begin` marked as started: only after a crash, or for a last attempt. */
  readonly startedToken?: string;
  readonly failKind?: FailureKind;
  /** The trace context of the call that enqueued it, or of its planning. */
  readonly trace?: TraceContext;
  /** The key by which limits count it, and batches by key gather it; of jobs that have one. */
  readonly limitKey?: string;
  /** The part of a sharded collection that holds the work; absent on other stores. */
  readonly part?: number;
  /** How many bytes the database sent for it, if the store knows. Set by claims: prefetching counts them. */
  readonly bytes?: number;
}
