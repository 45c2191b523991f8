import { pause, type Clock } from '../core/clock.js';
import { LeaseLostError } from '../core/errors.js';
import type { Held, Lock } from './held.js';
import { extendLocks, type Opened } from './writes.js';

export interface KeeperOptions<Doc> {
  readonly opened: Opened<Doc>;
  readonly clock: Clock;
  /** 0: there are no locks to keep. */
  readonly lockMs: number;
  readonly mint: () => Lock;
  readonly error: (error: unknown) => void;
}

/** Two renewals may fail before a lock ends, and a failed one is tried again soon. */
const RENEWALS_PER_LOCK = 3;
const TRIES_PER_LOCK = 10;
/** At hand, since an abort without a reason makes an error for it, with a stack, after each document. */
const NOTHING_HELD = 'nothing is held';

/** Extends the locks of documents whose handlers run, all of them together. */
export class Keeper<Doc> {
  readonly #options: KeeperOptions<Doc>;
  readonly #held = new Set<Held<Doc>>();
  #over = new AbortController();
  #renewal: Promise<unknown> = Promise.resolve();

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
      // One whose time is up belongs to whoever takes it.
      const renewal = this.#renew([...this.#held].filter(({ signal }) => !signal.aborted));
      this.#renewal = renewal;
      clock.track?.(renewal);
      waitMs = lockMs / ((await renewal) ? RENEWALS_PER_LOCK : TRIES_PER_LOCK);
    }
  }

  /** All together; where that fails, each by itself: one that somebody's transaction has must not cost others theirs. */
  async #renew(helds: readonly Held<Doc>[]): Promise<boolean> {
    const answers = await this.#extend(helds);
    if (answers || helds.length < 2) return answers;
    return (await Promise.all(helds.map((held) => this.#extend([held])))).every(Boolean);
  }

  async #extend(helds: readonly Held<Doc>[]): Promise<boolean> {
    const { opened, clock, mint, error } = this.#options;
    const lock = mint();
    try {
      const answers = await extendLocks(opened, helds, lock.until);
      for (const [index, held] of helds.entries()) {
        if (answers[index] === true) {
          held.renewed(lock);
          if (this.#held.has(held)) held.arm(clock);
        } else if (this.#held.has(held)) this.#lose(held);
      }
      return true;
    } catch (problem) {
      for (const held of helds) held.mayBeRenewed(lock);
      error(problem);
      return false;
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
