/** Who has a lock, or wants it. */
export interface LockOwner {
  /** Named to whoever finds the lock taken. */
  readonly instanceId: string;
  /** Made anew by each call, and by nobody else: it alone decides whose the lock is. */
  readonly token: string;
}

/** How a lock is asked for. */
export interface LockManner {
  /** Leave a lock whose lease has ended to its holder, which may only have been cut off; the answer says `expired`. */
  readonly patient?: boolean;
}

export type LockAnswer = { readonly fence: number } | { readonly heldBy: string; readonly expired?: boolean };

/**
 * Locks by key, for the whole cluster. Each method is one atomic write. A lock is free if nobody has taken it, if it
 * was released, or if its lease is over by the store's clock.
 */
export interface LockStore {
  /**
   * Takes a free lock. An owner that has it already, because an answer was lost, gets its fence again and a new lease.
   * The fence is greater than those of all earlier holders of the key.
   */
  acquire(key: string, owner: LockOwner, leaseMs: number, manner?: LockManner): Promise<LockAnswer>;
  /** `lost` where somebody else has taken it since. */
  renew(key: string, owner: LockOwner, leaseMs: number): Promise<'renewed' | 'lost'>;
  /** `lost` where it was no longer the owner's, which leaves it as it is. */
  release(key: string, owner: LockOwner): Promise<'released' | 'lost'>;
}
