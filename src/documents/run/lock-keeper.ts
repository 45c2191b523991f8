import { pause, type Clock } from '../../core/clock.js';
import { LeaseLostError } from '../../core/errors.js';
import type { OutageGrace } from './outage-grace.js';
import type { LockedDocument, Lock } from './locked-document.js';
import { extendLocks, type Opened } from './writes.js';

export interface LockKeeperOptions<Doc> {
  readonly opened: Opened<Doc>;
  readonly clock: Clock;
  /** 0: there are no locks to keep. */
  readonly lockMs: number;
  readonly grace: OutageGrace;
  readonly mint: () => Lock;
  readonly error: (error: unknown) => void;
}

/** Two renewals may fail before a lock ends, and a failed one is tried again soon. */
const RENEWALS_PER_LOCK = 3;
const TRIES_PER_LOCK = 10;
/** Sooner than others take documents again after an outage. */
const MOST_RETRY_MS = 1_000;
/** At hand, since an abort without a reason makes an error for it, with a stack, after each document. */
const NOTHING_HELD = 'nothing is held';

/**
 * Extends the locks of documents whose handlers run, all of them together. A lock that has ended is extended as well, as
 * long as no other process has taken the document: an outage ends locks, and not handlers.
 */
export class LockKeeper<Doc> {
  readonly #options: LockKeeperOptions<Doc>;
  readonly #held = new Set<LockedDocument<Doc>>();
  #over = new AbortController();
  #renewal: Promise<unknown> = Promise.resolve();
  /** A failure of the present renewal was reported. */
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

  /** After this no renewal of it is begun; one that is under way ends with `settled`. */
  delete(locked: LockedDocument<Doc>): void {
    locked.disarm();
    if (this.#held.delete(locked) && this.#held.size === 0) this.#over.abort(NOTHING_HELD);
  }

  /** Resolves when it is known what the last renewal wrote. */
  settled(): Promise<unknown> {
    return this.#renewal;
  }

  async #keep(over: AbortSignal): Promise<void> {
    const { clock, lockMs } = this.#options;
    let waitMs = lockMs / RENEWALS_PER_LOCK;
    while (await pause(clock, waitMs, over)) {
      const renewal = this.#renew([...this.#held]);
      this.#renewal = renewal;
      clock.track?.(renewal);
      waitMs = (await renewal)
        ? lockMs / RENEWALS_PER_LOCK
        : Math.min(lockMs / TRIES_PER_LOCK, MOST_RETRY_MS);
    }
  }

  /** True if the store answered for each of them. */
  async #renew(helds: readonly LockedDocument<Doc>[]): Promise<boolean> {
    this.#isTold = false;
    const certain = helds.filter(({ isUncertain }) => !isUncertain);
    const uncertain = helds.filter(({ isUncertain }) => isUncertain);
    const answers = [this.#together(certain), ...uncertain.map((locked) => this.#confirm(locked))];
    return (await Promise.all(answers)).every(Boolean);
  }

  /** Where that fails, each by itself: one that somebody's transaction has must not cost others theirs. */
  async #together(helds: readonly LockedDocument<Doc>[]): Promise<boolean> {
    if (helds.length === 0) return true;
    const isAnswered = await this.#extend(helds);
    if (isAnswered || helds.length < 2) return isAnswered;
    return (await Promise.all(helds.map((locked) => this.#extend([locked])))).every(Boolean);
  }

  async #extend(helds: readonly LockedDocument<Doc>[]): Promise<boolean> {
    const { clock, mint } = this.#options;
    const lock = mint();
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

  /** Writes its likeliest value once more, which adds no further one that may be there, and then renews it. */
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

  /** Undefined if the store did not answer. */
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
      new LeaseLostError(`${locked.id}: its sleepUntil was changed while it ran, so its lock is gone.`),
    );
  }
}
