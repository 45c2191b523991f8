import type { Clock } from '../../core/clock.js';
import { LeaseLostError } from '../../core/errors.js';
import { keepRenewed } from '../../core/renewal.js';
import type { OutageGrace } from './outage-grace.js';
import type { DocumentLocks } from './document-locks.js';
import type { LockedDocument } from './locked-document.js';
import { extendLocks, type Opened } from './writes.js';

export interface LockKeeperOptions<Doc> {
  readonly opened: Opened<Doc>;
  readonly clock: Clock;
  /** 0: there are no locks to renew. */
  readonly lockMs: number;
  readonly grace: OutageGrace;
  readonly locks: Pick<DocumentLocks<Doc>, 'mint'>;
  readonly error: (error: unknown) => void;
}

/** Shorter than the grace that other schedulers give after an outage. */
const MOST_RETRY_MS = 1_000;
/** A constant, because abort() without a reason creates an error with a stack trace, here after each document. */
const NOTHING_HELD = 'nothing is held';

/**
 * Renews the locks of documents whose handlers run, all of them together. It also renews a lock that has ended, as long
 * as no other process has taken the document: an outage ends locks, but not handlers.
 */
export class LockKeeper<Doc> {
  readonly #options: LockKeeperOptions<Doc>;
  readonly #held = new Set<LockedDocument<Doc>>();
  #over = new AbortController();
  #renewal: Promise<unknown> = Promise.resolve();
  /** A failure of the current renewal has been reported. */
  #isTold = false;

  constructor(options: LockKeeperOptions<Doc>) {
    this.#options = options;
  }

  add(locked: LockedDocument<Doc>): void {
    this.#held.add(locked);
    locked.arm(this.#options.clock);
    if (this.#held.size > 1 || this.#options.lockMs === 0) return;
    this.#over = new AbortController();
    void this.#keep(this.#over.signal);
  }

  /** No renewal of the document begins after this. `settled` waits for one in progress. */
  delete(locked: LockedDocument<Doc>): void {
    locked.disarm();
    if (this.#held.delete(locked) && this.#held.size === 0) this.#over.abort(NOTHING_HELD);
  }

  /** Resolves when the result of the last renewal is known. */
  settled(): Promise<unknown> {
    return this.#renewal;
  }

  #keep(over: AbortSignal): Promise<void> {
    const { clock, lockMs } = this.#options;
    const renew = (): Promise<boolean> => {
      const renewal = this.#renew([...this.#held]);
      this.#renewal = renewal;
      return renewal;
    };
    return keepRenewed({ clock, leaseMs: lockMs, mostRetryMs: MOST_RETRY_MS, renew }, over);
  }

  /** Returns true if the store answered for every document. */
  async #renew(helds: readonly LockedDocument<Doc>[]): Promise<boolean> {
    this.#isTold = false;
    const certain = helds.filter(({ isUncertain }) => !isUncertain);
    const uncertain = helds.filter(({ isUncertain }) => isUncertain);
    const answers = [this.#together(certain), ...uncertain.map((locked) => this.#confirm(locked))];
    return (await Promise.all(answers)).every(Boolean);
  }

  /**
   * Renews all locks in one call, and each by itself if that fails: a document held by a user's transaction must not
   * cost the others their locks.
   */
  async #together(helds: readonly LockedDocument<Doc>[]): Promise<boolean> {
    if (helds.length === 0) return true;
    const isAnswered = await this.#extend(helds);
    if (isAnswered || helds.length < 2) return isAnswered;
    return (await Promise.all(helds.map((locked) => this.#extend([locked])))).every(Boolean);
  }

  async #extend(helds: readonly LockedDocument<Doc>[]): Promise<boolean> {
    const { clock, locks } = this.#options;
    const lock = locks.mint();
    const answers = await this.#write(helds, lock.until);
    if (answers === undefined) for (const locked of helds) locked.mayBeRenewed(lock);
    for (const [index, locked] of helds.entries()) {
      if (answers?.[index] === true) {
        locked.renewed(lock);
        if (this.#held.has(locked)) locked.arm(clock);
      } else if (answers !== undefined && this.#held.has(locked)) this.#lose(locked);
    }
    return answers !== undefined;
  }

  /** Writes the likeliest value again, which adds no further possible value, and then renews the lock. */
  async #confirm(locked: LockedDocument<Doc>): Promise<boolean> {
    const answers = await this.#write([locked], locked.lockedUntil);
    if (answers === undefined) return false;
    if (answers[0] === true) {
      locked.confirmed();
      return this.#extend([locked]);
    }
    if (this.#held.has(locked)) this.#lose(locked);
    return true;
  }

  /** Returns undefined if the store did not answer. */
  async #write(helds: readonly LockedDocument<Doc>[], until: Date): Promise<readonly boolean[] | undefined> {
    const { opened, grace, error } = this.#options;
    try {
      const answers = await extendLocks(opened, helds, until);
      grace.answered('a write');
      return answers;
    } catch (problem) {
      grace.failed('a write');
      if (!this.#isTold) error(problem);
      this.#isTold = true;
      return undefined;
    }
  }

  #lose(locked: LockedDocument<Doc>): void {
    if (!locked.isOver(this.#options.clock)) locked.isForgone = true;
    this.delete(locked);
    locked.abort(
      new LeaseLostError(`${locked.id}: its sleepUntil was changed while it ran, so its lock is lost.`),
    );
  }
}
