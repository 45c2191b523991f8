/** What a connection is for: the store's own statements, or a caller's transaction, which may last. */
export type Use = 'own' | 'lent';

interface Waiting {
  readonly use: Use;
  readonly end: (granted: boolean) => void;
}

/** How many connections the transactions of callers leave to the store's own statements. */
const keptOf = (size: number): number => (size >= 4 ? 2 : size >= 2 ? 1 : 0);

/**
 * Grants the connections of a pool, first come, first served. Transactions of callers never get all of them. Otherwise,
 * a handler that runs a statement while it holds a connection could wait for one that another handler holds for the
 * same reason.
 */
export class ConnectionTurns {
  readonly #inUse: Record<Use, number> = { own: 0, lent: 0 };
  readonly #size: number;
  readonly #queue: Waiting[] = [];
  /** When a caller's transaction last ended. */
  #endedAt = -Infinity;

  constructor(size: number) {
    this.#size = size;
  }

  /**
   * Resolves to false if no connection came free in time. For a caller's transaction, the time starts anew whenever
   * another one ends.
   */
  take(use: Use, patienceMs: number): Promise<boolean> {
    if (this.#isFree(use)) {
      this.#grant(use);
      return Promise.resolve(true);
    }
    return new Promise((resolve) => {
      let timer: NodeJS.Timeout | undefined;
      const waiting: Waiting = {
        use,
        end: (granted) => {
          clearTimeout(timer);
          resolve(granted);
        },
      };
      const giveUp = (): void => {
        const leftMs = use === 'lent' ? this.#endedAt + patienceMs - performance.now() : 0;
        if (leftMs > 0) timer = setTimeout(giveUp, leftMs);
        else this.#leave(waiting);
      };
      timer = setTimeout(giveUp, patienceMs);
      this.#queue.push(waiting);
    });
  }

  giveBack(use: Use): void {
    this.#inUse[use] -= 1;
    // Only callers' transactions count: the store's own statements end all the time, even while transactions wait for
    // each other.
    if (use === 'lent') this.#endedAt = performance.now();
    for (const waiting of [...this.#queue]) {
      if (!this.#isFree(waiting.use)) continue;
      this.#queue.splice(this.#queue.indexOf(waiting), 1);
      this.#grant(waiting.use);
      waiting.end(true);
    }
  }

  #grant(use: Use): void {
    this.#inUse[use] += 1;
  }

  #leave(waiting: Waiting): void {
    this.#queue.splice(this.#queue.indexOf(waiting), 1);
    waiting.end(false);
  }

  #isFree(use: Use): boolean {
    const { own, lent } = this.#inUse;
    if (own + lent >= this.#size) return false;
    return use === 'own' || lent < this.#size - keptOf(this.#size);
  }
}
