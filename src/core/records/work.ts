import type { TraceContext } from '../tracer.js';

/** What kind of failure ended an attempt. */
export type FailureKind = 'error' | 'timeout' | 'crashed';

/** What the engine knows of a piece of work, whatever made it due. */
export interface Work {
  /** The store's own identity of the document or row. */
  readonly key: unknown;
  readonly id: string;
  readonly name: string;
  readonly lockedAt: Date | null;
  readonly claimedBy?: string;
  readonly leaseToken?: string;
  /** The token of the attempt that was really started; kept for work whose last attempt crashed. */
  readonly startedToken?: string;
  readonly failKind?: FailureKind;
  /** Where the request for it, or its planning, stands in a trace. */
  readonly trace?: TraceContext;
  /** Where the work lives in a sharded collection; absent elsewhere. */
  readonly part?: number;
}
