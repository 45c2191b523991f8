import { pause, type Clock } from '../../core/clock.js';
import { LeaseLostError } from '../../core/errors.js';
import type { Grace } from './outage-grace.js';
import type { Held, Lock } from './locked-document.js';
import { extendLocks, type Opened } from './writes.js';

export interface KeeperOptions<Doc> {
  readonly opened: Opened<Doc>;
  readonly clock: Clock;
  /** 0: there are no locks to keep. */
  readonly lockMs: number;
  readonly grace: Grace;
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
export class Keeper<Doc> {
  readonly #options: KeeperOptions<Doc>;
  readonly #held = new Set<Held<Doc>>();
  #over = new AbortController();
  #renewal: Promise<unknown> = Promise.resolve();
  /** A failure of the present renewal was reported. */
  #isTold = false;

  constructor(options: KeeperOptions<Doc>) {
    this.#options = options;
  }

  add(held: Held<Doc>): void {
    this.#held.add(held);
    held.arm(this.#options.clock);
    if (this.#held.size > 1 || this.#options.lockMs === 0) return;
    this.#over = new AbortController();
    void this.#keep(this.#over.signal);
  }

  /** After this no renewal of it is begun; one that is under way ends with `settled`. */
  delete(held: Held<Doc>): void {
    held.disarm();
    if (this.#held.delete(held) && this.#held.size === 0) this.#over.abort(NOTHING_HELD);
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
  async #renew(helds: readonly Held<Doc>[]): Promise<boolean> {
    this.#isTold = false;
    const certain = helds.filter(({ isUncertain }) => !isUncertain);
    const uncertain = helds.filter(({ isUncertain }) => isUncertain);
    const answers = [this.#together(certain), ...uncertain.map((held) => this.#confirm(held))];
    return (await Promise.all(answers)).every(Boolean);
  }

  /** Where that fails, each by itself: one that somebody's transaction has must not cost others theirs. */
  async #together(helds: readonly Held<Doc>[]): Promise<boolean> {
    if (helds.length === 0) return true;
    const isAnswered = await this.#extend(helds);
    if (isAnswered || helds.length < 2) return isAnswered;
    return (await Promise.all(helds.map((held) => this.#extend([held])))).every(Boolean);
  }

  async #extend(helds: readonly Held<Doc>[]): Promise<boolean> {
    const { clock, mint } = this.#options;
    const lock = mint();
    const answers = await this.#write(helds, lock.until);
    if (answers === undefined) for (const held of helds) held.mayBeRenewed(lock);
    for (const [index, held] of helds.entries()) {
      if (answers?.[index] === true) {
        held.renewed(lock);
        if (this.#held.has(held)) held.arm(clock);
      } else if (answers !== undefined && this.#held.has(held)) this.#lose(held);
    }
    return answers !== undefined;
  }

  /** Writes its likeliest value once more, which adds no further one that may be there, and then renews it. */
  async #confirm(held: Held<Doc>): Promise<boolean> {
    const answers = await this.#write([held], held.lockedUntil);
    if (answers === undefined) return false;
    if (answers[0] === true) {
      held.confirmed();
      return this.#extend([held]);
    }
    if (this.#held.has(held)) this.#lose(held);
    return true;
  }

  /** Undefined if the store did not answer. */
  async #write(helds: readonly Held<Doc>[], until: Date): Promise<readonly boolean[] | undefined> {
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

  #lose(held: Held<Doc>): void {
    if (!held.isOver(this.#options.clock)) held.isForgone = true;
    this.delete(held);
    held.abort(
      new LeaseLostError(`${held.id}: its sleepUntil was changed while it ran, so its lock is gone.`),
    );
  }
}
