/**
 * The port of locks, for `withLock` and for work that one instance does for the cluster. Begin with `LockStore`;
 * port.ts explains the words of the comments.
 */

/** Who has a lock, or wants it. */
export interface LockOwner {
  /** Returned as `heldBy` to others who ask. It does not decide whose the lock is. */
  readonly instanceId: string;
  /** Made anew for each call of `withLock`: it alone decides whose the lock is. */
  readonly token: string;
}

/** How a lock is asked for. */
export interface LockManner {
  /** True: leave a lock whose lease has ended to its holder, which may only be cut off; return `expired` instead. */
  readonly patient?: boolean;
}

/** The lock's fence number, or who has it. `expired` is only given if `patient`: the lease of the holder has ended. */
export type LockAnswer = { readonly fence: number } | { readonly heldBy: string; readonly expired?: boolean };

/**
 * Locks by key, any text, for the whole cluster. Each method is one atomic write. A lock is free if it was never
 * taken, was released, or its lease is over by the server's clock. A store may forget a free lock, if later fences of
 * the key are still greater.
 */
export interface LockStore {
  /**
   * Takes a lock: free → held by this token for `leaseMs`, by the server's clock.
   * Precondition: free, or held by this token already; if `patient`, a lease that is over does not make it free.
   * Returns a fence greater than that of every earlier holder of the key, or `heldBy`; then nothing was written.
   * Repeat: the same fence, and a new lease.
   * Caller: `withLock`; and the cleaner and the reclaimer, which take turns in the cluster by a lock that they keep.
   */
  acquire(key: string, owner: LockOwner, leaseMs: number, manner?: LockManner): Promise<LockAnswer>;
  /**
   * Extends a lock: held → held until `leaseMs` from now by the server's clock.
   * Precondition: it carries this token, even if its lease is over.
   * Returns `renewed`, or `lost` if another owner has taken it, or it was released. Repeat: safe.
   * Errors: a transient `StoreError` after about a third of the lease without an answer.
   */
  renew(key: string, owner: LockOwner, leaseMs: number): Promise<'renewed' | 'lost'>;
  /**
   * Gives a lock back: held → free.
   * Precondition: it carries this token. Returns `released`, or `lost` if it does not. Repeat: `lost`, without harm.
   */
  release(key: string, owner: LockOwner): Promise<'released' | 'lost'>;
}
